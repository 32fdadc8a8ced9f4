package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/py/value"
	"brine/test/tools"
)

// scenario is a sequence of events of a job.
type scenario struct {
	Minions []string  `json:"minions"`
	Order   bool      `json:"order"` // order_masters
	Events  []timed   `json:"events"`
	Answers [][]reply `json:"answers"` // to each question, in order
}

type timed struct {
	At   float64
	Tag  string
	Data map[string]any
}

func (e timed) MarshalJSON() ([]byte, error) { return json.Marshal([]any{e.At, e.Tag, e.Data}) }

type reply struct {
	After float64
	Data  map[string]any
}

func (a reply) MarshalJSON() ([]byte, error) { return json.Marshal([]any{a.After, a.Data}) }

// happened is one line of a client's record, such as "5.0 ask [gamma]".
func happened(at float64, what string, ids ...string) string {
	return fmt.Sprintf("%.1f %s %v", at, what, ids)
}

// play runs a scenario with our client, with the clock of its synctest bubble.
func play(t *testing.T, sc scenario) []string {
	var out []string
	begin := time.Now()
	note := func(what string, ids ...string) {
		out = append(out, happened(time.Since(begin).Seconds(), what, ids...))
	}
	var f *fake
	f = newFake(jobs(sc.Minions, nil, func(n int, jid string, ids []string) {
		note("ask", ids...)
		if n >= len(sc.Answers) {
			return
		}
		for _, a := range sc.Answers[n] {
			time.AfterFunc(seconds(a.After), func() {
				f.fire(fmt.Sprintf("salt/job/%s/ret/%s", jid, a.Data["id"]), pairs(a.Data)...)
			})
		}
	}))
	for _, e := range sc.Events {
		time.AfterFunc(seconds(e.At), func() { f.fire(strings.ReplaceAll(e.Tag, "J", testJID), pairs(e.Data)...) })
	}
	run, err := f.client(Options{Timeout: 5 * time.Second, GatherJobTimeout: 10 * time.Second, SyndicWait: 5 * time.Second, OrderMasters: sc.Order}).
		Start(t.Context(), Job{Target: "*", Fun: "test.ping"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	for r, err := range run.Results(t.Context()) {
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Absent:
			note("absent", r.ID)
		default:
			note("ret", r.ID)
		}
	}
	note("end")
	return out
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func pairs(m map[string]any) []any {
	var out []any
	for _, k := range slices.Sorted(mapsKeys(m)) {
		out = append(out, k, fromJSON(m[k]))
	}
	return out
}

func mapsKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func fromJSON(v any) any {
	if m, ok := v.(map[string]any); ok {
		return value.DictOf(pairs(m)...)
	}
	return value.From(v)
}

func comes(at float64, id string) timed {
	return timed{at, "salt/job/J/ret/" + id, map[string]any{"id": id, "return": true, "retcode": 0, "jid": "J"}}
}

func runs(after float64, id string) reply {
	return reply{after, map[string]any{"id": id, "return": map[string]any{"jid": "J", "fun": "test.sleep"}, "retcode": 0}}
}

func idle(after float64, id string) reply {
	return reply{after, map[string]any{"id": id, "return": map[string]any{}, "retcode": 0}}
}

func TestWait(t *testing.T) {
	for _, c := range []struct {
		name string
		sc   scenario
		want []string
	}{
		{"all return", scenario{Minions: []string{"a", "b"}, Events: []timed{comes(1, "b"), comes(2, "a")}},
			[]string{"1.0 ret [b]", "2.0 ret [a]", "2.0 end []"}},
		{"an untargeted minion returns too", scenario{Minions: []string{"a"}, Events: []timed{comes(1, "x"), comes(2, "a")}},
			[]string{"1.0 ret [x]", "2.0 ret [a]", "2.0 end []"}},
		{"one is down", scenario{Minions: []string{"a", "c"}, Events: []timed{comes(1, "a")}},
			[]string{"1.0 ret [a]", "5.0 ask [c]", "15.0 absent [c]", "15.0 end []"}},
		{"late return", scenario{Minions: []string{"a"}, Events: []timed{comes(14, "a")}},
			[]string{"5.0 ask [a]", "14.0 ret [a]", "14.0 end []"}},
		{"runs long", scenario{Minions: []string{"a", "b"}, Events: []timed{comes(1, "b"), comes(40, "a")},
			Answers: [][]reply{{runs(.1, "a")}, {runs(.1, "a")}, {runs(9, "a")}, {runs(1, "a")}}},
			[]string{"1.0 ret [b]", "5.0 ask [a]", "15.0 ask [a]", "25.0 ask [a]", "35.0 ask [a]", "40.0 ret [a]", "40.0 end []"}},
		{"ran and is gone", scenario{Minions: []string{"a"}, Answers: [][]reply{{runs(9.5, "a")}}},
			[]string{"5.0 ask [a]", "15.0 ask [a]", "25.0 absent [a]", "25.0 end []"}},
		{"one runs, one is gone", scenario{Minions: []string{"a", "b"}, Events: []timed{comes(12, "b")}, Answers: [][]reply{{runs(1, "b"), idle(1, "a")}}},
			[]string{"5.0 ask [a b]", "12.0 ret [b]", "15.0 ask [a]", "25.0 absent [a]", "25.0 end []"}},
		{"told of more later", scenario{Minions: []string{"a"}, Events: []timed{
			{.5, "salt/job/J/new", map[string]any{"minions": []any{"a", "b"}, "missing": []any{"ghost"}}}, comes(1, "a"), comes(3, "b")}},
			[]string{"1.0 ret [a]", "3.0 ret [b]", "3.0 absent [ghost]", "3.0 end []"}},
		{"invented minions", scenario{Minions: []string{"a"}, Events: []timed{
			{.5, "salt/job/J/x", map[string]any{"minions": []any{"ghost"}}}, {.6, "salt/job/J/prog/evil/0", map[string]any{"minions": []any{"ghost"}}}, comes(1, "a")}},
			[]string{"1.0 ret [a]", "1.0 end []"}},
		{"master of masters", scenario{Order: true, Events: []timed{
			{2, "syndic/s1/J", map[string]any{"minions": []any{"a"}}}, comes(3, "a")}},
			[]string{"3.0 ret [a]", "5.0 end []"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := play(t, c.sc); !reflect.DeepEqual(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// stock plays scenarios with Salt's own client.
func stock(t *testing.T, scs []scenario) [][]string {
	root, python := tools.StockSalt(t)
	in, err := json.Marshal(scs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-W", "ignore", "testdata/wait.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+root)
	cmd.Stdin = bytes.NewReader(in)
	text, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v\n%s", err, e.Stderr)
	} else if err != nil {
		t.Fatal(err)
	}
	var raw [][][]any
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for _, lines := range raw {
		var one []string
		for _, l := range lines {
			ids := []string{}
			for _, id := range l[2].([]any) {
				ids = append(ids, id.(string))
			}
			one = append(one, happened(l[0].(float64), l[1].(string), ids...))
		}
		out = append(out, one)
	}
	return out
}

// TestWaitAsStock plays random scenarios with Salt's client and ours. Salt reads its clock a
// hundred times a second, so times are compared with that tolerance, and lines within it are
// sorted.
func TestWaitAsStock(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var scs []scenario
	for range 200 {
		scs = append(scs, randomScenario(rnd))
	}
	want := stock(t, scs)
	for i, sc := range scs {
		synctest.Test(t, func(t *testing.T) {
			got := play(t, sc)
			if g, w := coarse(got), coarse(want[i]); !reflect.DeepEqual(g, w) {
				text, _ := json.Marshal(sc)
				t.Errorf("scenario %s\ngot  %q\nSalt %q", text, got, want[i])
			}
		})
	}
}

// randomScenario uses whole quarters of seconds that are not near a decision of the client.
func randomScenario(rnd *rand.Rand) scenario {
	when := func(limit int) float64 { return float64(rnd.IntN(limit)) + .25 + .5*float64(rnd.IntN(2)) }
	sc := scenario{}
	for i := range 1 + rnd.IntN(5) {
		id := fmt.Sprint("m", i)
		sc.Minions = append(sc.Minions, id)
		if rnd.IntN(3) > 0 {
			sc.Events = append(sc.Events, comes(when(45), id))
		}
	}
	for range rnd.IntN(6) {
		as := []reply{}
		for _, id := range sc.Minions {
			switch rnd.IntN(3) {
			case 0:
				// In Salt, a minion that returned and then says that it runs the job causes another
				// round; not here.
				if r := runs(when(9), id); !returned(sc, id, 5+10*float64(len(sc.Answers))+r.After) {
					as = append(as, r)
				}
			case 1:
				as = append(as, idle(when(9), id))
			}
		}
		slices.SortStableFunc(as, func(a, b reply) int { return int(100 * (a.After - b.After)) })
		sc.Answers = append(sc.Answers, as)
	}
	slices.SortStableFunc(sc.Events, func(a, b timed) int { return int(100 * (a.At - b.At)) })
	return sc
}

func returned(sc scenario, id string, before float64) bool {
	return slices.ContainsFunc(sc.Events, func(e timed) bool { return e.Data["id"] == id && e.At < before })
}

func coarse(lines []string) []string {
	var out []string
	for _, l := range lines {
		var at float64
		at0, rest, _ := strings.Cut(l, " ")
		fmt.Sscan(at0, &at)
		out = append(out, fmt.Sprintf("%4d %s", int(at*2+.3), rest))
	}
	slices.Sort(out)
	return out
}
