package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestQueue starts state runs while another one is in progress, on minions of both kinds. Both
// kinds refuse, queue and run the same ones concurrently, with the same messages.
func TestQueue(t *testing.T) {
	stockTree(t)
	tree := daemontest.ShortDir(t)
	queues := map[string]*queue{}
	for _, id := range []string{"stock", "brine"} {
		queues[id] = &queue{id: id, t: t, dir: daemontest.ShortDir(t)}
		queues[id].files(tree)
	}
	host := daemontest.Host()
	master := newMaster(t, brine, "queue", host, "file_roots: {base: ["+tree+"]}\n").Start()
	for _, k := range []kind{stock, brine} {
		queues[string(k)].master, queues[string(k)].minion = master, newMinion(t, k, string(k), []string{host}, "").Start()
	}
	master.Accept("brine", "stock")
	eventually.Nil(t, stockLimit, "the minions answer", func() error { return master.PingAll(brine, "brine", "stock") })
	t.Run("minions", func(t *testing.T) {
		for id, q := range queues {
			t.Run(id, func(t *testing.T) {
				t.Parallel()
				q.t = t
				q.play()
			})
		}
	})
	answers := map[string][]answer{"stock": queues["stock"].answers, "brine": queues["brine"].answers}
	if len(answers["stock"]) != len(answers["brine"]) {
		t.Fatalf("%d answers of Salt's minion, %d of ours", len(answers["stock"]), len(answers["brine"]))
	}
	for i, want := range answers["stock"] {
		if got := answers["brine"][i]; got != want {
			t.Errorf("%s:\n got %s\nwant %s", want.to, got.text, want.text)
		}
	}
}

type answer struct{ to, text string }

// queue starts runs on one minion.
type queue struct {
	t              *testing.T
	master, minion *node
	id, dir, last  string // last is the job that start has ordered
	on             int    // runs in progress or waiting
	answers        []answer
}

var (
	times   = regexp.MustCompile(`\d{4}, \w{3} \d\d \d\d:\d\d:\d\d\.\d{6}|\b\d{20}\b|PID \d+`)
	numbers = regexp.MustCompile(`"(duration|start_time|pid)": ?("[^"]*"|[\d.]+)`)
)

func (q *queue) note(to, text string) {
	text = numbers.ReplaceAllString(times.ReplaceAllString(text, "N"), `"$1":0`)
	plain := strings.NewReplacer(q.dir, "DIR", q.id, "ID", "\n", "", " ", "")
	q.answers = append(q.answers, answer{strings.ReplaceAll(to, q.id, "ID"), plain.Replace(text)})
}

// ask makes the minion do something, and records the answer and the exit code. It waits for the
// runs before, whose processes a stock minion counts as running for a while after they have
// answered.
func (q *queue) ask(args ...string) {
	q.t.Helper()
	q.runs(q.on)
	out, errs, code := q.master.Run(brine, "salt", append([]string{"--out=json", "-t", "80", q.id}, args...)...)
	q.note(strings.Join(args, " "), fmt.Sprint(out, errs, " exit code ", code))
}

// start starts a run and waits until it is in progress or waiting.
func (q *queue) start(args ...string) (jid string) {
	q.t.Helper()
	out, errs, _ := q.master.Run(brine, "salt", append([]string{"--async", q.id}, args...)...)
	jid = regexp.MustCompile(`\d{20}`).FindString(out)
	if jid == "" {
		q.t.Fatal(out, errs)
	}
	q.last = jid
	q.on++
	q.runs(q.on)
	return jid
}

// runs waits until n state functions are in progress or waiting.
func (q *queue) runs(n int) {
	q.t.Helper()
	eventually.Nil(q.t, stockLimit, fmt.Sprintf("%d runs on %s", n, q.id), func() error {
		rets, err := q.master.SaltJSON(brine, "-t", "60", q.id, "saltutil.is_running", "state.*")
		if err != nil {
			return err
		}
		if l, _ := rets[q.id].([]any); len(l) != n {
			out, _, _ := q.master.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", q.last)
			return fmt.Errorf("%v; the last one: %s", rets, out)
		}
		return nil
	})
}

// result waits for the return of a run, and records it.
func (q *queue) result(what, jid string) {
	q.t.Helper()
	eventually.Nil(q.t, stockLimit, "the result of "+what+" on "+q.id, func() error {
		out, _, _ := q.master.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
		var rets map[string]any
		if err := json.Unmarshal([]byte(out), &rets); err != nil || rets[q.id] == nil {
			return errors.New(out)
		}
		text, _ := json.Marshal(rets[q.id])
		q.note(what, string(text))
		return nil
	})
}

// files writes the SLS files of the minion, before the master lists them.
func (q *queue) files(tree string) {
	write := func(name, text string) {
		q.t.Helper()
		if err := os.WriteFile(filepath.Join(tree, q.id+"_"+name+".sls"), []byte(text), 0o644); err != nil {
			q.t.Fatal(err)
		}
	}
	order := q.order()
	write("hold", "wait:\n  cmd.run:\n    - name: while [ ! -e "+q.free()+" ]; do sleep 0.1; done; echo hold >>"+order+"\n")
	write("quick", "quick:\n  test.nop: []\n")
	// What precedes a run's turn must reflect the order of turns, not of requests.
	write("first", "before:\n  cmd.run:\n    - name: echo before >>"+order+"\n    - prereq: [{cmd: first}]\nfirst:\n  cmd.run:\n    - name: echo first >>"+
		order+"\n    - unless: test ! -e "+order+"\n")
	write("second", "second:\n  cmd.run:\n    - name: echo second >>"+order+"\n")
}

func (q *queue) order() string { return filepath.Join(q.dir, "order") }
func (q *queue) free() string  { return filepath.Join(q.dir, "free") }

func (q *queue) play() {
	t := q.t
	quick := q.id + "_quick"

	q.ask("state.running")
	held := q.start("state.apply", q.id+"_hold")
	for _, args := range [][]string{
		{"state.running"}, {"state.running", "concurrent=True"}, {"state.apply", quick}, {"state.apply"}, {"state.highstate", "test=True"},
		{"state.sls", quick},
		{"state.sls", quick, "queue=False"}, {"state.sls", quick, "queue=1"}, {"state.sls_id", "quick", quick}, {"state.single", "test.nop", "x"},
		{"state.test", quick},
		{"state.low", "{state: test, fun: nop, name: x, __id__: x}"}, {"state.high", "{x: {test: [nop]}}"}, {"state.template_str", "x: test.nop"},
		{"state.show_top"},
		{"state.show_sls", quick}, {"state.show_low_sls", quick}, {"state.show_highstate"}, {"state.show_states"},
		{"state.sls_exists", quick}, {"state.top", "top.sls"},
		{"state.apply", quick, "concurrent=True"}, {"state.single", "test.nop", "x", "concurrent=True"}, {"state.show_sls", quick, "concurrent=True"},
		{"state.sls", quick, "queue=1", "concurrent=True"}, {"state.request", quick}, {"state.run_request"}, {"state.clear_request"},
	} {
		q.ask(args...)
	}
	out, _, code := q.minion.Run(q.minion.Kind, "salt-call", "--retcode-passthrough", "--out=json", "-l", "quiet", "state.apply", quick)
	q.note("salt-call", fmt.Sprint(out, " exit code ", code))

	first := q.start("state.apply", q.id+"_first", "queue=True")
	second := q.start("state.apply", q.id+"_second", "queue=3")
	q.ask("state.running")
	q.ask("state.sls", quick, "queue=3")
	q.ask("state.sls", quick)
	q.ask("state.sls", quick, "concurrent=True")
	if err := os.WriteFile(q.free(), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	q.result("held", held)
	q.result("first", first)
	q.result("second", second)
	q.on = 0
	done, err := os.ReadFile(q.order())
	if err != nil {
		t.Fatal(err)
	}
	q.note("order", string(done))
	q.ask("state.low", "{state: test, fun: fail_without_changes, name: x, __id__: x}")
	q.ask("state.apply", quick, "queue=True")
}
