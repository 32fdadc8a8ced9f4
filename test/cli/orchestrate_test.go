package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// orchestra starts a master with the SLS files of the recordings of
// orchestrations, and the minions m1 and m2.
func orchestra(t *testing.T, second daemontest.Kind) (master *daemontest.Node, recorded []txtar.File, work string) {
	t.Helper()
	work = t.TempDir()
	all, err := txtar.ParseFile("testdata/orchestrate.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all.Files {
		if strings.HasSuffix(f.Name, ".run") {
			recorded = append(recorded, f)
			continue
		}
		new(field).write(t, filepath.Join(work, f.Name), strings.ReplaceAll(string(f.Data), "/tmp/orch/", work+"/"))
	}
	host := daemontest.Host()
	master = daemontest.NewMaster(t, daemontest.Brine, "master", host, "auto_accept: true\ntimeout: 60\ngather_job_timeout: 8\n"+
		"file_roots: {base: ["+work+"/salt]}\npillar_roots: {base: ["+work+"/pillar]}\n").Start()
	daemontest.NewMinion(t, daemontest.Brine, "m1", []string{host}, "").Start()
	daemontest.NewMinion(t, second, "m2", []string{host}, "").Start()
	eventually.Nil(t, 120*time.Second, "the minions answer", func() error { return master.PingAll(daemontest.Brine, "m1", "m2") })
	return master, recorded, work
}

// varying are the keys of results that differ in every run. The minion chosen by subset is random,
// too.
var varying = []string{"start_time", "duration", "__jid__", "__pub_jid", "__pub_pid", "pid"}

// steady removes the differences between two runs of an orchestration.
func steady(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for _, k := range varying {
			delete(x, k)
		}
		if x["__id__"] == "b3" { // uses one of the two
			x["comment"], x["changes"] = nil, nil
		}
		for k := range x {
			x[k] = steady(x[k])
		}
	case []any:
		for i := range x {
			x[i] = steady(x[i])
		}
	case string:
		return strings.ReplaceAll(x, "m2, m1", "m1, m2") // depends on which answers first
	}
	return v
}

var orchestraVaries = regexp.MustCompile(` +[\d.]+ m?s\n|\d\d:\d\d:\d\d(\.\d+)?|\d{20}|m1, m2|m2, m1`)

func playOrchestra(t *testing.T, master *daemontest.Node, recorded []txtar.File, work string) {
	for _, rec := range recorded {
		t.Run(strings.TrimSuffix(rec.Name, ".run"), func(t *testing.T) {
			head, want, _ := strings.Cut(strings.NewReplacer("/tmp/orch/", work+"/", "MASTER", "master").Replace(string(rec.Data)), "\n")
			code, want, _ := strings.Cut(want, "\n")
			args, pillar, _ := strings.Cut(head, " pillar=")
			argv := strings.Fields(args)
			if pillar != "" {
				argv = append(argv, "pillar="+strings.Trim(pillar, "'"))
			}
			got, errs, exit := master.Run(daemontest.Brine, "salt-run", argv...)
			if strconv.Itoa(exit) != code {
				t.Errorf("exit code %d, want %s: %s%s", exit, code, got, errs)
			}
			if !strings.Contains(head, "--out=json") {
				if g, w := orchestraVaries.ReplaceAllString(got, "X"), orchestraVaries.ReplaceAllString(want, "X"); g != w {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				return
			}
			g, w := results(t, got), results(t, want)
			if g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
		})
	}
}

// results reads what salt-run prints as JSON, after lines about targets
// that match no minion.
func results(t *testing.T, text string) string {
	t.Helper()
	_, text, _ = strings.Cut("\n"+text, "\n{")
	var v any
	if err := json.Unmarshal([]byte("{"+text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	b, err := json.MarshalIndent(steady(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOrchestrations: orchestrations have the same results as under Salt.
func TestOrchestrations(t *testing.T) {
	master, recorded, work := orchestra(t, daemontest.Brine)
	playOrchestra(t, master, recorded, work)
	if b, err := os.ReadFile(work + "/out.txt"); err != nil || !strings.HasPrefix(string(b), "G master master base x master") {
		t.Errorf("the master's own file: %q, %v", b, err)
	}
	t.Run("steered", func(t *testing.T) { steered(t, master, work) })
	t.Run("beyond", func(t *testing.T) { beyondSalt(t, master, work) })
}

// TestOrchestrationsWithStock: a stock minion takes part like a Brine minion.
func TestOrchestrationsWithStock(t *testing.T) {
	daemontest.StockTree(t)
	master, recorded, work := orchestra(t, daemontest.Stock)
	playOrchestra(t, master, slices.DeleteFunc(recorded, func(f txtar.File) bool {
		return !slices.Contains([]string{"basic.run", "fails.run", "batch.run"}, f.Name)
	}), work)
}

// steered waits for events of others, pauses and ends orchestrations.
func steered(t *testing.T, master *daemontest.Node, work string) {
	new(field).write(t, filepath.Join(work, "salt/waits.sls"), `
both:
  salt.wait_for_event:
    - name: my/*/ready
    - id_list: [one, two]
    - event_id: who
    - timeout: 60
`)
	type outcome struct {
		out  string
		code int
	}
	run := func(args ...string) chan outcome {
		done := make(chan outcome, 1)
		go func() {
			out, _, code := master.Run(daemontest.Brine, "salt-run", args...)
			done <- outcome{out, code}
		}()
		return done
	}
	waits := run("state.orch", "waits", "--out=json")
	for {
		select {
		case got := <-waits:
			if got.code != 0 || !strings.Contains(got.out, "All events seen in") ||
				!regexp.MustCompile(`(?s)"minions_seen": \[\s*("one",\s*"two"|"two",\s*"one")\s*\]`).MatchString(got.out) {
				t.Errorf("%d %s", got.code, got.out)
			}
		case <-time.After(50 * time.Millisecond):
			for _, e := range []string{`{"who": "one"}`, `{"data": {"who": ["none", "two"]}}`} {
				master.Run(daemontest.Brine, "salt-run", "event.send", "my/x/ready", "data="+e)
			}
			continue
		}
		break
	}
	flag := filepath.Join(work, "flag")
	new(field).write(t, filepath.Join(work, "salt/slow.sls"), fmt.Sprintf(`
first:
  cmd.run:
    - name: touch %[1]s; while [ -e %[1]s ]; do sleep 0.05; done
second:
  test.nop: []
`, flag))
	for i, c := range []struct{ steer, then, want string }{
		{"state.soft_kill", "", ""}, {"state.pause", "state.resume", "second"},
	} {
		jid := fmt.Sprintf("2026010100000000000%d", i)
		running := run("state.orch", "slow", "orchestration_jid="+jid, "--out=json")
		eventually.Nil(t, 60*time.Second, "it runs", func() error { _, err := os.Stat(flag); return err })
		if out, _, code := master.Run(daemontest.Brine, "salt-run", c.steer, jid, "second"); code != 0 {
			t.Errorf("%s: %s", c.steer, out)
		}
		os.Remove(flag)
		if c.then != "" {
			select {
			case got := <-running:
				t.Errorf("%s did not hold it: %s", c.steer, got.out)
				running <- got
			case <-time.After(300 * time.Millisecond):
			}
			master.Run(daemontest.Brine, "salt-run", c.then, jid, "second")
		}
		if got := <-running; strings.Contains(got.out, "test_|-second") != (c.want != "") {
			t.Errorf("%s: %s", c.steer, got.out)
		}
	}
}

// beyondSalt runs orchestrations at which Salt 3007 fails: parallel_runners always, unknown runners
// with a traceback, and a minion that is down.
func beyondSalt(t *testing.T, master *daemontest.Node, work string) {
	pub, err := os.ReadFile(master.Path("etc/salt/pki/master/minions/m1"))
	if err != nil {
		t.Fatal(err)
	}
	new(field).write(t, master.Path("etc/salt/pki/master/minions/gone"), string(pub))
	new(field).write(t, filepath.Join(work, "salt/beyond.sls"), `
p_ok:
  salt.parallel_runners:
    - runners:
        one: [name: test.arg, kwarg: {a: 1}]
        test.sleep: [kwarg: {s_time: 0}]
p_orch:
  salt.parallel_runners:
    - runners:
        one: [name: state.orchestrate, kwarg: {mods: orch.small}]
        two: [name: state.orch, kwarg: {mods: orch.smallbad}]
p_unknown:
  salt.parallel_runners:
    - runners: nosuch.fun
p_list:
  salt.parallel_runners:
    - runners: [a]
r_unknown:
  salt.runner:
    - name: nosuch.fun
w_unknown:
  salt.wheel:
    - name: nosuch.fun
down:
  salt.state:
    - tgt: 'gone'
    - sls: nop
    - timeout: 1
nobody:
  salt.function:
    - name: test.ping
    - tgt: 'nobody'
ff:
  salt.function:
    - name: test.ping
    - tgt: m1
    - fail_function: nosuch.fun
`)
	got, errs, code := master.Run(daemontest.Brine, "salt-run", "state.orch", "beyond", "--out=yaml")
	if code != 1 {
		t.Errorf("exit code %d: %s", code, errs)
	}
	v, err := yaml.Load([]byte(got), "salt-run")
	if err != nil {
		t.Fatal(err, got)
	}
	all := v.(*value.Dict).Dict("data").Dict("master")
	for id, want := range map[string]struct {
		result  bool
		comment string
		changes string
	}{
		"p_ok":      {true, "All runner functions executed successfully.", "{'ret': {'one': {'args': [], 'kwargs': {'a': 1}}, 'test.sleep': True}}"},
		"p_orch":    {false, "Runner two failed with return value:\n  data:", "'local_|-hey_|-succeed_with_changes': {'testing':"},
		"p_unknown": {false, "Runner nosuch.fun failed.", "'nosuch.fun' is not available"},
		"p_list":    {false, "The runners parameter must be a string or dict.", "{}"},
		"r_unknown": {false, "Runner function 'nosuch.fun' failed.", "'nosuch.fun' is not available"},
		"w_unknown": {false, "Wheel function 'nosuch.fun' failed.", "nosuch.fun"},
		"down":      {false, "Run failed on minions: gone", "{'out': 'highstate', 'ret': {'gone': False}}"},
		"nobody":    {false, "No minions responded", "{}"},
		"ff":        {false, "fail_function nosuch.fun: ", "{}"},
	} {
		found := false
		for k, r := range all.All() {
			if res := r.(*value.Dict); strings.Contains(value.Str(k), "_|-"+id+"_|-") {
				found = true
				if changes := value.Repr(res.At("changes")); res.At("result") != want.result || !strings.Contains(res.Str("comment"), want.comment) ||
					!strings.Contains(changes, strings.TrimPrefix(want.changes, "'local_|-")) {
					t.Errorf("%s: %v, %q, %s", id, res.At("result"), res.Str("comment"), changes)
				}
			}
		}
		if !found {
			t.Errorf("there is no result of %s", id)
		}
	}
}
