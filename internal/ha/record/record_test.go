package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/ha/replica"
	"brine/internal/net/remote"
	"brine/internal/net/remote/rows"
	"brine/internal/py/value"
	"brine/internal/store/job"
	"brine/internal/store/keystore"
	"brine/internal/store/oplog"
	"brine/test/eventually"
	"brine/test/fuzztest"
	"brine/test/servertest"
)

const (
	soon   = 90 * time.Second
	secret = "00112233445566778899aabbccddeeff"
)

// server is a real server with the options for it.
type server struct {
	*servertest.Server
	engine string
	opts   *value.Dict
}

// engines start a server of each kind.
var engines = map[string]func(t *testing.T) *server{"etcd": startEtcd, "postgres": startPostgres}

func startEtcd(t *testing.T) *server {
	s := servertest.Etcd(t)
	t.Cleanup(s.Remove)
	return &server{s, "etcd", value.DictOf("etcd.host", s.Host, "etcd.port", int64(s.Port))}
}

func startPostgres(t *testing.T) *server {
	s := servertest.Postgres(t)
	t.Cleanup(s.Remove)
	return &server{s, "postgres", value.DictOf("cache.postgres.host", s.Host, "cache.postgres.port", int64(s.Port), "cache.postgres.user", s.User,
		"cache.postgres.password", s.Password, "cache.postgres.database", s.Database)}
}

// lock locks the table of PostgreSQL until the returned function is called.
func (s *server) lock(t *testing.T) (unlock func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Exec(t, s.Database, `DO $$ BEGIN LOCK TABLE salt_record;
			WHILE pg_try_advisory_lock(7) LOOP PERFORM pg_advisory_unlock(7); PERFORM pg_sleep(0.02); END LOOP; END $$`)
	}()
	eventually.Nil(t, soon, "the table is locked", func() error {
		n := s.Exec(t, s.Database, `SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted AND
			relation = 'salt_record'::regclass`)
		if n != "1\n" {
			return errors.New(n)
		}
		return nil
	})
	return func() {
		s.Exec(t, s.Database, "SELECT pg_advisory_lock(7); SELECT pg_sleep(1);")
		<-done
	}
}

func onEach(t *testing.T, fn func(t *testing.T, srv *server)) {
	t.Parallel()
	for name, start := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, start(t))
		})
	}
}

// master is the replicated state of one master: keys, tokens, jobs.
type master struct {
	t    *testing.T
	id   string
	dir  string
	srv  *server
	log  *bytes.Buffer
	logs sync.Mutex

	keys    *keystore.Store
	records *replica.Store
	mirrors []*replica.Mirror
	jobs    *job.Store
	store   *Store
	end     func()
}

// Write implements io.Writer for the log.
func (m *master) Write(p []byte) (int, error) {
	m.logs.Lock()
	defer m.logs.Unlock()
	return m.log.Write(p)
}

func (m *master) logged() string {
	m.logs.Lock()
	defer m.logs.Unlock()
	return m.log.String()
}

func newMaster(t *testing.T, srv *server, id string) *master {
	t.Helper()
	m := &master{t: t, id: id, dir: t.TempDir(), srv: srv, log: &bytes.Buffer{}}
	m.open()
	t.Cleanup(func() { m.stop(); m.close() })
	return m
}

func (m *master) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// open opens the disk of the master.
func (m *master) open() {
	m.t.Helper()
	log := slog.New(slog.NewTextHandler(m, nil))
	var err error
	for _, d := range []string{"db", "tokens", "jobs"} {
		m.must(os.MkdirAll(filepath.Join(m.dir, d), 0o700))
	}
	m.keys, err = keystore.Open(filepath.Join(m.dir, "pki"), log)
	m.must(err)
	m.records, err = replica.Open(filepath.Join(m.dir, "db"), m.id, replica.Ranks{"key": replica.KeyRank}, log)
	m.must(err)
	m.mirrors = []*replica.Mirror{replica.NewMirror(m.records, "key", &replica.Keys{Store: m.keys}),
		replica.NewMirror(m.records, "token", &replica.Files{Path: filepath.Join(m.dir, "tokens"), Mode: 0o600, Keep: func(string) bool { return true }})}
	m.jobs, err = job.OpenSharing(filepath.Join(m.dir, "jobs"), m.id, job.Options{KeepJobsSeconds: 86400, KeepJobs: 24, JobCache: true}, nil, log)
	m.must(err)
	m.store, err = Open(Config{Engine: m.srv.engine, Options: remote.Options(m.srv.opts), Cluster: "main", ID: m.id, Secret: secret, Log: log})
	m.must(err)
	m.store.Checked(nil)
	m.store.Share("records", m.records)
	m.store.Share("jobs", m.jobs.Stream())
	m.sync()
}

func (m *master) close() {
	m.store.Close()
	m.records.Close()
	m.jobs.Close()
}

// start exchanges changes until stop.
func (m *master) start() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { m.store.Run(ctx) })
	for _, mirror := range m.mirrors {
		wg.Go(func() { mirror.Run(ctx) })
	}
	m.end = func() { cancel(); wg.Wait() }
}

func (m *master) stop() {
	if m.end != nil {
		m.end()
		m.end = nil
	}
}

// replace stops the master, changes its disk, and opens it again.
func (m *master) replace(change func()) {
	m.t.Helper()
	m.stop()
	m.close()
	change()
	m.open()
}

// wipe replaces the disk by an empty one.
func (m *master) wipe() {
	m.t.Helper()
	m.replace(func() { m.dir = m.t.TempDir() })
}

func (m *master) sync() {
	m.t.Helper()
	for _, mirror := range m.mirrors {
		m.must(mirror.Sync())
	}
}

const pem = "-----BEGIN PUBLIC KEY-----\n%s\n-----END PUBLIC KEY-----\n"

func (m *master) pend(ids ...string) {
	m.t.Helper()
	for _, id := range ids {
		m.must(m.keys.Add(keystore.Pending, id, fmt.Sprintf(pem, id)))
	}
	m.sync()
}

func (m *master) move(id string, from, to keystore.State) {
	m.t.Helper()
	m.must(m.keys.Move(id, from, to))
	m.sync()
}

func (m *master) token(name string) {
	m.t.Helper()
	m.must(os.WriteFile(filepath.Join(m.dir, "tokens", name), []byte(name), 0o600))
	m.sync()
}

// run publishes a job, and stores its returns.
func (m *master) run(jid string, minions ...string) {
	m.t.Helper()
	m.must(m.jobs.NewJob(value.DictOf("fun", "test.ping", "jid", jid, "tgt", "*", "tgt_type", "glob", "user", "root", "arg", value.ListOf()), minions))
	for _, id := range minions {
		m.answer(jid, id, jid+id)
	}
}

func (m *master) answer(jid, id, ret string) {
	m.t.Helper()
	_, err := m.jobs.Return(value.DictOf("jid", jid, "id", id, "return", ret, "retcode", int64(0), "fun", "test.ping"))
	m.must(err)
}

// all returns everything that the master has.
func (m *master) all() map[string]string {
	m.t.Helper()
	out := map[string]string{}
	l, err := m.keys.List()
	m.must(err)
	for st, ids := range l {
		for _, id := range ids {
			pub, _ := m.keys.Read(st, id)
			out["key "+id] += st.String() + pub
		}
	}
	tokens, err := os.ReadDir(filepath.Join(m.dir, "tokens"))
	m.must(err)
	for _, e := range tokens {
		if !strings.HasPrefix(e.Name(), ".") {
			b, _ := os.ReadFile(filepath.Join(m.dir, "tokens", e.Name()))
			out["token "+e.Name()] = string(b)
		}
	}
	jobs, err := m.jobs.List(job.Filter{})
	m.must(err)
	for _, j := range jobs {
		out["job "+j.JID] = value.Str(j.Load)
		rets, err := m.jobs.Returns(j.JID)
		m.must(err)
		for id, r := range rets {
			out["return "+j.JID+" "+id] = value.Str(r)
		}
	}
	return out
}

// agree waits until two masters that both have made changes have the same.
func agree(a, b *master) {
	a.t.Helper()
	eventually.Nil(a.t, soon, "both have the same", func() error {
		if of, other := a.all(), b.all(); !maps.Equal(of, other) {
			return fmt.Errorf("%.60q\n%.60q", of, other)
		}
		return nil
	})
}

// has waits until a master has exactly this.
func (m *master) has(want map[string]string) {
	m.t.Helper()
	defer func() {
		if m.t.Failed() {
			m.t.Logf("%+v\n%s", m.store.Status(), m.logged())
		}
	}()
	eventually.Nil(m.t, soon, m.id+" has everything", func() error {
		got := m.all()
		if maps.Equal(got, want) {
			return nil
		}
		var diff []string
		for k, v := range want {
			if got[k] != v {
				diff = append(diff, fmt.Sprintf("%s: %.60q, want %.60q", k, got[k], v))
			}
		}
		for k := range got {
			if _, ok := want[k]; !ok {
				diff = append(diff, k+" is too much")
			}
		}
		return fmt.Errorf("%d differences: %.2000s", len(diff), strings.Join(diff, "; "))
	})
}

// stored waits until the server has everything of a master.
func (m *master) stored() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	m.sync()
	if err := m.store.Stored(ctx); err != nil {
		m.t.Fatalf("%v: %+v\n%s", err, m.store.Status(), m.logged())
	}
}

func jid(n int) string {
	return time.Now().UTC().Add(-time.Hour).Format("20060102150405") + fmt.Sprintf("%06d", n)
}

// rowsOf returns the rows of a master's cluster, to damage them.
func (m *master) rowsOf(prefix string) []rows.Row {
	m.t.Helper()
	got, err := m.store.rows.Scan(context.Background(), prefix, "", 10_000, true)
	m.must(err)
	return got
}

func (m *master) write(changes ...rows.Change) {
	m.t.Helper()
	for _, c := range changes {
		_, err := m.store.rows.Commit(context.Background(), nil, []rows.Change{c})
		m.must(err)
	}
}

// reset deletes all rows at once, or replaces them by a backup.
func (m *master) reset(backup []rows.Row) {
	m.t.Helper()
	var changes []rows.Change
	for _, r := range m.rowsOf("") {
		if !slices.ContainsFunc(backup, func(b rows.Row) bool { return b.Name == r.Name }) {
			changes = append(changes, rows.Change{Name: r.Name})
		}
	}
	for _, r := range backup {
		changes = append(changes, rows.Change(r))
	}
	if len(changes) > rows.MaxChanges {
		m.t.Fatalf("%d rows", len(changes))
	}
	ok, err := m.store.rows.Commit(context.Background(), nil, changes)
	if err != nil || !ok {
		m.t.Fatal(ok, err)
	}
}

// TestWipedMaster: a master whose disk is lost gets keys, tokens, jobs and returns from the server.
// The server has none of them in clear.
func TestWipedMaster(t *testing.T) {
	onEach(t, func(t *testing.T, srv *server) {
		a, b := newMaster(t, srv, "a"), newMaster(t, srv, "b")
		a.start()
		a.pend("acc", "pend", "rej", "gone")
		a.move("acc", keystore.Pending, keystore.Accepted)
		a.move("rej", keystore.Pending, keystore.Rejected)
		a.must(a.keys.Delete(keystore.Pending, "gone"))
		a.token("confidentialtoken")
		for i := range 300 {
			a.run(jid(i), "acc", "pend")
		}
		big := strings.Repeat("a large return ", 100_000)
		a.answer(jid(0), "big", big)
		a.stored()
		want := a.all()
		if len(want) < 900 || want["key acc"] == "" || want["key gone"] != "" {
			t.Fatalf("%d things", len(want))
		}
		b.start()
		b.has(want)
		b.token("another")
		b.stored()
		want = b.all()
		a.has(want)
		for _, r := range a.rowsOf("") {
			if bytes.Contains(r.Value, []byte("confidential")) || strings.Contains(r.Name, "confidential") || bytes.Contains(r.Value, []byte("PUBLIC KEY")) {
				t.Errorf("%s is readable", r.Name)
			}
		}
		a.wipe()
		b.wipe()
		b.must(b.store.CatchUp(context.Background(), "records"))
		b.sync()
		if s, _ := b.keys.Read(keystore.Rejected, "rej"); s == "" {
			t.Error("the keys are not complete after CatchUp")
		}
		b.start()
		b.has(want)
		a.start()
		a.has(want)
	})
}

// TestApartFromStore: masters decide while the server is unreachable or does not answer. The stricter
// decision wins when it is back, and nothing is lost.
func TestApartFromStore(t *testing.T) {
	onEach(t, func(t *testing.T, srv *server) {
		a, b := newMaster(t, srv, "a"), newMaster(t, srv, "b")
		a.start()
		b.start()
		a.pend("one", "two", "three")
		a.stored()
		b.has(a.all())
		for _, how := range []string{"stopped", "frozen"} {
			back := func() { b.must(srv.Start()) }
			switch {
			case how == "stopped":
				srv.Stop()
			case srv.engine == "etcd":
				back = srv.Freeze()
			default: // its processes for connections would not be frozen
				back = srv.lock(t)
			}
			from := time.Now()
			id := map[string]string{"stopped": "one", "frozen": "two"}[how]
			a.move(id, keystore.Pending, keystore.Accepted)
			b.move(id, keystore.Pending, keystore.Rejected)
			a.run(jid(len(how)), "one")
			if took := time.Since(from); took > soon/2 {
				t.Errorf("decisions took %v while the server is %s", took, how)
			}
			eventually.Nil(t, soon, "the problem is shown", func() error {
				if st := a.store.Status(); st.Problem == "" || st.Waiting == 0 {
					return fmt.Errorf("%+v", st)
				}
				return nil
			})
			back()
			for _, m := range []*master{a, b} {
				eventually.Nil(t, soon, "the rejection wins on "+m.id, func() error {
					if s := m.all()["key "+id]; !strings.HasPrefix(s, "rejected") {
						return errors.New(s)
					}
					return nil
				})
			}
			a.stored()
			b.stored()
			agree(a, b)
			if st := a.store.Status(); st.Problem != "" || st.Waiting != 0 {
				t.Errorf("%+v", st)
			}
		}
	})
}

// TestStoreFigures logs how long BRINE_STORE_FIGURES keys, and as many returns of jobs with 100 minions
// each, take to the store, and from there to a wiped master.
func TestStoreFigures(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("BRINE_STORE_FIGURES"))
	if n == 0 {
		t.Skip("set BRINE_STORE_FIGURES to a number of keys")
	}
	for name, start := range engines {
		t.Run(name, func(t *testing.T) {
			srv := start(t)
			a := newMaster(t, srv, "a")
			var minions []string
			for i := range n {
				minions = append(minions, fmt.Sprintf("m%05d", i))
			}
			a.pend(minions...)
			for i := range n / 100 {
				a.run(jid(i), minions[:100]...)
			}
			from := time.Now()
			a.start()
			a.stored()
			t.Logf("stored after %v", time.Since(from))
			a.wipe()
			from = time.Now()
			a.must(a.store.CatchUp(t.Context(), "records"))
			t.Logf("all keys back after %v", time.Since(from))
			a.must(a.store.CatchUp(t.Context(), "jobs"))
			t.Logf("all back after %v", time.Since(from))
		})
	}
}

// TestFullStore: etcd takes no data because its disk is full. Masters go on, and store everything when it
// has room again.
func TestFullStore(t *testing.T) {
	t.Parallel()
	srv := startEtcd(t)
	a, b := newMaster(t, srv, "a"), newMaster(t, srv, "b")
	a.start()
	b.start()
	a.pend("one")
	a.stored()
	alarm := func(action string) {
		t.Helper()
		r, err := http.Post("http://"+srv.Addr()+"/v3/maintenance/alarm", "application/json", strings.NewReader(
			`{"action": "`+action+`", "memberID": "0", "alarm": "NOSPACE"}`))
		a.must(err)
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(r.Body)
			t.Fatalf("%s: %s", r.Status, b)
		}
	}
	alarm("ACTIVATE")
	a.move("one", keystore.Pending, keystore.Rejected)
	b.pend("two")
	b.run(jid(1), "two")
	eventually.Nil(t, soon, "the problem is shown", func() error {
		if st := b.store.Status(); !strings.Contains(st.Problem, "space") || st.Waiting == 0 {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	alarm("DEACTIVATE")
	a.stored()
	b.stored()
	agree(a, b)
	if all := a.all(); !strings.HasPrefix(all["key one"], "rejected") || !strings.HasPrefix(all["key two"], "pending") {
		t.Errorf("%.60q", all)
	}
}

// TestStoreSetBack: the server is emptied, or restored from a backup. The masters write again what it
// lacks, and nothing that was deleted since comes back, not even on a master that is wiped then.
func TestStoreSetBack(t *testing.T) {
	onEach(t, func(t *testing.T, srv *server) {
		a, b, c := newMaster(t, srv, "a"), newMaster(t, srv, "b"), newMaster(t, srv, "c")
		a.start()
		b.start()
		a.pend("gone", "kept")
		a.move("gone", keystore.Pending, keystore.Accepted)
		for i := range 20 {
			a.run(jid(i), "kept")
		}
		a.stored()
		backup := a.rowsOf("")
		b.has(a.all())
		a.must(a.keys.Delete(keystore.Accepted, "gone"))
		a.pend("later")
		a.run(jid(100), "later")
		a.stored()
		b.has(a.all())
		want, losses := a.all(), 0
		for name, to := range map[string][]rows.Row{"emptied": nil, "restored": backup} {
			a.reset(to)
			eventually.Nil(t, soon, "the loss is noticed", func() error {
				if n := strings.Count(a.logged()+b.logged(), "has lost changes"); n <= losses {
					return errors.New(name)
				}
				return nil
			})
			losses = strings.Count(a.logged()+b.logged(), "has lost changes")
			c.start()
			c.has(want)
			c.wipe()
		}
	})
}

// TestForgottenInStore: all masters forget a deletion. Then neither a master with an older disk nor a
// restored server brings the deleted key back.
func TestForgottenInStore(t *testing.T) {
	onEach(t, func(t *testing.T, srv *server) {
		a, b := newMaster(t, srv, "a"), newMaster(t, srv, "b")
		a.start()
		b.start()
		a.pend("gone", "kept")
		a.move("gone", keystore.Pending, keystore.Accepted)
		a.stored()
		b.has(a.all())
		b.stop()
		old := t.TempDir()
		b.replace(func() { b.must(os.CopyFS(old, os.DirFS(b.dir))) })
		backup := a.rowsOf("")
		b.start()
		a.must(a.keys.Delete(keystore.Accepted, "gone"))
		a.stored()
		want := a.all()
		b.has(want)
		for _, m := range []*master{a, b} {
			m.sync()
			acked, ok := m.store.Known("records")
			v, err := m.records.Vector()
			if n, ferr := m.records.ForgetDeleted("key", time.Now().Add(time.Hour), acked, v); !ok || err != nil || ferr != nil || n == 0 {
				t.Fatalf("%s forgot %d: %v, %v", m.id, n, err, ferr)
			}
		}
		for _, back := range []bool{false, true} {
			if back {
				b.stop()
				a.stop()
				a.reset(backup)
			}
			b.replace(func() { b.dir = t.TempDir(); b.must(os.CopyFS(b.dir, os.DirFS(old))) })
			if b.all()["key gone"] == "" {
				t.Fatal("this is no old disk")
			}
			b.start()
			if back { // the master with the old disk is first
				eventually.Nil(t, soon, "the old disk and the server are level", func() error {
					if st := b.store.Status(); st.Since.IsZero() || st.Waiting+st.Lacking > 0 {
						return fmt.Errorf("%+v", st)
					}
					return nil
				})
				a.start()
			}
			b.has(want)
			a.stored()
			b.stored()
			a.has(want)
		}
	})
}

// TestDamagedRows: rows that were damaged, moved or written by others are named and delay nothing else.
// A master that has their content writes them again.
func TestDamagedRows(t *testing.T) {
	onEach(t, func(t *testing.T, srv *server) {
		a, b := newMaster(t, srv, "a"), newMaster(t, srv, "b")
		a.start()
		var ids []string
		for i := range 200 {
			ids = append(ids, fmt.Sprintf("m%03d", i))
		}
		a.pend(ids...)
		a.run(jid(1), "m000", "m001")
		a.stored()
		want := a.all()
		a.stop()
		entries := a.rowsOf("e/records/")
		if len(entries) != 200 {
			t.Fatalf("%d entries", len(entries))
		}
		a.write(rows.Change{Name: entries[3].Name, Value: entries[4].Value}, rows.Change{Name: entries[70].Name, Value: []byte("DROP")},
			rows.Change{Name: entries[150].Name, Value: []byte{}}, rows.Change{Name: strings.TrimSuffix(entries[9].Name, "a") + "/../x", Value: []byte("x")},
			rows.Change{Name: "v/records/unknown", Value: []byte("\xff\xff\xff\xff\xff\xff\xff\xff")}, rows.Change{Name: "g/records", Value: []byte("x")})
		b.start()
		eventually.Nil(t, soon, "all other keys are there", func() error {
			if n := len(b.all()); n < 197 {
				return fmt.Errorf("%d things", n)
			}
			return nil
		})
		if !strings.Contains(b.logged(), entries[3].Name) {
			t.Errorf("the row is not named: %s", b.logged())
		}
		if st := b.store.Status(); st.Unreadable < 3 {
			t.Errorf("%+v", st)
		}
		b.stop() // this master tries again after a while, the new one at once
		a.start()
		eventually.Nil(t, soon, "the rows are written again", func() error {
			for _, i := range []int{3, 70, 150} {
				got, err := a.store.rows.Get(context.Background(), entries[i].Name)
				if err != nil {
					return err
				}
				if _, _, err := a.store.seal.open(entries[i].Name, got[entries[i].Name]); err != nil {
					return fmt.Errorf("%s: %w", entries[i].Name, err)
				}
			}
			return nil
		})
		b.start()
		b.has(want)
	})
}

// TestOtherSecret: masters with another secret have nothing in common.
func TestOtherSecret(t *testing.T) {
	t.Parallel()
	one, err := newSealer(secret, "main")
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range [][2]string{{secret + "00", "main"}, {secret, "other"}} {
		two, err := newSealer(other[0], other[1])
		if err != nil {
			t.Fatal(err)
		}
		row, err := one.seal("e/x", 0, []byte("content"))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := two.open("e/x", row); err == nil || one.id == two.id {
			t.Errorf("%v: %v", other, err)
		}
		if _, _, err := one.open("e/y", row); err == nil {
			t.Error("a row can be moved")
		}
		if row[1] ^= flagTombstone; true {
			if _, _, err := one.open("e/x", row); err == nil {
				t.Error("flags can be changed")
			}
		}
	}
	for _, weak := range []string{"", "secret", strings.Repeat("x", 64), secret[1:]} {
		if CheckSecret(weak) == nil {
			t.Errorf("%q is accepted", weak)
		}
	}
}

// FuzzRow: no row causes a panic or has more content than allowed.
func FuzzRow(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	s, err := newSealer(secret, "main")
	if err != nil {
		f.Fatal(err)
	}
	for _, content := range [][]byte{nil, []byte("content"), bytes.Repeat([]byte("x"), 2*packFrom)} {
		b, err := s.seal("e/records/a/0000000000000001", 0, content)
		if err != nil {
			f.Fatal(err)
		}
		f.Add("e/records/a/0000000000000001", b)
	}
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		if _, content, err := s.open(name, b); err == nil && len(content) > maxContent {
			t.Fatalf("%d bytes", len(content))
		}
		if _, n, ok := partNames(name, b); ok && (n <= 0 || n*maxPart > maxContent+maxPart) {
			t.Fatalf("%d parts", n)
		}
		if origin, word := last(name, "e/records/"); origin != "" {
			if n, ok := number(word); ok && digits(n) != strings.ToLower(word) {
				t.Fatalf("%q is %d", word, n)
			}
		}
	})
}

var _ oplog.Lister = (*job.Stream)(nil)
