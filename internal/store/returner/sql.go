package returner

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

// database uses the tables jids, salt_returns and salt_events of Salt's returners mysql, pgjsonb
// and postgres, which differ in column types. The tables must exist: the database administrator
// chooses types and indexes.
type database struct {
	db       *remote.SQL
	masterID string
	ascii    bool // its columns may not store all characters
	jsonb    bool // its columns are JSON, not strings
}

func init() {
	kinds.Register("mysql", kind{
		doc:  "Jobs, returns and events in tables of MySQL or MariaDB; brine migrate schema mysql prints them.",
		open: newMySQL, events: true,
	})
}

func newMySQL(c Config) (Returner, error) {
	db, err := remote.MySQL(c.settings("mysql"), remote.Names{Password: "pass", Database: "db", Host: "salt", User: "salt", Pass: "salt", DB: "salt"},
		c.Timeout)
	return &database{db: db, masterID: c.MasterID, ascii: true}, err
}

func init() {
	kinds.Register("pgjsonb", kind{
		doc:  "Jobs, returns and events in tables of PostgreSQL, as jsonb; brine migrate schema pgjsonb prints them.",
		open: newPGJSONB, events: true,
	})
}

func newPGJSONB(c Config) (Returner, error) {
	db, err := openPostgres("pgjsonb", c.settings, c.Timeout)
	return &database{db: db, masterID: c.MasterID, jsonb: true}, err
}

func init() {
	kinds.Register("postgres", kind{
		doc:  "Jobs, returns and events in tables of PostgreSQL, as text; brine migrate schema postgres prints them.",
		open: newPostgres, events: true,
	})
}

func newPostgres(c Config) (Returner, error) {
	db, err := openPostgres("postgres", c.settings, c.Timeout)
	return &database{db: db, masterID: c.MasterID}, err
}

// postgres are the options of the returners for PostgreSQL: the prefix, and the name of that for the password.
var postgres = map[string]struct{ prefix, password string }{
	"pgjsonb": {"returner.pgjsonb", "pass"}, "postgres": {"returner.postgres", "passwd"}, "postgres_local_cache": {"master_job_cache.postgres", "passwd"},
}

func openPostgres(name string, settings func(prefix string) remote.Settings, timeout time.Duration) (*remote.SQL, error) {
	o := postgres[name]
	names := remote.Names{Password: o.password, Database: "db", Host: "localhost", User: "salt", Pass: "salt", DB: "salt"}
	return remote.Postgres(settings(o.prefix), names, timeout)
}

// PostgresNames returns the names of the returners for PostgreSQL, sorted.
func PostgresNames() []string { return slices.Sorted(maps.Keys(postgres)) }

// Postgres opens the PostgreSQL server that the options of a returner name, for data besides jobs. It does not connect.
func Postgres(name string, src remote.Source, timeout time.Duration) (*remote.SQL, error) {
	if _, ok := postgres[name]; !ok {
		return nil, salt.Errorf(salt.Invalid, "%.80q is no returner for PostgreSQL: use one of %s", name, strings.Join(PostgresNames(), ", "))
	}
	return openPostgres(name, src.Under, timeout)
}

// q quotes names that are SQL keywords for MySQL, and adds types to values where PostgreSQL cannot infer
// them.
func (d *database) q(s string) string {
	if d.db.MySQL {
		return strings.NewReplacer("[", "`", "]", "`", "::json", "", "::text", "").Replace(s)
	}
	typ := "::text"
	if d.jsonb {
		typ = "::jsonb"
	}
	return strings.NewReplacer("[", `"`, "]", `"`, "::json", typ).Replace(s)
}

func (d *database) dump(v any) (string, error) {
	t, err := dump(v, d.ascii)
	if d.jsonb {
		t = withoutNUL(t)
	}
	return t, err
}

// withoutNUL replaces NUL, the only character that jsonb rejects.
func withoutNUL(t string) string {
	const nul = `\u0000`
	if !strings.Contains(t, nul) {
		return t
	}
	var b strings.Builder
	for i := 0; i < len(t); i++ {
		switch {
		case strings.HasPrefix(t[i:], nul):
			b.WriteString("\ufffd")
			i += len(nul) - 1
		case t[i] == '\\' && i+1 < len(t):
			b.WriteString(t[i : i+2])
			i++
		default:
			b.WriteByte(t[i])
		}
	}
	return b.String()
}

// success is Python's form of a boolean in a string column.
func (d *database) success(v any) string {
	switch {
	case d.db.MySQL && value.Truth(v):
		return "1"
	case d.db.MySQL:
		return "0"
	}
	return strconv.FormatBool(value.Truth(v))
}

func (d *database) Return(ctx context.Context, ret *value.Dict) error {
	result, err := d.dump(ret.At("return"))
	if err != nil {
		return err
	}
	full, err := d.dump(ret)
	if err != nil {
		return err
	}
	jid, id := ret.Str("jid"), ret.Str("id")
	from := ""
	if d.db.MySQL {
		from = "FROM DUAL"
	}
	_, err = d.db.Do(ctx, d.q(`INSERT INTO salt_returns ([fun], [jid], [return], [id], [success], [full_ret])
		SELECT $1::text, $2::text, $3::json, $4::text, $5::text, $6::json `+from+`
		WHERE NOT EXISTS (SELECT 1 FROM salt_returns WHERE [jid] = $7 AND [id] = $8)`),
		text(value.Str(ret.At("fun")), 50), jid, result, id, d.success(ret.At("success")), full, jid, id)
	return prepared(err)
}

// prepared turns a missing table or privilege into an error of kind Unavailable, so that data stays
// queued until the operator has created or granted it.
func prepared(err error) error {
	if err != nil && remote.IsUnprepared(err) {
		return salt.Errorf(salt.Unavailable,
			"%w: create the tables of the returner (the statements are in docs/caches.md), or grant its user the privileges on them", err)
	}
	return err
}

func (d *database) SaveLoad(ctx context.Context, jid string, load *value.Dict) error {
	t, err := d.dump(load)
	if err != nil {
		return err
	}
	_, err = d.db.Do(ctx, d.q(`INSERT INTO jids ([jid], [load]) VALUES ($1, $2::json)`), jid, t)
	if remote.IsDuplicate(err) {
		return nil
	}
	return prepared(err)
}

func (d *database) Load(ctx context.Context, jid string) (load *value.Dict, err error) {
	err = d.db.Rows(ctx, d.q(`SELECT CAST([load] AS `+d.textType()+`) FROM jids WHERE [jid] = $1`), []any{jid}, func(scan func(...any) error) error {
		var t string
		if err := scan(&t); err != nil {
			return err
		}
		load, err = loadDict(t)
		return err
	})
	return load, err
}

func (d *database) textType() string {
	if d.db.MySQL {
		return "CHAR"
	}
	return "text"
}

func (d *database) Returns(ctx context.Context, jid string) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	err := d.db.Rows(ctx, d.q(`SELECT [id], CAST([full_ret] AS `+d.textType()+`) FROM salt_returns WHERE [jid] = $1`), []any{jid},
		func(scan func(...any) error) error {
			var id, t string
			if err := scan(&id, &t); err != nil {
				return err
			}
			if ret, err := loadDict(t); err == nil {
				out[id] = ret
			}
			return nil
		})
	return out, err
}

func (d *database) Jobs(ctx context.Context) (map[string]*value.Dict, error) {
	out := map[string]*value.Dict{}
	err := d.db.Rows(ctx, d.q(`SELECT [jid], CAST([load] AS `+d.textType()+`) FROM jids`), nil, func(scan func(...any) error) error {
		var jid, t string
		if err := scan(&jid, &t); err != nil {
			return err
		}
		if load, err := loadDict(t); err == nil {
			out[jid] = load
		}
		return nil
	})
	return out, err
}

func (d *database) Events(ctx context.Context, events []Event) error {
	tx, err := d.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	for _, e := range events {
		t, err := d.dump(e.Data)
		if err != nil {
			return err
		}
		if _, err := tx.Do(ctx, d.q(`INSERT INTO salt_events ([tag], [data], [master_id]) VALUES ($1, $2::json, $3)`), text(e.Tag, 255), t,
			d.masterID); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// slack is added to the age of a job by its id, which may be in any time zone.
const slack = 26 * time.Hour

// archiving is the key of the PostgreSQL advisory lock held while archiving.
const archiving = "7021790926"

func (d *database) Clean(ctx context.Context, keep time.Duration, archive bool) error {
	if keep <= 0 {
		return nil
	}
	var before string
	seconds := strconv.FormatInt(int64(keep/time.Second), 10)
	stamp := `SELECT CAST(NOW() - INTERVAL '` + seconds + `' SECOND AS ` + d.textType() + `)`
	if d.db.MySQL {
		stamp = `SELECT CAST(DATE_SUB(NOW(), INTERVAL ` + seconds + ` SECOND) AS CHAR)`
	}
	if err := d.db.Rows(ctx, stamp, nil, func(scan func(...any) error) error { return scan(&before) }); err != nil {
		return err
	}
	when := "$1::timestamptz"
	if d.db.MySQL {
		when = "$1"
	}
	// Jobs without returns expire by their id.
	oldJobs := `([jid] IN (SELECT [jid] FROM salt_returns WHERE alter_time < ` + when + `) OR LENGTH([jid]) >= 20 AND [jid] < $2)`
	oldID := salt.FormatJID(steady.Removal().Add(-keep - slack))
	if archive {
		for _, table := range []string{"jids", "salt_returns", "salt_events"} {
			like := "(LIKE " + table + ")"
			if d.db.MySQL {
				like = "LIKE " + table
			}
			if _, err := d.db.Do(ctx, "CREATE TABLE IF NOT EXISTS "+table+"_archive "+like); err != nil {
				return err
			}
		}
	}
	tx, err := d.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	if archive && !d.db.MySQL {
		// Without the lock, two masters would both copy rows that neither has removed yet. With
		// InnoDB one of them fails.
		if _, err := tx.Do(ctx, "SELECT pg_advisory_xact_lock("+archiving+")"); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		table, where string
		args         []any
	}{{"jids", oldJobs, []any{before, oldID}}, {"salt_returns", "alter_time < " + when, []any{before}},
		{"salt_events", "alter_time < " + when, []any{before}}} {
		if archive {
			if _, err := tx.Do(ctx, d.q("INSERT INTO "+step.table+"_archive SELECT * FROM "+step.table+" WHERE "+step.where), step.args...); err != nil {
				return err
			}
		}
		if _, err := tx.Do(ctx, d.q("DELETE FROM "+step.table+" WHERE "+step.where), step.args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (d *database) Close() error { return d.db.Close() }
