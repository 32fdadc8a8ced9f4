package consoledb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/lastrun"
	"brine/test/servertest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open starts a server, and opens its database without tables.
func open(t *testing.T) (*Store, *servertest.Server) {
	t.Helper()
	server := servertest.Postgres(t)
	t.Cleanup(server.Remove)
	s, err := Open("postgres", remote.Options(value.DictOf("returner.postgres.host", server.Host, "returner.postgres.port", int64(server.Port),
		"returner.postgres.passwd", server.Password)), 20*time.Second)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s, server
}

// TestTables stores and reads back all that the tables hold, also texts that PostgreSQL does not accept as they are, and
// removes what is old.
func TestTables(t *testing.T) {
	t.Parallel()
	s, server := open(t)
	ctx := context.Background()
	if _, err := Open("redis", remote.Options(nil), time.Second); salt.KindOf(err) != salt.Invalid {
		t.Errorf("a server that is no PostgreSQL: %v", err)
	}
	saved := func(version int64) (texts []string, next int64, err error) {
		next, err = s.EachSaved(ctx, version, func(_, text string) error {
			texts = append(texts, text)
			return nil
		})
		return texts, next, err
	}
	if _, _, err := saved(0); salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "brine migrate schema console_store") {
		t.Errorf("without tables: %v", err)
	}
	for range 2 {
		server.Exec(t, "salt", "SET ROLE salt;\n"+Schema())
	}

	// What users saved: each version once, the newest last.
	hostile := "\x00'\"; DROP TABLE console_saved; --\xff"
	var many []Saved
	for i := range page + 50 {
		many = append(many, Saved{ID: fmt.Sprintf("%032d", i), Kind: "target", Owner: hostile, Name: hostile, Record: fmt.Sprint("first ", i)})
	}
	must(t, s.PutSaved(ctx, many))
	texts, version, err := saved(0)
	must(t, err)
	if len(texts) != len(many) || texts[0] != "first 0" || texts[len(texts)-1] != fmt.Sprint("first ", len(many)-1) {
		t.Errorf("%d records", len(texts))
	}
	must(t, s.PutSaved(ctx, []Saved{{ID: many[0].ID, Deleted: true, Record: "second"}}))
	texts, next, err := saved(version)
	if err != nil || !slices.Equal(texts, []string{"second"}) || next <= version {
		t.Errorf("changes: %q %d %v", texts, next, err)
	}
	if texts, again, err := saved(next); err != nil || len(texts) != 0 || again != next {
		t.Errorf("without changes: %q %d %v", texts, again, err)
	}

	// Audit records: the newest first over pages, each once.
	now := time.Now().UTC()
	for i := range page + 10 {
		a := Audit{Entry: fmt.Sprint("e", i), Master: "m", User: hostile, Fun: "test.ping", Result: "done",
			Time: now.Add(time.Duration(i-1000) * time.Second).Format("2006-01-02T15:04:05.000000"), Record: fmt.Sprintf("%d \\u0000\\ud800", i)}
		must(t, s.AddAudit(ctx, a))
		must(t, s.AddAudit(ctx, a))
	}
	must(t, s.AddAudit(ctx, Audit{Entry: "old", Master: "m", Time: "2020-01-02T03:04:05", Record: "old"}))
	audits := func() (got []string) {
		t.Helper()
		must(t, s.EachAudit(ctx, func(_, record string) bool {
			got = append(got, record)
			return true
		}))
		return got
	}
	if got := audits(); len(got) != page+11 || got[0] != fmt.Sprintf("%d \\u0000\\ud800", page+9) || got[page+10] != "old" {
		t.Errorf("%d audit records: %.200q", len(got), got)
	}
	n := 0
	must(t, s.EachAudit(ctx, func(string, string) bool { n++; return n < 3 }))
	if n != 3 {
		t.Errorf("%d records were read instead of 3", n)
	}

	// Runs: the last ones of each minion, and what is new after a place.
	run := func(minion, jid string, test bool, at time.Time) Run {
		return Run{Past: lastrun.Past{Minion: minion, JID: jid, Fun: "state.apply", Test: test, Time: at, Changed: 1}, Record: minion + " " + jid}
	}
	old := now.Add(-100 * 24 * time.Hour)
	must(t, s.PutRuns(ctx, []Run{run("a", "20250101000000000000", false, old),
		run("a", "20250102000000000000", true, old), run("b", "20250101000000000000", false, old)}))
	place, err := s.NewestRun(ctx)
	must(t, err)
	must(t, s.PutRuns(ctx, []Run{run("a", "20260101000000000000", false, now), run("a", "20250102000000000000", true, now)}))
	names := func(runs []Run) (out []string) {
		for _, r := range runs {
			out = append(out, fmt.Sprint(r.Record, " ", r.Test))
		}
		return out
	}
	var runs []Run
	collect := func(r Run) { runs = append(runs, r) }
	_, more, err := s.LastRuns(ctx, Place{}, collect)
	want := []string{"a 20260101000000000000 false", "a 20250102000000000000 true", "b 20250101000000000000 false"}
	if err != nil || more || !slices.Equal(names(runs), want) {
		t.Errorf("the last runs: %q %v %v", names(runs), more, err)
	}
	runs = nil
	if _, more, err = s.RunsSince(ctx, place, collect); err != nil || more || !slices.Equal(names(runs), want[:1]) {
		t.Errorf("new runs: %q %v %v", names(runs), more, err)
	}

	// The history: days count each run once, and runs come in pages.
	history := func(since time.Time) string {
		t.Helper()
		days, err := s.Days(ctx, since)
		must(t, err)
		return fmt.Sprint(days)
	}
	today := lastrun.DayOf(now)
	if got, want := history(now.AddDate(0, 0, -1)), "[{"+today+" 0 0 1 0}]"; got != want {
		t.Errorf("days: %s, want %s", got, want)
	}
	later := func(jid string, p lastrun.Past) Run {
		p.Minion, p.JID, p.Fun, p.Time = "h", jid, "state.apply", now
		return Run{Past: p, Record: "{}"}
	}
	more4 := []Run{later("20260101000000000001", lastrun.Past{OK: 7, MS: 1.5, Mods: []string{"web", hostile}}),
		later("20260101000000000002", lastrun.Past{Broken: true}), later("20260101000000000003", lastrun.Past{Test: true, Would: 2}),
		later("20260101000000000004", lastrun.Past{Failed: 1, Changed: 1}), // and the longest job id
		later("20260101000000000005_"+strings.Repeat("x", 43), lastrun.Past{})}
	for range 2 {
		must(t, s.PutRuns(ctx, more4))
	}
	if got, want := history(time.Time{}), "[{"+lastrun.DayOf(old)+" 0 0 3 0} {"+today+" 2 1 1 2}]"; got != want {
		t.Errorf("days: %s, want %s", got, want)
	}
	for _, x := range []struct {
		q    lastrun.Query
		want string
	}{
		{lastrun.Query{Minion: "h", Limit: 3}, "h5 clean 0, h4 failed 1, h3 drift 0; h2 failed 0, h1 clean 0"},
		{lastrun.Query{Minion: "h", Outcome: lastrun.Drift}, "h3 drift 0"},
		{lastrun.Query{Day: today, Limit: 2}, "a0 changed 0, h1 clean 0; h2 failed 0, h3 drift 0; h4 failed 1, h5 clean 0"},
		{lastrun.Query{Day: today, Outcome: lastrun.Failed, Limit: 1}, "h2 failed 0; h4 failed 1"},
	} {
		var pages []string
		for next := " "; next != ""; x.q.After = next {
			var rows []lastrun.Past
			rows, next, err = s.Runs(ctx, x.q)
			must(t, err)
			var page []string
			for _, r := range rows {
				page = append(page, fmt.Sprint(r.Minion, r.JID[19:20], " ", r.Outcome(), " ", r.Failed))
			}
			pages = append(pages, strings.Join(page, ", "))
		}
		if got := strings.Join(pages, "; "); got != x.want {
			t.Errorf("%+v: %s, want %s", x.q, got, x.want)
		}
	}
	rows, _, err := s.Runs(ctx, lastrun.Query{Minion: "h", Outcome: lastrun.Clean})
	if err != nil || len(rows) != 1 || rows[0].JID[19] != '5' {
		t.Errorf("the newest run: %+v %v", rows, err)
	}
	rows, _, err = s.Runs(ctx, lastrun.Query{Minion: "h", Outcome: lastrun.Clean, Limit: 2})
	if err != nil || len(rows) != 2 {
		t.Fatal(rows, err)
	}
	if rows = rows[1:]; rows[0].OK != 7 || rows[0].MS != 1.5 || rows[0].Mods[0] != "web" || rows[0].Time.Sub(now).Abs() > time.Millisecond {
		t.Errorf("a run: %+v %v", rows, err)
	}
	server.Exec(t, "salt", "DELETE FROM console_runs WHERE minion = 'h';")

	// Old rows go, but not the last runs of a minion.
	usage, err := s.Usage(ctx)
	if err != nil || len(usage) != 3 || usage[2].Name != "saved" || usage[0].Count != page+11 || usage[0].Oldest.Year() != 2020 || usage[0].Bytes == 0 ||
		usage[1].Count != 4 {
		t.Errorf("usage: %+v %v", usage, err)
	}
	must(t, s.Clean(ctx, 0, now))
	if got := audits(); len(got) != page+11 {
		t.Errorf("%d audit records of %d stay without a limit", len(got), page+11)
	}
	const days = 90 * 24 * time.Hour
	must(t, s.Clean(ctx, days, now.Add(-100*365*24*time.Hour)))
	if got := audits(); len(got) != page+11 {
		t.Errorf("a master whose time is in doubt removed audit records: %d of %d are left", len(got), page+11)
	}
	must(t, s.Clean(ctx, days, now.Add(100*365*24*time.Hour)))
	if got := audits(); len(got) != page+10 || slices.Contains(got, "old") {
		t.Errorf("%d audit records", len(got))
	}
	runs = nil
	if _, _, err = s.RunsSince(ctx, Place{}, collect); err != nil || len(runs) != 3 || !slices.Equal(names(runs[:2]), want[1:]) || names(runs)[2] != want[0] {
		t.Errorf("the runs that stay: %q %v", names(runs), err)
	}
	if got, want := history(time.Time{}), "[{"+today+" 2 1 1 2}]"; got != want {
		t.Errorf("days that stay: %s, want %s", got, want)
	}
	var flood []Run
	for i := range maxRunsOfMinion + 20 {
		flood = append(flood, run("c", fmt.Sprintf("2026020100%010d", i), false, now))
	}
	must(t, s.PutRuns(ctx, flood))
	must(t, s.Clean(ctx, 0, now))
	if out := strings.TrimSpace(server.Exec(t, "salt", "SELECT count(*), min(jid) FROM console_runs WHERE minion = 'c';")); out != "500|20260201000000000020" {
		t.Errorf("the runs of a minion that returns very often: %s", out)
	}
}

// TestHostileRows reads tables to which another program has written: rows of 10 MB, damaged ones, times that Go or JSON
// does not know.
func TestHostileRows(t *testing.T) {
	t.Parallel()
	s, server := open(t)
	ctx := t.Context()
	server.Exec(t, "salt", "SET ROLE salt;\n"+Schema())
	server.Exec(t, "salt", `INSERT INTO console_saved (id, kind, owner, name, deleted, record) VALUES
			('large', 'view', 'o', 'n', false, repeat('x', 10000000)), ('small', 'view', 'o', repeat('n', 10000000), false, '{');
		INSERT INTO console_audit (entry, at, master_id, username, fun, result, record) VALUES ('1', now(), 'm', 'u', 'f', 'r', repeat('x', 10000000)),
			('2', '-infinity', repeat('m', 10000000), 'u', 'f', 'r', 'old'), ('3', '4000-01-01 BC', 'm', 'u', 'f', 'r', 'older'),
			('4', '290000-01-01', 'm', 'u', 'f', 'r', 'late'), ('5', '2020-01-02', 'm', 'u', 'f', 'r', 'good');
		INSERT INTO console_runs (minion, jid, test, at, fun, failed, changed, drift, record) VALUES
			('m', 'a', false, 'infinity', 'f', -1, 0, 0, repeat('x', 10000000)), (repeat('m', 1000), 'b', false, '-infinity', 'f', 0, 0, 0, 'long name'),
			('m', 'b', true, now(), 'f', 0, 0, 0, 'good');`)
	var got []string
	_, err := s.EachSaved(ctx, 0, func(id, text string) error {
		got = append(got, id+" "+text)
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"large ", "small {"}) {
		t.Errorf("saved: %.200q %v", got, err)
	}
	got = nil
	must(t, s.EachAudit(ctx, func(master, text string) bool {
		got = append(got, fmt.Sprint(len(master), " ", text))
		return true
	}))
	if !slices.Equal(got, []string{"1 late", "1 good", "1 older", "300 old"}) {
		t.Errorf("audit records: %.200q", got)
	}
	got = nil
	collect := func(r Run) { got = append(got, r.Minion+" "+r.Record) }
	if _, more, err := s.LastRuns(ctx, Place{}, collect); err != nil || more || !slices.Equal(got, []string{"m ", "m good"}) {
		t.Errorf("the last runs: %.200q %v", got, err)
	}
	got = nil
	if _, _, err := s.RunsSince(ctx, Place{}, collect); err != nil || len(got) != 3 || len(got[1]) != 300+len(" long name") {
		t.Errorf("all runs: %.200q %v", got, err)
	}
	server.Exec(t, "salt", `INSERT INTO console_run_days VALUES ('infinity', 1, 1, 1, 1), ('-infinity', 1, 1, 1, 1), ('2020-01-02', -1, 1, 1, 1);
		INSERT INTO console_runs (minion, jid, test, at, fun, failed, changed, drift, record, mods, ms) VALUES ('m', '20200101000000000000', true, now(),
			repeat('f', 10000000), -1, 0, 0, '', repeat(',', 10000000), 'NaN');`)
	if days, err := s.Days(ctx, time.Time{}); err != nil || len(days) != 1 || days[0].Day != "2020-01-02" {
		t.Errorf("days: %+v %v", days, err)
	}
	rows, next, err := s.Runs(ctx, lastrun.Query{Minion: "m"})
	if err != nil || len(rows) != 1 || next != "" || len(rows[0].Fun) != 300 || rows[0].MS != 0 {
		t.Errorf("runs of a minion: %.1000v %v", rows, err)
	}
	usage, err := s.Usage(ctx)
	if err != nil || usage[0].Oldest.Year() != 2020 || usage[1].Oldest.Year() < 2026 {
		t.Errorf("usage: %+v %v", usage, err)
	}

	// A master that ends in a transaction holds its lock for a minute, not for hours.
	tx, err := s.db.Begin(ctx)
	must(t, err)
	defer tx.End()
	_, err = tx.Do(ctx, stuck)
	must(t, err)
	must(t, tx.Rows(ctx, "SHOW idle_in_transaction_session_timeout", nil, func(scan func(...any) error) error {
		var limit string
		if err := scan(&limit); err != nil || limit != "1min" {
			t.Errorf("the limit of a transaction: %q %v", limit, err)
		}
		return nil
	}))
}

// TestReadOnly: a server that is read only for a while (a standby, or one that an administrator protects) refuses nothing
// for good.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s, server := open(t)
	server.Exec(t, "salt", "SET ROLE salt;\n"+Schema())
	server.Exec(t, "salt", "ALTER DATABASE salt SET default_transaction_read_only = on;")
	queued := Queued(value.DictOf("user", "alice", "fun", "test.ping", "result", "done", "time", "2026-01-02T03:04:05"))
	for what, err := range map[string]error{
		"an audit record": s.Deliver(t.Context(), "m", queued),
		"a saved record":  s.PutSaved(t.Context(), []Saved{{ID: "1", Record: "{}"}}),
		"a run":           s.PutRuns(t.Context(), []Run{{Past: lastrun.Past{Minion: "m", JID: "1", Time: time.Now()}, Record: "{}"}}),
	} {
		if salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
