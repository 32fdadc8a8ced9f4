package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/call/client/clienttest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// stateFleet starts the fleet of the recordings of states: a master with their
// SLS files and pillar, and the minions alpha and beta. What the SLS files write
// below /tmp goes to the directory work.
func stateFleet(t *testing.T, kinds ...daemontest.Kind) (master, alpha *daemontest.Node, work string) {
	t.Helper()
	work = t.TempDir()
	tree, err := txtar.ParseFile(filepath.Join(recordings, "sls.txt"))
	if err != nil {
		t.Fatal(err)
	}
	host := daemontest.Host()
	master = daemontest.NewMaster(t, daemontest.Brine, "master", host, "auto_accept: true\ntimeout: 20\ngather_job_timeout: 20\n"+
		"file_roots: {base: ["+work+"/salt]}\npillar_roots: {base: ["+work+"/pillar]}\n")
	for _, f := range tree.Files {
		if strings.HasSuffix(f.Name, ".sls") {
			new(field).write(t, filepath.Join(work, f.Name), strings.ReplaceAll(string(f.Data), "/tmp/", work+"/"))
		}
	}
	master.Start()
	for i, id := range []string{"alpha", "beta"} {
		role := []string{"web", "db"}[i]
		n := daemontest.NewMinion(t, kinds[i], id, []string{host}, "grains: {role: "+role+", deployed: {env: lab, rack: 7}}\n").Start()
		if i == 0 {
			alpha = n
		}
	}
	eventually.Nil(t, 120*time.Second, "the minions answer", func() error { return master.PingAll(daemontest.Brine, "alpha", "beta") })
	return master, alpha, work
}

// downMinion gives a master the key of gamma, which is down.
func downMinion(t *testing.T, master *daemontest.Node) {
	t.Helper()
	pub, err := os.ReadFile(master.Path("etc/salt/pki/master/minions/beta"))
	if err != nil {
		t.Fatal(err)
	}
	new(field).write(t, master.Path("etc/salt/pki/master/minions/gamma"), string(pub))
}

// Parts of a state's result that vary from run to run. The value of a key of YAML or the nested
// form is on the same line or the next.
var stateVaries = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d\d:\d\d:\d\d\.\d{6}`), "TIME"},
	{regexp.MustCompile(`(Duration: |- Duration: )[\d.]+ m?s`), "${1}TOOK"},
	{regexp.MustCompile(`Total run time: +[\d.]+ m?s`), "Total run time: TOOK"},
	{regexp.MustCompile(`(duration"?:\s+)[\d.]+`), "${1}0"},
	{regexp.MustCompile(`(pid(?:\x1b\[0;0m)?"?:\s+(?:\x1b\[0;1;33m)?)\d+`), "${1}0"},
	{regexp.MustCompile(` \(Brine [\d.]+\)`), ""}, // behind Salt's version in manage.versions
	{regexp.MustCompile(`PID \d+ and was started at .* with jid`), "PID PID and was started at DATE with jid"},
}

func maskStates(s string) string {
	s = mask(s)
	for _, m := range stateVaries {
		s = m.find.ReplaceAllString(s, m.with)
	}
	return s
}

// likened hides documentation, and the order of keys, which differs from Salt's: in JSON, where
// Salt's is that of each state function's code, and in the nested form, where Salt prints those
// inner maps of a pillar in the order of the SLS file that never went over a wire.
func likened(t *testing.T, name, s string) string {
	t.Helper()
	switch name {
	case "run_bad_args":
		s, _, _ = strings.Cut(s, "Usage:") // the documentation is our own
	case "state_apply_edit_json", "state_fail_json":
		var v any
		if err := json.Unmarshal([]byte(s), &v); err != nil {
			t.Fatalf("%v: %s", err, s)
		}
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	case "run_pillar_show":
		lines := strings.Split(s, "\n")
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	return s
}

// inOrder sorts the parts of an output that begin with the name of a minion.
func inOrder(s string) string {
	parts := regexp.MustCompile(`(?m)^(alpha|beta):$`).FindAllStringIndex(s, -1)
	if len(parts) < 2 {
		return s
	}
	var blocks []string
	for i, p := range parts {
		end := len(s)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		blocks = append(blocks, s[p[0]:end])
	}
	slices.Sort(blocks)
	return s[:parts[0][0]] + strings.Join(blocks, "")
}

// TestStateRecordings applies states through a real master, in the recorded order, since each run
// depends on the previous ones.
func TestStateRecordings(t *testing.T) {
	master, alpha, work := stateFleet(t, daemontest.Brine, daemontest.Brine)
	replayStates(t, master, alpha, work)
}

// TestStockStateRecordings: a stock minion applies the states of our master.
func TestStockStateRecordings(t *testing.T) {
	daemontest.StockTree(t)
	master, _, work := stateFleet(t, daemontest.Stock, daemontest.Brine)
	replayStates(t, master, nil, work)
}

func replayStates(t *testing.T, master, alpha *daemontest.Node, work string) {
	fix := strings.NewReplacer("/tmp/", work+"/")
	one := func(n *daemontest.Node, program, name string) {
		t.Run(name, func(t *testing.T) {
			rec := clienttest.Read(t, recordings, name)
			for i := range rec.Args {
				rec.Args[i] = fix.Replace(rec.Args[i])
			}
			stdout, stderr, code := n.Run(daemontest.Brine, program, rec.Args...)
			got := result{code, likened(t, name, inOrder(maskStates(stdout))), stderr}
			want := result{rec.Exit, likened(t, name, inOrder(fix.Replace(maskStates(rec.Stdout)))), rec.Stderr}
			if program == "salt-call" { // its output includes its log
				got.stderr, want.stderr = "", ""
			}
			if got != want {
				t.Errorf("%s %q\ngot  %d %s\n%s\nwant %d %s\n%s", program, rec.Args, got.code, got.stdout, got.stderr, want.code, want.stdout, want.stderr)
			}
		})
	}
	all := []string{
		"state_apply_test_true", "state_apply_changes", "state_apply_nochange", "state_apply_edit_test", "state_apply_edit_diff", "state_apply_edit_json",
		"state_apply_highstate", "state_fail_full", "state_fail_full_color", "state_changes_color", "state_fail_full_id", "state_fail_terse", "state_fail_terse_id",
		"state_fail_mixed", "state_fail_mixed_id", "state_fail_changes", "state_fail_changes_id", "state_fail_filter_exclude", "state_fail_verbose_false",
		"state_ok_verbose_false", "state_ok_terse_color", "state_output_diff", "state_fail_json", "state_fail_nested", "state_fail_summary_cli",
		"state_bad_function", "state_single", "state_two_minions", "state_check_pillar", "state_missing_sls", "state_show_sls_missing", "state_show_top",
		"state_show_sls", "state_show_lowstate", "state_jinja_error",
		"pillar_get_missing", "pillar_items", "pillar_items_color", "pillar_items_json_indent0", "pillar_items_no_return", "pillar_items_raw",
		"pillar_items_txt", "pillar_items_yaml",
	}
	if alpha != nil {
		all = append(all, "sys_list_functions")
	}
	for _, name := range all {
		one(master, "salt", name)
	}
	for _, name := range []string{"run_pillar_show", "run_fileserver_list", "run_bad_args"} {
		one(master, "salt-run", name)
	}
	if alpha != nil {
		for _, name := range []string{"call_state", "call_state_fail", "call_state_retcode"} {
			one(alpha, "salt-call", name)
		}
	}
	for _, name := range []string{"state_test_color", "state_single_test", "state_running_queue", "state_fail_yaml"} {
		one(master, "salt", name)
	}
	if alpha != nil {
		held(t, master, work, func() { one(alpha, "salt-call", "call_state_conflict") })
	}
	downMinion(t, master)
	one(master, "salt-run", "run_manage_versions")
}

// held calls do while a run of states waits on alpha.
func held(t *testing.T, master *daemontest.Node, work string, do func()) {
	t.Helper()
	free := filepath.Join(work, "free")
	new(field).write(t, filepath.Join(work, "salt/hold.sls"), "wait:\n  cmd.run:\n    - name: while [ ! -e "+free+" ]; do sleep 0.05; done\n")
	running := func() string {
		out, _, _ := master.Run(daemontest.Brine, "salt", "alpha", "state.running")
		return out
	}
	if out, errs, code := master.Run(daemontest.Brine, "salt", "--async", "alpha", "state.apply", "hold"); code != 0 {
		t.Fatal(out, errs)
	}
	eventually.Nil(t, 60*time.Second, "the states run", func() error {
		if out := running(); !strings.Contains(out, `"state.apply" is running`) {
			return errors.New(out)
		}
		return nil
	})
	do()
	new(field).write(t, free, "")
	eventually.Nil(t, 60*time.Second, "the run ends", func() error {
		if out := running(); strings.Contains(out, "is running") {
			return fmt.Errorf("still: %s", out)
		}
		return nil
	})
}
