package salt

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

const recordings = "../../../testdata/golden/cli"

// functions are real execution modules for the minions of the tests.
var functions = sync.OnceValue(func() *fn.Registry {
	r, err := fn.NewRegistry(nil, append(core.Modules(), fn.Module{Name: "cmd", Doc: "d", Funcs: []fn.Func{
		fn.Of("run", func(_ context.Context, c *fn.Call, a struct {
			Cmd string `salt:"cmd"`
		}) (string, error) {
			if a.Cmd == "uptime" {
				return " 04:11:11 up 33 min,  0 user,  load average: 17.40, 12.88, 6.69", nil
			}
			if a.Cmd == "exit 3" {
				c.SetRetcode(3)
			}
			return "", nil
		}, "Run."),
		fn.Of("retcode", func(_ context.Context, c *fn.Call, _ struct {
			Cmd string `salt:"cmd"`
		}) (int, error) {
			c.SetRetcode(3)
			return 3, nil
		}, "Run."),
	}})...)
	if err != nil {
		panic(err)
	}
	return r
})

func minionRun(id string) func(string, []any, *value.Dict) clienttest.Return {
	return func(fun string, args []any, pub *value.Dict) clienttest.Return {
		c := &fn.Call{ID: id, Log: slog.New(slog.DiscardHandler)}
		pub.Set("user", "root") // as in the recordings
		o := functions().Run(context.Background(), c, fn.Job{Fun: fun, Arg: args, Pub: pub})
		return clienttest.Return{Value: o.Return, Retcode: int64(o.Retcode), Out: o.Out}
	}
}

// fleet returns alpha and beta, reachable, and gamma, unreachable, as in the recordings.
func fleet() []clienttest.Minion {
	grains := func(role string) *value.Dict {
		return value.DictOf("role", role, "os", "Debian", "deployed", value.DictOf("env", "live", "rack", value.ListOf(7, 8)), "ipv4",
			value.ListOf("127.0.0.1"))
	}
	pillar := value.DictOf("motd", "welcome", "ports", value.ListOf(80, 443), "users", value.DictOf("alice", value.DictOf("uid", 1001)))
	return []clienttest.Minion{
		{ID: "alpha", Grains: grains("web"), Pillar: pillar, Run: minionRun("alpha")},
		{ID: "beta", Grains: grains("db"), Pillar: pillar, Run: minionRun("beta")},
		{ID: "gamma"},
	}
}

var groups = map[string]any{"nodegroups": value.DictOf("web", "L@alpha,beta", "all", "N@web or G@os:Debian")}

// result is the outcome of a program.
type result struct {
	code           int
	stdout, stderr string
}

func runSalt(ctx context.Context, m *clienttest.Master, stdin string, args ...string) result {
	env, stdout, stderr := testEnv(m, stdin)
	code := run(ctx, env, args)
	return result{code, stdout.String(), stderr.String()}
}

// runProgram is runSalt with the peers of p.
func runProgram(t *testing.T, p *program, m *clienttest.Master, args ...string) result {
	env, stdout, stderr := testEnv(m, "")
	code := (&program{peers: p.peers}).run(t.Context(), env, args)
	return result{code, stdout.String(), stderr.String()}
}

func testEnv(m *clienttest.Master, stdin string) (env *frame.Env, stdout, stderr *bytes.Buffer) {
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	return &frame.Env{
		Stdin: strings.NewReader(stdin), Stdout: stdout, Stderr: stderr,
		Getenv: func(name string) string {
			if name == "SALT_CONFIG_DIR" && m != nil {
				return m.Dir
			}
			return ""
		},
		IsTerminal: func(any) bool { return false },
	}, stdout, stderr
}

var jidPattern = regexp.MustCompile(`2026\d{16}`)

// TestRecordings compares the program with recordings of Salt's.
func TestRecordings(t *testing.T) {
	for _, name := range []string{
		"test_ping_all", "test_ping_async", "test_ping_color", "test_ping_compact_unknown_out", "test_ping_hide_timeout", "test_ping_json",
		"test_ping_json_indent_neg", "test_ping_json_noreturn", "test_ping_json_static", "test_ping_list_summary", "test_ping_nomatch",
		"test_ping_nomatch_list", "test_ping_noreturn_color", "test_ping_nvo", "test_ping_one", "test_ping_pprint", "test_ping_quiet",
		"test_ping_raw", "test_ping_show_jid", "test_ping_static", "test_ping_summary_fail",
		"test_ping_summary_verbose", "test_ping_txt", "test_ping_verbose", "test_ping_yaml",
		"target_compound", "target_compound_nodegroup", "target_compound_not", "target_compound_paren",
		"target_grain", "target_grain_greedy", "target_grain_list_index", "target_grain_nested", "target_grain_nomatch", "target_grain_pcre",
		"target_ipcidr", "target_ipcidr_compound", "target_nodegroup", "target_nodegroup_nested", "target_nodegroup_unknown", "target_pcre",
		"target_pillar", "target_pillar_list", "target_pillar_pcre", "target_range", "target_two_options",
		"multi_fun", "multi_fun_err", "multi_fun_sep", "batch_1", "batch_failhard", "batch_json", "batch_pct", "batch_safe_limit", "batch_wait",
		"args_stdin", "metadata", "option_bad_out", "preview_target", "eauth_bad_password", "eauth_missing_user", "ping_bool_txt_false",
		"test_arg_clean", "test_arg_no_parse", "test_arg_types", "sys_doc_unknown", "err_false_ret", "cmd_retcode", "out_file",
	} {
		t.Run(name, func(t *testing.T) { replay(t, name) })
	}
}

// TestMalformedTarget: a target that cannot be parsed is an error with the reason, and no command
// is sent. Salt prints "No minions matched".
func TestMalformedTarget(t *testing.T) {
	for typ, target := range map[string]string{"-C": "G@os:Debian and (web*", "-E": "[", "-S": "10.0.0.0/99"} {
		m := clienttest.Start(t, clienttest.Options{Minions: fleet(), Config: groups})
		got := runSalt(t.Context(), m, "", typ, target, "test.ping")
		if got.code != frame.ExitNoReturn || got.stdout != "" || !strings.HasPrefix(got.stderr, "ERROR: the target "+target+" of type ") ||
			!strings.HasSuffix(got.stderr, ". No command was sent\n") || len(m.Loads()) > 0 {
			t.Errorf("%s %s: %d %q %q", typ, target, got.code, got.stdout, got.stderr)
		}
	}
}

// TestPendingKeys: if no minion matches, but the target may match a pending key, the command to
// accept that key is shown.
func TestPendingKeys(t *testing.T) {
	for target, want := range map[string]string{
		"new*":  "The keys of minions are pending that this target may match. Accept them with: salt-key -a 'new 2'; salt-key -a new1\n",
		"other": "", "alpha": "",
	} {
		m := clienttest.Start(t, clienttest.Options{Minions: fleet(), Config: groups})
		for _, id := range []string{"new1", "new 2"} {
			path := filepath.Join(m.Dir, "pki", "minions_pre", id)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("key"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got := runSalt(t.Context(), m, "", target, "test.ping")
		if strings.Contains(got.stderr, "pending") != (want != "") || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d %q %q", target, got.code, got.stdout, got.stderr)
		}
	}
}

func replay(t *testing.T, name string) {
	t.Parallel()
	rec := clienttest.Read(t, recordings, name)
	text, err := os.ReadFile(filepath.Join(recordings, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	if first := regexp.MustCompile(`Executing run on \['(\w+)'\]`).FindStringSubmatch(rec.Stdout); first != nil && first[1] == "beta" {
		// Salt orders minions arbitrarily, Brine sorts them by id.
		swap := strings.NewReplacer("alpha", "beta", "beta", "alpha")
		rec.Stdout, rec.Stderr = swap.Replace(rec.Stdout), swap.Replace(rec.Stderr)
	}
	// Brine masters support other authentication systems than stock masters.
	rec.Stdout = strings.Replace(rec.Stdout, "auto, file, keystone, ldap, pam, pki, rest, sharedsecret, yubico",
		"auto, file, ldap, oidc, pam, pki, rest, sharedsecret", 1)
	minions := fleet()
	if strings.Contains(string(text), "gamma key removed") || strings.HasPrefix(name, "target_nodegroup") || name == "target_compound_not" ||
		name == "target_compound_paren" {
		minions = minions[:2]
	}
	order := func(id string) int {
		for _, s := range []string{"['" + id, "\n" + id + ":", "\"" + id, id + ":", "'" + id} {
			if i := strings.Index("\n"+rec.Stdout, s); i >= 0 {
				return i
			}
		}
		return len(rec.Stdout)
	}
	slices.SortStableFunc(minions, func(a, b clienttest.Minion) int { return order(a.ID) - order(b.ID) })
	jids := jidPattern.FindAllString(rec.Stdout, -1)
	if strings.HasPrefix(name, "batch") {
		jids = append([]string{"20261121000000000000"}, jids...) // of the ping
	}
	m := clienttest.Start(t, clienttest.Options{Minions: minions, Config: groups, JIDs: jids})
	args, stdin := rec.Args, rec.Stdin
	fix := strings.NewReplacer("/srv/recording/m/etc", m.Dir, "/tmp/golden-demo/o.json", m.Dir+"/o.json")
	for i := range args {
		args[i] = fix.Replace(args[i])
	}
	got := runSalt(t.Context(), m, fix.Replace(stdin), args...)
	want := fix.Replace(rec.Stdout)
	if got.code != rec.Exit || got.stdout != want || got.stderr != rec.Stderr {
		t.Errorf("salt %q\ngot  %d\n%s\nstderr:\n%s\nwant %d\n%s\nstderr:\n%s", args, got.code, got.stdout, got.stderr, rec.Exit, want, rec.Stderr)
	}
	if name == "out_file" {
		if b, err := os.ReadFile(m.Dir + "/o.json"); err != nil || string(b) != "{\n    \"alpha\": true\n}\n" {
			t.Errorf("the file holds %q, %v", b, err)
		}
	}
}

func TestSubset(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Minions: fleet()})
	for _, c := range []struct {
		args string
		want []string
	}{
		{"--subset=1 -L alpha,beta test.ping", []string{"alpha:\n    True\n", "beta:\n    True\n"}},
		{"--subset=5 --static -L alpha,beta test.ping", []string{"alpha:\n    True\nbeta:\n    True\n"}},
		{"--subset=1 -L alpha,beta no.such", []string{"No minions matched the target. No command was sent, no jid was assigned.\n"}},
	} {
		got := runSalt(t.Context(), m, "", strings.Fields(c.args)...)
		if !slices.Contains(c.want, got.stdout) {
			t.Errorf("%s: got %+v", c.args, got)
		}
	}
}

func TestMasterDown(t *testing.T) {
	rec := clienttest.Read(t, recordings, "wrong_config_dir")
	if _, err := os.Stat("/var/run/salt/master/master_event_pub.ipc"); err == nil {
		t.Skip("a master runs on this machine")
	}
	got := runSalt(t.Context(), nil, "", rec.Args...)
	if got != (result{rec.Exit, rec.Stdout, rec.Stderr}) {
		t.Errorf("got %+v, want %+v", got, rec)
	}
}

func TestInterrupt(t *testing.T) {
	rec := clienttest.Read(t, recordings, "tty_ctrl_c")
	m := clienttest.Start(t, clienttest.Options{Minions: fleet(), JIDs: jidPattern.FindAllString(rec.Stdout, 1), Config: map[string]any{"timeout": 30}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for sub := m.Bus.Subscribe(10, "salt/job/"); ; {
			<-sub.C
			time.AfterFunc(100*time.Millisecond, cancel)
			sub.Close()
			return
		}
	}()
	got := runSalt(ctx, m, "", rec.Args...)
	if want := (result{0, "", rec.Stdout}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestMasterDies(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Minions: fleet(), Config: map[string]any{"timeout": 60}})
	sub := m.Bus.Subscribe(10, "salt/job/")
	go func() {
		<-sub.C
		sub.Close()
		time.Sleep(50 * time.Millisecond) // so that the reply is sent first
		m.Stop()
	}()
	got := runSalt(t.Context(), m, "", "gamma", "test.ping")
	if got.code != frame.ExitFailure || !strings.Contains(got.stderr, "the connection to the master's events was lost") {
		t.Errorf("got %+v", got)
	}
}

func TestIncomplete(t *testing.T) {
	for _, name := range []string{"target_none", "target_no_function"} {
		rec := clienttest.Read(t, recordings, name)
		got := runSalt(t.Context(), nil, "", rec.Args...)
		first, _, _ := strings.Cut(rec.Stdout, "\n")
		if got.code != rec.Exit || got.stderr != rec.Stderr || !strings.HasPrefix(got.stdout, first+"\n") {
			t.Errorf("%s: got %+v, want %+v", name, got, rec)
		}
	}
}

// TestCircularNodegroup checks that a nodegroup that contains itself is an error on stderr and
// matches no minion.
func TestCircularNodegroup(t *testing.T) {
	m := clienttest.Start(t, clienttest.Options{Config: map[string]any{"nodegroups": value.DictOf("a", "N@b", "b", "N@a or alpha")}, Minions: fleet()})
	for _, args := range [][]string{{"-N", "a", "test.ping"}, {"-C", "N@b", "test.ping"}, {"-N", "a", "--preview-target"},
		{"-N", "a", "-b", "1", "test.ping"}, {"-N", "a", "--async", "test.ping"}} {
		got := runSalt(t.Context(), m, "", args...)
		if got.code != frame.ExitNoReturn || !strings.Contains(got.stderr, "[ERROR   ] nodegroup \"") || !strings.Contains(got.stderr, "contains itself: ") ||
			strings.Contains(got.stdout, "contains itself") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
