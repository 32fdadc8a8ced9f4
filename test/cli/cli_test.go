// Package cli runs the command line programs against real daemons, and compares with the recordings
// of Salt's programs in testdata/golden/cli. Output that needs no daemon is compared next to each
// program; docs/recordings.md lists the recordings that cannot be compared yet.
package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

const recordings = "../../testdata/golden/cli"

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "6") // most of these tests wait
	daemontest.Main(m)
}

// fleet starts a master with the minions alpha and beta, and the key of gamma,
// which is down.
func fleet(t *testing.T, kinds ...daemontest.Kind) (master, alpha *daemontest.Node) {
	t.Helper()
	host := daemontest.Host()
	master = daemontest.NewMaster(t, daemontest.Brine, "master", host, "auto_accept: true\ntimeout: 2\ngather_job_timeout: 1\n").Start()
	for i, id := range []string{"alpha", "beta"} {
		role := []string{"web", "db"}[i]
		n := daemontest.NewMinion(t, kinds[i], id, []string{host}, "grains: {role: "+role+", deployed: {env: lab, rack: 7}}\n").Start()
		if i == 0 {
			alpha = n
		}
	}
	eventually.Nil(t, 60*time.Second, "the minions answer", func() error { return master.PingAll(daemontest.Brine, "alpha", "beta") })
	return master, alpha
}

// Parts of the output that vary from run to run.
var (
	pid     = regexp.MustCompile(`(pid:\n +)\d+`)
	version = regexp.MustCompile(`3007\.10\S*( \(.*\))?`)
	trace   = regexp.MustCompile(`(?s)exception: Traceback \(most recent call last\):\n.*…\n.*?(\w+): `)
	usage   = regexp.MustCompile(`(?s)(Passed invalid arguments to [^\n]*\n).*`)
	logLine = regexp.MustCompile(`(?m)^\[(ERROR|INFO) *\] .*\n`)
	jid     = regexp.MustCompile(`20\d{18}`)
	similar = regexp.MustCompile(`(?m)^Brine minions have no function .*\n`) // a hint that Salt does not print
)

// mask replaces parts that vary, and the documentation that follows wrong arguments. Salt's
// tracebacks are replaced by their last line, as in our messages.
func mask(s string) string {
	s = pid.ReplaceAllString(s, "${1}PID")
	s = trace.ReplaceAllString(s, "exception: $1: ")
	s = usage.ReplaceAllString(s, "$1")
	s = jid.ReplaceAllString(s, "JID")
	return version.ReplaceAllString(s, "VERSION")
}

type result struct {
	code           int
	stdout, stderr string
}

// replay runs a recorded command line in the directory of a node.
func replay(t *testing.T, n *daemontest.Node, program, name string, fix *strings.Replacer) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		rec := clienttest.Read(t, recordings, name)
		if name == "call_cmd" { // the only one with double quotes
			rec.Args = []string{"cmd.run", `printf 'a\nb\n'`}
		}
		for i := range rec.Args {
			rec.Args[i] = fix.Replace(rec.Args[i])
		}
		stdout, stderr, code := n.Run(daemontest.Brine, program, rec.Args...)
		got := result{code, mask(stdout), similar.ReplaceAllString(logLine.ReplaceAllString(stderr, ""), "")}
		want := result{rec.Exit, fix.Replace(mask(rec.Stdout)), logLine.ReplaceAllString(rec.Stderr, "")}
		if got != want {
			t.Errorf("%s %q\ngot  %+v\nwant %+v", program, rec.Args, got, want)
		}
	})
}

func TestRecordings(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	work := t.TempDir()
	if err := os.Mkdir(work+"/golden-demo", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(work+"/cpfile", []byte("hello\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	fix := strings.NewReplacer("/tmp/", work+"/")
	for _, name := range []string{
		"err_bad_kwarg", "err_extra_args", "err_missing_arg", "err_unknown_fun", "err_unknown_fun_similar",
		"cmd_run_all", "cmd_run_empty", "cmd_run_fail", "err_command_exec", "err_exception", "find_job", "grains_item", "grains_items_part_yaml",
		"is_running", "kill_job_none", "refresh_pillar", "sync_all", "sys_argspec", "test_version", "version_salt",
	} {
		replay(t, master, "salt", name, fix)
	}
	for _, name := range []string{"jobs_active_none"} {
		replay(t, master, "salt-run", name, fix)
	}
	for _, name := range []string{"cp_file", "cp_chunked", "cp_missing", "cp_nomatch"} {
		replay(t, master, "salt-cp", name, fix)
	}
	for _, name := range []string{
		"call_cmd", "call_cmd_exec_err", "call_color", "call_id", "call_local", "call_metadata", "call_nvo", "call_progress_log", "call_retcode",
		"call_test_ping", "call_unknown",
	} {
		replay(t, alpha, "salt-call", name, fix)
	}
	if b, err := os.ReadFile(work + "/golden-demo/cpfile2"); string(b) != "hello\n" {
		t.Errorf("the copy holds %q, %v", b, err)
	}
	t.Run("test_ping_subset", func(t *testing.T) {
		stdout, _, code := master.Run(daemontest.Brine, "salt", clienttest.Read(t, recordings, "test_ping_subset").Args...)
		if code != 0 || stdout != "alpha:\n    True\n" && stdout != "beta:\n    True\n" {
			t.Errorf("code %d, %q", code, stdout)
		}
	})
}

// TestCallIsAJob: the result of salt-call is among the master's jobs, unless an option prevents
// sending it.
func TestCallIsAJob(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	for i, args := range [][]string{
		{"--set-metadata={origin: test}", "test.echo", "one"}, {"--no-return-event", "test.echo", "two"},
		{"--master=" + master.Host, "-t", "10", "test.echo", "three"},
	} {
		if stdout, stderr, code := alpha.Run(daemontest.Brine, "salt-call", args...); code != 0 || stderr != "" {
			t.Fatalf("%d: code %d, %s%s", i, code, stdout, stderr)
		}
	}
	eventually.Nil(t, time.Minute, "the master knows the jobs", func() error {
		stdout, stderr, _ := master.Run(daemontest.Brine, "salt-run", "jobs.list_jobs", "--out=json")
		if strings.Count(stdout, "test.echo") != 2 || !strings.Contains(stdout, `"origin": "test"`) {
			return fmt.Errorf("jobs: %s%s", stdout, stderr)
		}
		return nil
	})
}

// TestLocalMaster: a minion whose directory contains the options of the master on the same machine
// can command that master.
func TestLocalMaster(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	alpha.Write("master", master.Read("master"))
	for _, c := range []struct{ args, want string }{
		{`alpha saltutil.runner test.arg arg=[1,b] kwarg={c:\ d} --out=json --static`, `"args": [1, "b"], "kwargs": {"c": "d"}`},
		{`alpha saltutil.runner no.such --out=json --static`, `"alpha": "'no.such' is not available."`},
		{`alpha saltutil.cmd beta test.echo arg=[hi] --out=json --static`, `"beta": {"ret": "hi", "retcode": 0, "jid": "JID"}`},
		{`alpha saltutil.cmd * test.echo arg=[hi] batch=1 --out=json --static`, `"beta": {"out": "highstate", "ret": "hi"}`},
		{`alpha saltutil.cmd nobody test.ping batch=1 --out=json --static`, `"alpha": {}`},
		{`alpha saltutil.cmd alpha,beta test.echo arg=[hi] tgt_type=list subset=2 --out=json --static`, `"beta": {"ret": "hi", "retcode": 0, "jid": "JID"}`},
		{`alpha saltutil.cmd * no.such subset=1 --out=json --static`, `"alpha": {}`},
		{`alpha saltutil.wheel key.list accepted --out=json --static`, `"return": {"minions": ["alpha", "beta"]}, "success": true`},
		{`alpha saltutil.wheel key.name_match match=bet* --out=json --static`, `"return": {"minions": ["beta"]}, "success": true`},
		{`alpha saltutil.cmd nobody test.ping --out=json --static`, `"alpha": {}`},
	} {
		args := strings.Fields(strings.ReplaceAll(c.args, `\ `, "\x00"))
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "\x00", " ")
		}
		stdout, stderr, code := master.Run(daemontest.Brine, "salt", args...)
		if got := strings.Join(strings.Fields(mask(stdout)), " "); code != 0 ||
			!strings.Contains(strings.NewReplacer("[ ", "[", " ]", "]", "{ ", "{", " }", "}").Replace(got), c.want) {
			t.Errorf("%s: code %d\n%s%s", c.args, code, got, stderr)
		}
	}
}

// TestCopyToStockMinions: files of any kind reach Brine and stock minions unchanged.
func TestCopyToStockMinions(t *testing.T) {
	daemontest.StockTree(t)
	master, _ := fleet(t, daemontest.Brine, daemontest.Stock)
	dir := t.TempDir()
	binary := make([]byte, 300_000)
	for i := range binary {
		binary[i] = byte(i * i >> 3)
	}
	if err := os.MkdirAll(dir+"/src/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"src/binary": binary, "src/run": []byte("#!/bin/sh\n"), "text": []byte("ä text\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args, file string
		want       []byte
	}{
		{"-C DIR/src DIR/TO", "src/binary", binary},
		{"-C -n DIR/src DIR/TO", "src/run", []byte("#!/bin/sh\n")},
		{"DIR/text DIR/TO", "TO", []byte("ä text\n")},
	} {
		for _, id := range []string{"alpha", "beta"} {
			to := fmt.Sprintf("%s-%d-%d", id, len(c.args), len(c.file))
			args := strings.Fields(strings.NewReplacer("DIR", dir, "TO", to).Replace(c.args))
			flags, paths := args[:len(args)-2], args[len(args)-2:]
			stdout, stderr, code := master.Run(daemontest.Brine, "salt-cp", append(append([]string{"-L"}, flags...), id, paths[0], paths[1])...)
			if code != 0 || stderr != "" || !strings.HasPrefix(stdout, id+":\n") || !strings.Contains(stdout, "True") || strings.Contains(stdout, "False") {
				t.Errorf("%s to %s: code %d\n%s%s", c.args, id, code, stdout, stderr)
				continue
			}
			file := filepath.Join(dir, to, c.file)
			if c.file == "TO" {
				file = filepath.Join(dir, to)
			}
			got, err := os.ReadFile(file)
			st, _ := os.Stat(file)
			if string(got) != string(c.want) || strings.HasPrefix(c.args, "-C") && st.Mode().Perm() != 0o755 {
				t.Errorf("%s to %s: %d bytes, %v, %v", c.args, id, len(got), st, err)
			}
		}
	}
}

// TestStartup bounds the memory that package initialization allocates, which costs every command. A
// new table should use sync.Once.
func TestStartup(t *testing.T) {
	c := daemontest.Brine.Command(t.Context(), t, "salt", "--version")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	total, packages := 0, 0
	for _, m := range regexp.MustCompile(`(?m)^init .* (\d+) bytes, \d+ allocs$`).FindAllSubmatch(out, -1) {
		n, _ := strconv.Atoi(string(m[1]))
		total += n
		packages++
	}
	if packages < 20 {
		t.Fatalf("%d packages in %s", packages, out)
	}
	if total > 1<<20 {
		t.Errorf("the packages take %d bytes before main:\n%s", total, out)
	}
}
