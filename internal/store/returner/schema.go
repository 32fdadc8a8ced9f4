package returner

import "strings"

// Statements that create the tables of the SQL returners.
const (
	mysqlTables = "CREATE TABLE jids (jid VARCHAR(255) NOT NULL PRIMARY KEY, `load` MEDIUMTEXT NOT NULL) DEFAULT CHARSET=utf8mb4;\n" +
		"CREATE TABLE salt_returns (\n" +
		"  fun VARCHAR(50) NOT NULL, jid VARCHAR(255) NOT NULL, `return` MEDIUMTEXT NOT NULL, id VARCHAR(255) NOT NULL,\n" +
		"  success VARCHAR(10) NOT NULL, full_ret MEDIUMTEXT NOT NULL, alter_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP,\n" +
		"  INDEX (id), INDEX (jid), INDEX (fun)) DEFAULT CHARSET=utf8mb4;\n" +
		"CREATE TABLE salt_events (\n" +
		"  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, tag VARCHAR(255) NOT NULL, data MEDIUMTEXT NOT NULL,\n" +
		"  alter_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP, master_id VARCHAR(255) NOT NULL, INDEX (tag)) DEFAULT CHARSET=utf8mb4;\n"
	pgTables = `CREATE TABLE jids (jid VARCHAR(255) PRIMARY KEY, load JSONB NOT NULL);
CREATE TABLE salt_returns (
  fun VARCHAR(50) NOT NULL, jid VARCHAR(255) NOT NULL, return JSONB NOT NULL, full_ret JSONB, id VARCHAR(255) NOT NULL,
  success VARCHAR(10) NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT now());
CREATE INDEX ON salt_returns (id);
CREATE INDEX ON salt_returns (jid);
CREATE INDEX ON salt_returns (fun);
CREATE TABLE salt_events (
  id BIGSERIAL PRIMARY KEY, tag VARCHAR(255) NOT NULL, data JSONB NOT NULL,
  alter_time TIMESTAMP WITH TIME ZONE DEFAULT now(), master_id VARCHAR(255) NOT NULL);
CREATE INDEX ON salt_events (tag);
`
	pgLocalTables = `CREATE TABLE jids (
  jid VARCHAR(20) PRIMARY KEY, started TIMESTAMP WITH TIME ZONE DEFAULT now(), tgt_type TEXT NOT NULL, cmd TEXT NOT NULL,
  tgt TEXT NOT NULL, kwargs TEXT NOT NULL, ret TEXT NOT NULL, username TEXT NOT NULL, arg TEXT NOT NULL, fun TEXT NOT NULL);
CREATE TABLE salt_returns (
  added TIMESTAMP WITH TIME ZONE DEFAULT now(), fun TEXT NOT NULL, jid VARCHAR(20) NOT NULL, return TEXT NOT NULL,
  id TEXT NOT NULL, success BOOLEAN);
CREATE INDEX ON salt_returns (jid);
CREATE TABLE salt_events (
  id SERIAL, tag TEXT NOT NULL, data TEXT NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT now(), master_id TEXT NOT NULL);
`
)

// schemas are the statements by returner.
var schemas = map[string]string{
	"mysql": mysqlTables, "pgjsonb": pgTables, "postgres": strings.ReplaceAll(pgTables, "JSONB", "TEXT"), "postgres_local_cache": pgLocalTables,
}

// Schemas returns the returners that need tables, sorted.
func Schemas() []string { return []string{"mysql", "pgjsonb", "postgres", "postgres_local_cache"} }

// Schema returns the statements that create the tables of a returner.
func Schema(name string) (statements string, ok bool) {
	statements, ok = schemas[name]
	return statements, ok
}
