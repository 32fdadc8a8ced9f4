package databases

import (
	"slices"
	"testing"

	"brine/internal/host"
	modcore "brine/internal/modules/core"
	moddatabases "brine/internal/modules/databases"
	"brine/internal/modules/files"
	"brine/internal/states/core"
	"brine/internal/states/statetest"
	"brine/test/servertest"
)

// mysqlTable is the table of MySQL with a server for it.
func mysqlTable(t *testing.T) statetest.Table {
	tab := statetest.Table{Name: "testdata/mysql", States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(moddatabases.Modules(), files.Modules(&host.Machine{}), modcore.Modules())}
	if !statetest.Inside() {
		s := servertest.MySQL(t)
		t.Cleanup(s.Remove)
		s.Exec(t, "", "GRANT ALL ON *.* TO salt@'%' WITH GRANT OPTION")
		tab.Env = []string{"BRINE_MYSQL_HOST=" + s.Host}
	}
	return tab
}

// TestMySQL changes a real server.
func TestMySQL(t *testing.T) { statetest.Run(t, mysqlTable(t)) }

func TestMySQLRecordingIsTrue(t *testing.T) { mysqlTable(t).Verify(t) }
