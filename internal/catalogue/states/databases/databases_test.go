package databases

import (
	"path/filepath"
	"slices"
	"testing"

	modcore "brine/internal/catalogue/modules/core"
	moddatabases "brine/internal/catalogue/modules/databases"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/test/servertest"
	"brine/test/tools"
)

// postgresTable returns a test table with a PostgreSQL server.
func postgresTable(t *testing.T, name string) statetest.Table {
	m := &host.Machine{}
	tab := statetest.Table{Name: "testdata/" + name, States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(moddatabases.Modules(m), files.Modules(m), modcore.Modules())}
	if !statetest.Inside() {
		s := servertest.Postgres(t)
		t.Cleanup(s.Remove)
		s.Exec(t, "", "ALTER ROLE salt SUPERUSER PASSWORD 'plain'")
		tab.Env = []string{"BRINE_PG_HOST=" + s.Host, "BRINE_PG_BIN=" + filepath.Dir(tools.Find("/usr/lib/postgresql/*/bin/psql"))}
	}
	return tab
}

// TestPostgres changes a real server.
func TestPostgres(t *testing.T) {
	t.Parallel()
	statetest.Run(t, postgresTable(t, "postgres"))
}

func TestPostgresRecordingIsTrue(t *testing.T) {
	statetest.VerifyTable(t, func(t *testing.T) statetest.Table { return postgresTable(t, "postgres") })
}

// TestPostgresParts changes parts of databases and roles on a real server.
func TestPostgresParts(t *testing.T) {
	t.Parallel()
	statetest.Run(t, postgresTable(t, "postgres_parts"))
}

func TestPostgresPartsRecordingIsTrue(t *testing.T) {
	statetest.VerifyTable(t, func(t *testing.T) statetest.Table { return postgresTable(t, "postgres_parts") })
}

// mysqlTable returns the MySQL test table with a server.
func mysqlTable(t *testing.T) statetest.Table {
	tab := statetest.Table{Name: "testdata/mysql", States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(moddatabases.Modules(&host.Machine{}), files.Modules(&host.Machine{}), modcore.Modules())}
	if !statetest.Inside() {
		s := servertest.MySQL(t)
		t.Cleanup(s.Remove)
		s.Exec(t, "", "GRANT ALL ON *.* TO salt@'%' WITH GRANT OPTION")
		tab.Env = []string{"BRINE_MYSQL_HOST=" + s.Host}
	}
	return tab
}

// TestMySQL changes a real server.
func TestMySQL(t *testing.T) {
	t.Parallel()
	statetest.Run(t, mysqlTable(t))
}

func TestMySQLRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, mysqlTable) }

// TestPostgresClusters makes and removes clusters, with scripts as Debian's programs.
func TestPostgresClusters(t *testing.T) {
	m := &host.Machine{}
	statetest.Run(t, statetest.Table{Name: "testdata/clusters", States: append(slices.Clone(Modules()), core.Modules()...),
		Functions: slices.Concat(moddatabases.Modules(m), modcore.Modules(), shell.Modules())})
}

func TestPostgresClustersRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/clusters") }
