package stores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"brine/internal/store/migrate"
	"brine/internal/store/returner"
)

const copiedMinions = 30

func packed(t *testing.T, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	must(t, err)
	return b
}

// TestMigrateCache copies from files to each driver and back. The copy is interrupted and
// continued, and finds newer values at either end.
func TestMigrateCache(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			dir := t.TempDir()
			from, to := cache.Files(dir), c.driverOf(t)
			must(t, to.Flush(ctx, "minions", ""))
			banks := []string{"minions"}
			age := func(id string, d time.Duration) {
				t.Helper()
				at := time.Now().Add(d)
				must(t, os.Chtimes(filepath.Join(dir, "minions", id, "data.p"), at, at))
			}
			id := func(i int) string { return fmt.Sprintf("web%02d.example", i) }
			for i := range copiedMinions {
				must(t, from.Store(ctx, "minions/"+id(i), "data",
					packed(t, value.DictOf("grains", value.DictOf("n", i, "b", []byte{0xff, 0}), "pillar", nil))))
				must(t, from.Store(ctx, "minions/"+id(i), "mine", packed(t, value.DictOf("x", i))))
			}
			check := func(what string, r migrate.Report, err error, want migrate.Report) {
				t.Helper()
				r.Notes = nil
				if err != nil || fmt.Sprint(r) != fmt.Sprint(want) {
					t.Fatalf("%s: %+v, not %+v: %v", what, r, want, err)
				}
			}
			all := 2 * copiedMinions
			r, err := migrate.Cache(ctx, from, to, banks, migrate.Options{DryRun: true})
			check("dry run", r, err, migrate.Report{Found: all, Copied: all})
			if names, err := to.List(ctx, "minions"); len(names) > 0 || err != nil {
				t.Fatal("a dry run has written", names, err)
			}
			cut, stop := context.WithCancel(ctx)
			_, err = migrate.Cache(cut, from, to, banks, migrate.Options{Progress: func(_ string, done, _ int) {
				if done == 7 {
					stop()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			r, err = migrate.Cache(ctx, from, to, banks, migrate.Options{})
			check("after it was cut off", r, err, migrate.Report{Found: all, Copied: all - 7, Same: 7, Verified: all})
			r, err = migrate.Cache(ctx, from, to, banks, migrate.Options{})
			check("again", r, err, migrate.Report{Found: all, Same: all, Verified: all})

			newer, older := packed(t, value.DictOf("newer", 1)), packed(t, value.DictOf("older", 1))
			must(t, from.Store(ctx, "minions/"+id(0), "data", newer))
			age(id(0), time.Hour)
			must(t, from.Store(ctx, "minions/"+id(1), "data", older))
			age(id(1), -time.Hour)
			must(t, os.WriteFile(filepath.Join(dir, "minions", id(2), "mine.p"), []byte{0xc1}, 0o600))
			r, err = migrate.Cache(ctx, from, to, banks, migrate.Options{})
			check("of different age", r, err, migrate.Report{Found: all, Copied: 1, Same: all - 3, Kept: 1, Failed: 1, Verified: all - 1})
			if b, err := to.Fetch(ctx, "minions/"+id(0), "data"); err != nil || !bytes.Equal(b, newer) {
				t.Errorf("the newer one is not there: %q %v", b, err)
			}
			if b, err := to.Fetch(ctx, "minions/"+id(1), "data"); err != nil || bytes.Equal(b, older) {
				t.Errorf("an older one replaced a newer one: %q %v", b, err)
			}
			back := cache.Files(t.TempDir())
			r, err = migrate.Cache(ctx, to, back, banks, migrate.Options{})
			check("back", r, err, migrate.Report{Found: all, Copied: all, Verified: all})
			for i := 3; i < copiedMinions; i++ {
				a, _ := from.Fetch(ctx, "minions/"+id(i), "data")
				b, err := back.Fetch(ctx, "minions/"+id(i), "data")
				if err != nil || a == nil || !bytes.Equal(a, b) {
					t.Fatalf("%s came back as %q: %v", id(i), b, err)
				}
			}
		})
	}
}

// TestMigrateJobs copies from a database to each returner, from there to Salt's files, and back
// into a database.
func TestMigrateJobs(t *testing.T) {
	const n = 25
	now := time.Now()
	jid := func(i int) string {
		return now.Add(time.Duration(i-n)*time.Minute).UTC().Format("20060102150405") + fmt.Sprintf("%06d", i)
	}
	open := func(t *testing.T) *job.Store {
		s, err := job.Open(t.TempDir(), job.Options{JobCache: true, KeepJobsSeconds: 86400, KeepJobs: 24}, quiet)
		must(t, err)
		t.Cleanup(func() { s.Close() })
		return s
	}
	source := open(t)
	result := value.DictOf("a", value.ListOf(1, nil, "é", 2.5), "nul", "a\x00b", "bytes", []byte{0xff, 'x'})
	for i := range n {
		must(t, source.NewJob(aLoad(jid(i)), []string{"m1", "m2", "m3"}))
		for _, id := range []string{"m1", "m2"} {
			_, err := source.Return(aReturn(jid(i), id, result))
			must(t, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(returnerCases)) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			c := returnerCases[name](t)
			ret, err := returner.Open(c.name, returner.Config{Source: options(pairs(c.options)...), Keep: 24 * time.Hour, Timeout: 30 * time.Second,
				History: true})
			must(t, err)
			defer ret.Close()
			server := migrate.Server{R: ret, OnlyTexts: c.texts, Timeout: 30 * time.Second}
			before, err := server.JIDs(ctx)
			must(t, err)
			// One job exists with a different return, which is kept; another one lacks a return.
			must(t, ret.SaveLoad(ctx, jid(0), aLoad(jid(0))))
			must(t, ret.Return(ctx, aReturn(jid(0), "m1", result)))
			from := migrate.Database{Store: source}
			r, err := migrate.CopyJobs(ctx, from, server, migrate.Options{DryRun: true})
			if err != nil || r.Found != n || r.Copied != n || r.Failed != 0 {
				t.Fatalf("dry run: %+v %v", r, err)
			}
			cut, stop := context.WithCancel(ctx)
			_, err = migrate.CopyJobs(cut, from, server, migrate.Options{Progress: func(_ string, done, _ int) {
				if done == 5 {
					stop()
				}
			}})
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			r, err = migrate.CopyJobs(ctx, from, server, migrate.Options{})
			if err != nil || r.Found != n || r.Copied != n-5 || r.Same != 5 || r.Failed != 0 || r.Verified != n {
				t.Fatalf("after it was cut off: %+v %v", r, err)
			}
			r, err = migrate.CopyJobs(ctx, from, server, migrate.Options{})
			if err != nil || r.Same != n || r.Verified != n {
				t.Fatalf("again: %+v %v", r, err)
			}
			if jids, err := server.JIDs(ctx); err != nil || len(jids)-len(before) != n {
				t.Errorf("%d jobs, %d before: %v", len(jids), len(before), err)
			}
			if c.sql != nil {
				if got := c.sql("SELECT COUNT(*) FROM salt_returns WHERE jid >= '" + jid(0) + "' AND jid <= '" + jid(n-1) +
					"'"); strings.TrimSpace(got) != fmt.Sprint(2*n) {
					t.Errorf("%s returns, not %d", got, 2*n)
				}
			}
			files, err := job.NewLocalCache(t.TempDir(), "")
			must(t, err)
			only := some{server, map[string]bool{}}
			for i := range n {
				only.jids[jid(i)] = true
			}
			if r, err = migrate.CopyJobs(ctx, only, migrate.Files{Cache: files}, migrate.Options{}); err != nil || r.Copied != n || r.Verified != n {
				t.Fatalf("to files: %+v %v", r, err)
			}
			end := open(t)
			if r, err = migrate.CopyJobs(ctx, migrate.Files{Cache: files}, migrate.Database{Store: end}, migrate.Options{}); err != nil || r.Copied != n ||
				r.Verified != n {
				t.Fatalf("to a database: %+v %v", r, err)
			}
			w, err := end.Whole(jid(7))
			if err != nil || w == nil || w.Load.Str("fun") != "test.ping" || len(w.Returns) != 2 || !value.Truth(w.Returns["m2"].At("return")) {
				t.Errorf("%+v %v", w, err)
			}
			if name != "postgres_local_cache" && len(w.Minions) != 3 { // which cannot store it
				t.Errorf("the job was for %v", w.Minions)
			}
			newest, err := end.List(job.Filter{Limit: 1})
			if err != nil || len(newest) != 1 || newest[0].JID != jid(n-1) {
				t.Errorf("the newest job is %v: %v", newest, err)
			}
		})
	}
	t.Run("too old", func(t *testing.T) {
		files, err := job.NewLocalCache(t.TempDir(), "")
		must(t, err)
		old := "20010101000000000001"
		must(t, files.Put(&job.Whole{Job: job.Job{JID: old, Load: aLoad(old)}}))
		r, err := migrate.CopyJobs(t.Context(), migrate.Files{Cache: files}, migrate.Database{Store: open(t)}, migrate.Options{})
		if err != nil || r.Expired != 1 || r.Copied != 0 || r.Failed != 0 {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// some reads some of the jobs, since other tests leave theirs.
type some struct {
	migrate.Jobs
	jids map[string]bool
}

func (s some) JIDs(ctx context.Context) ([]string, error) {
	all, err := s.Jobs.JIDs(ctx)
	return slices.DeleteFunc(all, func(j string) bool { return !s.jids[j] }), err
}
