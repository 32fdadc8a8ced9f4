package jobcache

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// recorded is the packed data of a stock master (3007) with one minion, three jobs and a mine: the
// directories pki and cache. BRINE_RECORD=1 with BRINE_STOCK_SALT records it again.
const recorded = "testdata/stock-master.tar.gz"

// record runs a master and a stock minion and packs the master's data.
func record(t *testing.T) {
	t.Helper()
	m := daemontest.NewMaster(t, daemontest.Stock, "stock", "127.0.78.11", "auto_accept: true\n").Start()
	daemontest.NewMinion(t, daemontest.Stock, "old1", []string{m.Host}, "mine_functions:\n  test.ping: []\n").Start()
	eventually.Nil(t, waitLimit, "it answers", func() error { return m.PingAll(daemontest.Stock, "old1") })
	for _, call := range [][]string{{"test.echo", "héllo"}, {"saltutil.refresh_pillar"}, {"mine.update"}} {
		if out, errs, code := m.Run(daemontest.Stock, "salt", append([]string{"-t", "60", "old1"}, call...)...); code != 0 {
			t.Fatalf("%d: %s%s", code, out, errs)
		}
	}
	dir := t.TempDir()
	for from, to := range map[string]string{m.Path("etc/salt/pki/master"): "pki", m.Path("var/cache/salt/master"): "cache"} {
		if out, err := exec.Command("cp", "-a", from, filepath.Join(dir, to)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// Most grains are about the machine and useless.
	c := cache.New(filepath.Join(dir, "cache"), cache.Options{MinionDataCache: true}, slog.Default())
	known := c.MinionData("old1")
	few := value.NewDict(8)
	for _, g := range []string{"id", "kernel", "os", "os_family", "saltversion", "saltversioninfo", "master", "pythonversion"} {
		few.Set(g, known.Grains.At(g))
	}
	if err := c.StoreMinion("old1", cache.Minion{Grains: few, Pillar: known.Pillar}); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("tar", "-C", dir, "--owner=0", "--group=0", "-czf", recorded, "pki", "cache/jobs", "cache/minions").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

type counts struct {
	Found, Copied, Same, Kept, Failed, Expired, Verified int
	ToCopy                                               int `json:"to_copy"`
	Notes                                                []string
}

// migrate runs brine migrate at a master.
func migrate(t *testing.T, m *daemontest.Node, wantCode int, args ...string) map[string]counts {
	t.Helper()
	out, stderr, code := m.Run(daemontest.Brine, "migrate", append(args, "--out=json")...)
	got := map[string]counts{}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != wantCode || code == 0 && stderr != "" {
		t.Fatalf("migrate %v: %d, not %d: %v\n%s%s", args, code, wantCode, err, out, stderr)
	}
	return got
}

// TestMigrateFromStock: running masters import the data of a stock master: keys, the key pair, jobs
// into the master's database and on to a server, minion data into a server.
func TestMigrateFromStock(t *testing.T) {
	t.Parallel()
	if os.Getenv("BRINE_RECORD") == "1" {
		record(t)
	}
	old := t.TempDir()
	if out, err := exec.Command("tar", "-C", old, "-xzf", recorded).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	m := daemontest.NewMaster(t, daemontest.Brine, "new", "127.0.78.12",
		fmt.Sprintf("keep_jobs_seconds: 0\nrunner_returns: false\ncache.redis.host: %[1]s\ncache.redis.port: %[2]d\nredis.host: %[1]s\nredis.port: "+
			"%[2]d\nredis.db: 2\n", s.Host, s.Port)).Start()

	// The source's jobs are Salt's files; the running master imports them.
	files := "local_cache:" + old + "/cache"
	dry := migrate(t, m, 0, "jobs", "--from", files, "--to", "brine", "--dry-run")["jobs"]
	if dry.ToCopy < 3 || dry.Found != dry.ToCopy || dry.Verified != 0 {
		t.Fatalf("%+v", dry)
	}
	if out := salted(t, m, "salt-run", "jobs.list_jobs", "--out=json"); strings.Contains(out, "test.echo") {
		t.Error("a dry run has copied", out)
	}
	for i, want := range []counts{{Copied: dry.ToCopy}, {Same: dry.ToCopy}} {
		want.Found, want.Verified = dry.Found, dry.Found
		if got := migrate(t, m, 0, "jobs", "--from", files, "--to", "brine")["jobs"]; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("run %d: %+v", i, got)
		}
	}
	out := salted(t, m, "salt-run", "jobs.list_jobs", "search_function=test.echo", "--out=json")
	jobs := map[string]map[string]any{}
	if err := json.Unmarshal([]byte(out), &jobs); err != nil || len(jobs) != 1 {
		t.Fatal(out, err)
	}
	for jid := range jobs {
		if out := salted(t, m, "salt-run", "jobs.lookup_jid", jid, "--out=json", "--out-indent=-1"); strings.TrimSpace(out) != `{"old1": "h\u00e9llo"}` &&
			strings.TrimSpace(out) != `{"old1": "héllo"}` {
			t.Error(out)
		}
	}
	// From the running master's database to a server, and from there to files.
	if got := migrate(t, m, 0, "jobs", "--from", "brine", "--to", "redis")["jobs"]; got.Copied != dry.Found || got.Verified != dry.Found {
		t.Errorf("%+v", got)
	}
	if out := salted(t, m, "salt-run", "jobs.list_jobs", "ext_source=redis", "--out=json"); !strings.Contains(out, "test.echo") {
		t.Error(out)
	}
	if got := migrate(t, m, 0, "jobs", "--from", "redis", "--to", "local_cache:"+old+"/again")["jobs"]; got.Copied != dry.Found || got.Verified != dry.Found {
		t.Errorf("%+v", got)
	}
	if left, _ := filepath.Glob(m.Path("var/cache/salt/master/brine/snapshot/*")); len(left) > 0 {
		t.Error("snapshots are left:", left)
	}

	// Minion data.
	if got := migrate(t, m, 0, "cache", "--from", "localfs:"+old+"/cache", "--to", "redis")["cache"]; got.Copied != 2 || got.Verified != 2 {
		t.Errorf("%+v", got)
	}
	if got := migrate(t, m, 0, "cache", "--from", "redis", "--to", "localfs")["cache"]; got.Copied != 2 || got.Verified != 2 {
		t.Errorf("%+v", got)
	}

	// Keys: they do not replace keys that the target has.
	pki := m.Path("etc/salt/pki/master")
	got := migrate(t, m, 0, "keys", "--from", old+"/pki", "--to", pki, "--key-pair", "cluster")
	if k := got["keys"]; k.Copied != 1 || k.Verified != 1 || got["key_pair"].Copied != 1 {
		t.Errorf("%+v", got)
	}
	a, err1 := os.ReadFile(old + "/pki/master.pem")
	b, err2 := os.ReadFile(pki + "/cluster.pem")
	if err1 != nil || err2 != nil || string(a) != string(b) {
		t.Error("another key pair:", err1, err2)
	}
	if info, err := os.Stat(pki + "/cluster.pem"); err != nil || info.Mode().Perm() != 0o400 {
		t.Error(info, err)
	}
	if out := salted(t, m, "salt-run", "cache.grains", "old1", "--out=json"); !strings.Contains(out, "saltversion") {
		t.Error("the grains are not known:", out)
	}
	// A key that the operator has rejected here stays rejected.
	salted(t, m, "salt-key", "-y", "-r", "old1", "--include-accepted")
	if k := migrate(t, m, 0, "keys", "--from", old+"/pki", "--to", pki)["keys"]; k.Kept != 1 || k.Copied != 0 || len(k.Notes) != 1 {
		t.Errorf("%+v", k)
	}

	// The server stops.
	s.Stop()
	if got := migrate(t, m, 69, "cache", "--from", "localfs:"+old+"/cache", "--to", "redis"); got["cache"].Verified != 0 {
		t.Errorf("%+v", got)
	}
}

// TestMigrateRefuses checks the errors for wrong command lines.
func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	m := daemontest.NewMaster(t, daemontest.Brine, "none", "127.0.78.13", "")
	for _, c := range []struct {
		code int
		text string
		args []string
	}{
		{64, "name what to copy", nil},
		{64, "unknown kind minions of data", []string{"minions", "--to", "x"}},
		{64, "name the target with --to or --to-config", []string{"jobs"}},
		{64, "--bank is for cache", []string{"jobs", "--to", "redis", "--bank", "x"}},
		{64, "one kind of data at a time", []string{"jobs", "keys", "--to", "redis"}},
		{64, "--key-pair is for keys", []string{"keys", "--to", "/x", "--key-pair", "../x"}},
		{1, "unknown place for jobs \"mongo\"", []string{"jobs", "--to", "mongo"}},
		{1, "source and target are both brine", []string{"jobs", "--to", "brine"}},
		{1, "takes no directory", []string{"cache", "--to", "redis:/x"}},
		{1, "is not a directory of keys", []string{"keys", "--from", "/nonexistent", "--to", "/x"}},
	} {
		out, stderr, code := m.Run(daemontest.Brine, "migrate", append(c.args, "--out=json")...)
		if code != c.code || !strings.Contains(stderr, c.text) {
			t.Errorf("migrate %v: %d, %s%s", c.args, code, out, stderr)
		}
	}
	// The error comes before anything is created.
	if _, err := os.Stat("/x"); err == nil {
		t.Error("/x was made")
	}
}

// TestStartOnSaltsCachedir: a master that starts on the cachedir of a stock master shows its jobs,
// also those added before the next start.
func TestStartOnSaltsCachedir(t *testing.T) {
	t.Parallel()
	old := t.TempDir()
	if out, err := exec.Command("tar", "-C", old, "-xzf", recorded).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The recording is older than keep_jobs.
	m := daemontest.NewMaster(t, daemontest.Brine, "next", "127.0.78.13", "keep_jobs_seconds: 0\n")
	jobs := m.Path("var/cache/salt/master/jobs")
	echo := ""
	give := func(echoes bool) {
		t.Helper()
		all, err := filepath.Glob(old + "/cache/jobs/*/*")
		if err != nil || len(all) < 3 {
			t.Fatal(all, err)
		}
		for _, dir := range all {
			b, err := os.ReadFile(dir + "/.load.p")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(b), "test.echo") != echoes {
				continue
			}
			to := filepath.Join(jobs, filepath.Base(filepath.Dir(dir)))
			err = os.MkdirAll(to, 0o755)
			if out, err2 := exec.Command("cp", "-r", dir, to).CombinedOutput(); err != nil || err2 != nil {
				t.Fatalf("%v %v: %s", err, err2, out)
			}
			if b, err := os.ReadFile(dir + "/jid"); err == nil && echoes {
				echo = string(b)
			}
		}
	}
	shown := func(want string) {
		t.Helper()
		eventually.Nil(t, waitLimit, want+" is listed", func() error {
			out := salted(t, m, "salt-run", "jobs.list_jobs", "--out=json")
			if !strings.Contains(out, want) {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
	give(false)
	m.Start()
	shown("mine.update")
	m.Signal(syscall.SIGTERM)
	m.Wait(waitLimit)
	give(true)
	m.Start()
	shown("test.echo")
	if out := salted(t, m, "salt-run", "jobs.lookup_jid", echo, "--out=json"); !strings.Contains(out, "old1") || !strings.Contains(out, "llo") {
		t.Error(out)
	}
	if out := salted(t, m, "salt-run", "jobs.list_jobs", "search_target=old1", "--out=json"); !strings.Contains(out, echo) {
		t.Error(out)
	}
}
