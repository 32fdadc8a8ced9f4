// Package consoledb stores in PostgreSQL what masters show in consoles: what users saved, audit records, the runs
// of states, and jobs that wait for a second user. Several masters use one database, which need not be a cluster.
package consoledb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/store/lastrun"
	"brine/internal/store/returner"
)

// SchemaName is the name of the tables for "brine migrate schema".
const SchemaName = "console_store"

// Schema returns the statements that create the tables. They change nothing where the tables exist.
func Schema() string {
	return `CREATE SEQUENCE IF NOT EXISTS console_saved_version;
CREATE TABLE IF NOT EXISTS console_saved (
  id VARCHAR(32) PRIMARY KEY, kind TEXT NOT NULL, owner TEXT NOT NULL, name TEXT NOT NULL, deleted BOOLEAN NOT NULL,
  version BIGINT NOT NULL DEFAULT nextval('console_saved_version'), record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS console_saved_by_version ON console_saved (version);
CREATE TABLE IF NOT EXISTS console_audit (
  id BIGSERIAL PRIMARY KEY, entry VARCHAR(64) NOT NULL UNIQUE, at TIMESTAMP WITH TIME ZONE NOT NULL, master_id TEXT NOT NULL,
  username TEXT NOT NULL, fun TEXT NOT NULL, result TEXT NOT NULL, record TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS console_audit_by_time ON console_audit (at, id);
CREATE TABLE IF NOT EXISTS console_runs (
  id BIGSERIAL NOT NULL, minion TEXT NOT NULL, jid VARCHAR(64) NOT NULL, test BOOLEAN NOT NULL, at TIMESTAMP WITH TIME ZONE NOT NULL,
  fun TEXT NOT NULL, failed BIGINT NOT NULL, changed BIGINT NOT NULL, drift BIGINT NOT NULL, record TEXT NOT NULL,
  ok BIGINT NOT NULL DEFAULT 0, mods TEXT NOT NULL DEFAULT '', broken BOOLEAN NOT NULL DEFAULT false, ms DOUBLE PRECISION NOT NULL DEFAULT 0,
  PRIMARY KEY (minion, test, jid));
CREATE UNIQUE INDEX IF NOT EXISTS console_runs_by_id ON console_runs (id);
CREATE INDEX IF NOT EXISTS console_runs_by_time ON console_runs (at);
CREATE TABLE IF NOT EXISTS console_run_days (
  day DATE PRIMARY KEY, failed BIGINT NOT NULL, drift BIGINT NOT NULL, changed BIGINT NOT NULL, clean BIGINT NOT NULL);
` + approvalsSchema
}

// Tables are the names of the tables: what users saved, audit records, runs of states, and how many there were on each day.
const (
	tableSaved = "console_saved"
	tableAudit = "console_audit"
	tableRuns  = "console_runs"
	tableDays  = "console_run_days"
)

// Bounds of answers. Other programs can write to the tables, so that no row is believed to be small.
const (
	// maxSaved, maxAudit and maxRun bound the records that are read in bytes. The server leaves out larger ones.
	maxSaved, maxAudit, maxRun = 16 << 10, 128 << 10, 4 << 20
	// maxName bounds names of masters and minions in characters.
	maxName = 300
	// page is the number of rows of one statement.
	page = 200
	// maxSavedRead bounds the rows that one call of SavedSince reads.
	maxSavedRead = 20_000
	// maxRunsOfMinion bounds the runs of one minion that Clean keeps, of each kind.
	maxRunsOfMinion = 500
	// maxRemoved bounds the rows that one statement removes for their age.
	maxRemoved = 10_000
	// stuck is the time after which the server ends a transaction whose master is gone: it holds a lock.
	stuck = "SET LOCAL idle_in_transaction_session_timeout = 60000"
)

// Store is a database. It is safe for concurrent use. Its errors have the kind salt.Unavailable if a later attempt may
// succeed, also after an operator has created the tables.
type Store struct{ db *remote.SQL }

// Open returns the database that the options of a returner for PostgreSQL name. It does not connect. timeout bounds
// each request.
func Open(name string, src remote.Source, timeout time.Duration) (*Store, error) {
	db, err := returner.Postgres(name, src, timeout)
	if err != nil {
		return nil, err
	}
	return &Store{db}, nil
}

// Close closes the connections. A nil *Store has none.
func (s *Store) Close() error {
	if s == nil {
		return nil
	}
	return s.db.Close()
}

// failed says what to do about a missing table.
func failed(err error) error {
	if err != nil && remote.IsUnprepared(err) {
		return salt.Errorf(salt.Unavailable, "%w: create the tables (brine migrate schema %s), or grant the user of the options the privileges on them",
			err, SchemaName)
	}
	return err
}

// plain returns a text that a column of PostgreSQL accepts.
func plain(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// stamp formats a time for a statement.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// Saved is a record that a user saved. Record is its form in a file of the store of masters.
type Saved struct {
	ID, Kind, Owner, Name string
	Deleted               bool
	Record                string
}

// EachSaved calls do for the records that changed after a version, in this order, and returns the newest version. It
// reads all after version 0. record is empty if it is larger than any that a master writes.
func (s *Store) EachSaved(ctx context.Context, version int64, do func(id, record string) error) (next int64, err error) {
	next = version
	for read := 0; ; {
		n := 0
		err = s.db.Rows(ctx, `SELECT version, left(id, 32), `+bounded("record", maxSaved)+` FROM `+tableSaved+` WHERE version > $1
			ORDER BY version LIMIT `+strconv.Itoa(page), []any{next}, func(scan func(...any) error) error {
			var id, text string
			if err := scan(&next, &id, &text); err != nil {
				return err
			}
			n++
			return do(id, text)
		})
		if read += n; err != nil || n < page {
			return next, failed(err)
		}
		if read >= maxSavedRead {
			return next, salt.Errorf(salt.Unavailable, "the table %s has more rows than masters write: delete what is not theirs", tableSaved)
		}
	}
}

// bounded returns the expression for a column with an empty string in place of a text of more bytes.
func bounded(column string, most int) string {
	return fmt.Sprintf("CASE WHEN octet_length(%[1]s) <= %[2]d THEN %[1]s ELSE '' END", column, most)
}

// PutSaved stores records, and replaces those with the same id. The ids must differ.
func (s *Store) PutSaved(ctx context.Context, records []Saved) error {
	values := make([]any, 0, 6*len(records))
	for _, r := range records {
		values = append(values, r.ID, plain(r.Kind), plain(r.Owner), plain(r.Name), r.Deleted, plain(r.Record))
	}
	return s.put(ctx, tableSaved, `INSERT INTO `+tableSaved+` (id, kind, owner, name, deleted, record) VALUES `, 6, values, ` ON CONFLICT (id) DO UPDATE SET kind = excluded.kind,
		owner = excluded.owner, name = excluded.name, deleted = excluded.deleted, record = excluded.record, version = nextval('console_saved_version')`)
}

// put inserts rows by one statement, so that a slow server does not need more time for more of them. The rows are between its two parts.
func (s *Store) put(ctx context.Context, table, begin string, width int, values []any, end string) error {
	if len(values) == 0 {
		return nil
	}
	return s.within(ctx, func(tx *remote.Tx) error {
		// Readers ask for what is newer than a number: numbers must become visible in their order.
		if _, err := tx.Do(ctx, stuck+`; LOCK TABLE `+table+` IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		rows := make([]string, len(values)/width)
		for i := range rows {
			rows[i] = remote.In(i*width+1, width)
		}
		_, err := tx.Do(ctx, begin+strings.Join(rows, ", ")+end, values...)
		return err
	})
}

// within runs statements in a transaction.
func (s *Store) within(ctx context.Context, do func(*remote.Tx) error) error {
	tx, err := s.db.Begin(ctx)
	if err != nil {
		return failed(err)
	}
	defer tx.End()
	if err := do(tx); err != nil {
		return failed(err)
	}
	return failed(tx.Commit())
}

// Audit is an audit record. Entry makes it unique, so that storing it again has no effect.
type Audit struct {
	Entry, Master, User, Fun, Result string
	// Time is the time of the record, as in it: UTC without a zone.
	Time   string
	Record string // JSON
}

// AddAudit stores an audit record.
func (s *Store) AddAudit(ctx context.Context, a Audit) error {
	_, err := s.db.Do(ctx, `INSERT INTO `+tableAudit+` (entry, at, master_id, username, fun, result, record)
		VALUES ($1, $2::timestamp AT TIME ZONE 'UTC', $3, $4, $5, $6, $7) ON CONFLICT (entry) DO NOTHING`,
		a.Entry, a.Time, plain(a.Master), plain(a.User), plain(a.Fun), plain(a.Result), plain(a.Record))
	return failed(err)
}

// Queued returns an audit record as it waits in a queue until Deliver stores it.
func Queued(record *value.Dict) *value.Dict {
	return value.DictOf("entry", rand.Text(), "record", record)
}

// Deliver stores an audit record of a master from its queue.
func (s *Store) Deliver(ctx context.Context, master string, queued *value.Dict) error {
	record := queued.Dict("record")
	text, err := json.Dump(record, json.Format{ASCII: true})
	if err != nil {
		return salt.Errorf(salt.Invalid, "cannot encode an audit record: %w", err)
	}
	return s.AddAudit(ctx, Audit{Entry: queued.Str("entry"), Master: master, User: record.Str("user"), Fun: record.Str("fun"),
		Result: record.Str("result"), Time: record.Str("time"), Record: text})
}

// maxAuditRead bounds the audit records that one question reads.
const maxAuditRead = 20_000

// EachAudit calls do for audit records of all masters, the newest first, until do returns false. It reads at most
// the newest 20,000.
func (s *Store) EachAudit(ctx context.Context, do func(master, record string) (more bool)) error {
	// The order is that of the column a.at: at alone would be its text, which no index has, in the order of characters.
	at, id := "infinity", int64(0)
	for read := 0; read < maxAuditRead; {
		n, more := 0, true
		err := s.db.Rows(ctx, `SELECT CAST(at AS text), id, left(master_id, `+strconv.Itoa(maxName)+`), `+bounded("record", maxAudit)+` FROM `+tableAudit+` a
			WHERE (a.at, a.id) < ($1::timestamptz, $2) ORDER BY a.at DESC, a.id DESC LIMIT `+strconv.Itoa(page), []any{at, id}, func(scan func(...any) error) error {
			var master, record string
			if err := scan(&at, &id, &master, &record); err != nil {
				return err
			}
			n++
			more = more && (record == "" || do(master, record))
			return nil
		})
		if err != nil || !more || n < page {
			return failed(err)
		}
		read += n
	}
	return nil
}

// Run is a run of states on a minion. Record has it with its changes.
type Run struct {
	lastrun.Past
	Record string
}

// outcomes are the conditions of the outcomes of a run, each for those that are none of the ones before.
var outcomes = []struct{ name, where string }{
	{lastrun.Failed, "failed > 0"}, {lastrun.Drift, "failed <= 0 AND drift > 0"}, {lastrun.Changed, "failed <= 0 AND drift <= 0 AND changed > 0"},
	{lastrun.Clean, "failed <= 0 AND drift <= 0 AND changed <= 0"},
}

// PutRuns stores runs, and counts them on their days. It neither replaces nor counts those that are stored. A run that ended before any state
// has one failure more.
func (s *Store) PutRuns(ctx context.Context, runs []Run) error {
	values := make([]any, 0, 13*len(runs))
	for _, r := range runs {
		failed := r.Failed
		if r.Broken {
			failed++
		}
		values = append(values, plain(r.Minion), plain(r.JID), r.Test, stamp(r.Time), plain(r.Fun), failed, r.Changed, r.Would, plain(r.Record),
			r.OK, plain(strings.Join(r.Mods, ",")), r.Broken, r.MS)
	}
	counts, sums := make([]string, len(outcomes)), make([]string, len(outcomes))
	for i, o := range outcomes {
		counts[i] = `count(*) FILTER (WHERE ` + o.where + `)`
		sums[i] = o.name + ` = ` + tableDays + `.` + o.name + ` + excluded.` + o.name
	}
	const columns = `(minion, jid, test, at, fun, failed, changed, drift, record, ok, mods, broken, ms)`
	return s.put(ctx, tableRuns, `WITH new AS (INSERT INTO `+tableRuns+` `+columns+` VALUES `, 13, values, ` ON CONFLICT (minion, test, jid) DO NOTHING RETURNING at, failed, changed, drift)
		INSERT INTO `+tableDays+` (day, failed, drift, changed, clean) SELECT `+dayOf+`, `+strings.Join(counts, ", ")+` FROM new GROUP BY 1
		ON CONFLICT (day) DO UPDATE SET `+strings.Join(sums, ", "))
}

// dayOf is the day of a run: when it was returned.
const dayOf = `(at AT TIME ZONE 'UTC')::date`

// inRange are the times that Go and JSON can have: other programs can write to the tables.
const inRange = `at BETWEEN '1970-01-01' AND '9999-01-01'`

// Days returns the days with runs since a time, the oldest first.
func (s *Store) Days(ctx context.Context, since time.Time) (out []lastrun.Day, err error) {
	err = s.db.Rows(ctx, `SELECT to_char(day, 'YYYY-MM-DD'), failed, drift, changed, clean FROM `+tableDays+` WHERE day BETWEEN $1::date AND '9999-01-01'
		ORDER BY day LIMIT `+strconv.Itoa(maxDays), []any{lastrun.DayOf(since)}, func(scan func(...any) error) error {
		var d lastrun.Day
		err := scan(&d.Day, &d.Failed, &d.Drift, &d.Changed, &d.Clean)
		out = append(out, d)
		return err
	})
	return out, failed(err)
}

// maxDays bounds the days of an answer.
const maxDays = 5000

// Runs returns a page of runs, and where the next one begins; "" at the end.
func (s *Store) Runs(ctx context.Context, q lastrun.Query) (out []lastrun.Past, next string, err error) {
	q, after, err := q.Check()
	if err != nil {
		return nil, "", err
	}
	var where, order string
	var args []any
	if q.Minion != "" {
		where, order = `minion = $1`, `jid COLLATE "C" DESC, test DESC`
		if args = []any{q.Minion}; after != nil {
			where += ` AND (jid COLLATE "C", test) < ($2, $3)`
			args = append(args, after.JID, after.Test)
		}
	} else {
		where, order = `at >= $1::timestamptz AND at < $1::timestamptz + interval '1 day'`, `minion COLLATE "C", jid COLLATE "C", test`
		if args = []any{q.Day + "T00:00:00Z"}; after != nil {
			where += ` AND (minion COLLATE "C", jid COLLATE "C", test) > ($2, $3, $4)`
			args = append(args, after.Minion, after.JID, after.Test)
		}
	}
	for _, o := range outcomes {
		if o.name == q.Outcome {
			where += ` AND ` + o.where
		}
	}
	most, n := strconv.Itoa(maxName), 0
	err = s.db.Rows(ctx, `SELECT minion, jid, test, at, left(fun, `+most+`), left(mods, `+most+`), ok, changed, failed, drift, broken, ms
		FROM `+tableRuns+` WHERE `+where+` AND `+inRange+` AND length(minion) <= `+most+` AND jid ~ '^[0-9]{20}(_[!-~]+)?$' ORDER BY `+order+` LIMIT `+strconv.Itoa(q.Limit+1), args, func(scan func(...any) error) error {
		var r lastrun.Past
		var mods string
		if err := scan(&r.Minion, &r.JID, &r.Test, &r.Time, &r.Fun, &mods, &r.OK, &r.Changed, &r.Failed, &r.Would, &r.Broken, &r.MS); err != nil {
			return err
		}
		if n++; n > q.Limit {
			next = out[len(out)-1].Place()
			return nil
		}
		if r.Broken {
			r.Failed--
		}
		if mods != "" {
			r.Mods = strings.Split(mods, ",")
		}
		if math.IsNaN(r.MS) || math.IsInf(r.MS, 0) {
			r.MS = 0
		}
		out = append(out, r)
		return nil
	})
	return out, next, failed(err)
}

// Place is a position in the runs, for the next page.
type Place struct {
	// ID is the number of the last run of RunsSince.
	ID int64
	// Minion and Test are the last run of LastRuns.
	Minion string
	Test   bool
}

// NewestRun returns the place after all runs that are stored now.
func (s *Store) NewestRun(ctx context.Context) (p Place, err error) {
	err = s.db.Rows(ctx, `SELECT coalesce(max(id), 0) FROM `+tableRuns, nil, func(scan func(...any) error) error { return scan(&p.ID) })
	return p, failed(err)
}

// LastRuns calls do for a page of the last runs of each minion, with and without test. more is false at the end.
func (s *Store) LastRuns(ctx context.Context, after Place, do func(Run)) (next Place, more bool, err error) {
	n := 0
	next = after
	err = s.db.Rows(ctx, `SELECT DISTINCT ON (minion, test) minion, test, jid, `+bounded("record", maxRun)+` FROM `+tableRuns+`
		WHERE (minion, test) > ($1, $2) AND length(minion) <= `+strconv.Itoa(maxName)+` ORDER BY minion, test, jid DESC LIMIT `+strconv.Itoa(page),
		[]any{after.Minion, after.Test}, func(scan func(...any) error) error {
			var r Run
			if err := scan(&r.Minion, &r.Test, &r.JID, &r.Record); err != nil {
				return err
			}
			n++
			next.Minion, next.Test = r.Minion, r.Test
			do(r)
			return nil
		})
	return next, n == page, failed(err)
}

// RunsSince calls do for a page of the runs that were stored after a place. more is false at the end.
func (s *Store) RunsSince(ctx context.Context, after Place, do func(Run)) (next Place, more bool, err error) {
	n := 0
	next = after
	err = s.db.Rows(ctx, `SELECT id, left(minion, `+strconv.Itoa(maxName)+`), test, jid, `+bounded("record", maxRun)+` FROM `+tableRuns+`
		WHERE id > $1 ORDER BY id LIMIT `+strconv.Itoa(page), []any{after.ID}, func(scan func(...any) error) error {
		var r Run
		if err := scan(&next.ID, &r.Minion, &r.Test, &r.JID, &r.Record); err != nil {
			return err
		}
		n++
		do(r)
		return nil
	})
	return next, n == page, failed(err)
}

// Clean removes audit records and runs that are older than keep, but keeps the last runs of each minion, and of each
// minion only the newest 500 with and without test. With keep 0 it removes by number only. Old is what is old by the
// server's clock and by removal, the time of the master: one of the clocks may be wrong.
func (s *Store) Clean(ctx context.Context, keep time.Duration, removal time.Time) error {
	if keep > 0 {
		const old = `at < least(now(), $1::timestamptz) - $2::interval`
		some := " LIMIT " + strconv.Itoa(maxRemoved) + ")"
		age := []any{stamp(removal), strconv.FormatInt(int64(keep/time.Second), 10) + " seconds"}
		for _, q := range []string{
			`DELETE FROM ` + tableAudit + ` WHERE id IN (SELECT id FROM ` + tableAudit + ` WHERE ` + old + some,
			`DELETE FROM ` + tableRuns + ` WHERE id IN (SELECT id FROM ` + tableRuns + ` r WHERE ` + old + `
				AND EXISTS (SELECT 1 FROM ` + tableRuns + ` n WHERE n.minion = r.minion AND n.test = r.test AND n.jid > r.jid)` + some,
			`DELETE FROM ` + tableDays + ` WHERE day IN (SELECT day FROM (SELECT day, day + interval '1 day' AS at FROM ` + tableDays + `) AS ended WHERE ` + old + some,
		} {
			// Some at a time, so that what is done stays done when the time is over.
			for n := int64(maxRemoved); n == maxRemoved; {
				var err error
				if n, err = s.db.Do(ctx, q, age...); err != nil {
					return failed(err)
				}
			}
		}
	}
	if _, err := s.db.Do(ctx, `DELETE FROM `+tableApprovals+` WHERE added < least(now(), $1::timestamptz) - interval '1 day'`, stamp(removal)); err != nil {
		return failed(err)
	}
	_, err := s.db.Do(ctx, fmt.Sprintf(`DELETE FROM %[1]s WHERE id IN (SELECT id FROM
		(SELECT id, row_number() OVER (PARTITION BY minion, test ORDER BY jid DESC) AS n FROM %[1]s) AS numbered WHERE n > %[2]d)`, tableRuns, maxRunsOfMinion))
	return failed(err)
}

// Usage is the size of a table.
type Usage struct {
	Name   string // audit, states or saved
	Bytes  int64  // with indexes
	Count  int64
	Oldest time.Time // zero without rows
}

// Usage returns the sizes of the tables.
func (s *Store) Usage(ctx context.Context) (out []Usage, err error) {
	// Go has no infinite time, and JSON no year of five digits.
	const oldest = "min(at) FILTER (WHERE at BETWEEN '1970-01-01' AND '9999-01-01')"
	for _, t := range []struct{ name, table, time string }{
		{"audit", tableAudit, oldest}, {"states", tableRuns, oldest}, {"saved", tableSaved, "NULL::timestamptz"},
	} {
		u := Usage{Name: t.name}
		var oldest sql.NullTime
		if err := s.db.Rows(ctx, `SELECT pg_total_relation_size('`+t.table+`'), count(*), `+t.time+` FROM `+t.table, nil,
			func(scan func(...any) error) error { return scan(&u.Bytes, &u.Count, &oldest) }); err != nil {
			return nil, failed(err)
		}
		u.Oldest = oldest.Time
		out = append(out, u)
	}
	return out, nil
}
