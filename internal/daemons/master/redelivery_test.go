package master

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"brine/internal/py/value"
)

// TestForSome narrows targets to some minions: the master decides what depends on
// the id, the minion what depends on its data.
func TestForSome(t *testing.T) {
	list := value.ListOf("w1", "w2")
	for _, c := range []struct {
		typ, tgt, delimiter string
		wantType            string
		want                any
	}{
		{"", "w*", "", "list", list},
		{"glob", "*", "", "list", list},
		{"pcre", "w[12]", "", "list", list},
		{"list", "", "", "list", list},
		{"grain", "os:Debian", "", "compound", "L@w1,w2 and G@os:Debian"},
		{"pillar", "a:b", "", "compound", "L@w1,w2 and I@a:b"},
		{"ipcidr", "192.0.2.0/24", "", "compound", "L@w1,w2 and S@192.0.2.0/24"},
		{"compound", "G@os:Debian or w2", "", "compound", "L@w1,w2 and ( G@os:Debian or w2 )"},
		{"compound", "N@group", "", "", nil},
		{"grain", "os:Red Hat", "", "", nil},
		{"grain", "os|Debian", "|", "", nil},
		{"pillar_exact", "a:b", "", "", nil},
		{"range", "%x", "", "", nil},
	} {
		job := value.DictOf("fun", "test.ping", "tgt", c.tgt, "jid", "20260101000000000000")
		if c.typ != "" {
			job.Set("tgt_type", c.typ)
		}
		if c.delimiter != "" {
			job.Set("delimiter", c.delimiter)
		}
		got := forSome(job, []string{"w1", "w2"})
		if c.want == nil {
			if got != nil {
				t.Errorf("%s %s: %s", c.typ, c.tgt, value.Repr(got))
			}
			continue
		}
		if got == nil || got.Str("tgt_type") != c.wantType || !value.Equal(got.At("tgt"), c.want) || got.Str("fun") != "test.ping" {
			t.Errorf("%s %s: %v", c.typ, c.tgt, value.Repr(got))
		}
		if job.Str("tgt") != c.tgt {
			t.Error("the original has changed")
		}
	}
	if fitsList("a b") || fitsList("a,b") || !fitsList("a.b-c") {
		t.Error("an id that no list can hold is put into one")
	}
}

// TestPublishedOnce: a job that a thousand minions missed is republished once, not a thousand
// times to each of them.
func TestPublishedOnce(t *testing.T) {
	come := map[string][]handout{"not, fit": {{jid: "2", number: 2}}}
	for i := range 1000 {
		come[fmt.Sprintf("w%03d", i)] = []handout{{jid: "2", number: 2, waited: time.Duration(i)}, {jid: "1", number: 1}}
	}
	delete(come, "w007")
	jobs, unfit := byJob(come)
	if len(jobs) != 2 || jobs[0].jid != "1" || jobs[1].jid != "2" || len(unfit) != 1 || !slices.Equal(unfit["2"], []string{"not, fit"}) {
		t.Fatalf("%d jobs, unfit %v", len(jobs), unfit)
	}
	if n := len(jobs[1].ids); n != 999 || !slices.IsSorted(jobs[1].ids) || jobs[1].ids[7] != "w008" || jobs[1].waited[7] != 8 {
		t.Errorf("%d minions", n)
	}
}

// TestQueueForStock: a job is queued only for a minion that was not connected
// when it was published. It is delivered once, and not after its expiry or
// return.
func TestQueueForStock(t *testing.T) {
	now := time.Unix(1000, 0)
	q := newQueue(func() time.Time { return now })
	job := value.DictOf("fun", "test.ping")
	ids := func(h map[string][]handout) (out []string) {
		for id, l := range h {
			for _, x := range l {
				out = append(out, x.jid+" "+id)
			}
		}
		slices.Sort(out)
		return out
	}
	all := map[string]bool{"here": true, "away": true, "brine": true, "late": true}
	q.add(job, "1", []string{"here", "away", "brine", "late"}, []string{"away", "brine", "late"}, now.Add(time.Minute))
	q.add(job, "2", []string{"away"}, nil, now.Add(time.Minute))
	q.missed("brine", 0, 10)
	if got := q.mute([]string{"here", "brine"}); !slices.Equal(got, []string{"here"}) {
		t.Errorf("mute: %v", got)
	}
	states, _, _, _ := q.states("1")
	if states["here"] != stateSent || states["away"] != stateQueued || states["brine"] != stateDelivered {
		t.Errorf("%v", states)
	}
	if got := ids(q.arrived(map[string]bool{"here": true}, 10)); got != nil || !q.awaits() {
		t.Errorf("none has come, but: %v", got)
	}
	q.returned("1", "late")
	if got := ids(q.arrived(all, 10)); !slices.Equal(got, []string{"1 away"}) {
		t.Errorf("handed out: %v", got)
	}
	if got := ids(q.arrived(all, 10)); got != nil {
		t.Errorf("handed out again: %v", got)
	}
	if states, _, _, _ = q.states("1"); states["away"] != stateDelivered {
		t.Errorf("%v", states)
	}
	q.add(job, "3", []string{"away"}, []string{"away"}, now.Add(time.Minute))
	now = now.Add(time.Minute)
	if got := ids(q.arrived(all, 10)); got != nil || q.awaits() {
		t.Errorf("handed out late: %v", got)
	}
	gone := q.expire()
	i := slices.IndexFunc(gone, func(e expired) bool { return e.jid == "3" })
	if i < 0 || !slices.Equal(gone[i].never, []string{"away"}) {
		t.Errorf("expired: %v", gone)
	}
}

func TestWhoIsMissing(t *testing.T) {
	at := func(ip string) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 99} }
	addrs := func(ips ...string) map[netip.Addr]bool {
		out := map[netip.Addr]bool{}
		for _, ip := range ips {
			out[netip.MustParseAddr(ip)] = true
		}
		return out
	}
	var w addresses
	w.asked("a", at("192.0.2.9"))
	w.asked("a", at("192.0.2.1"))
	w.asked("b", at("192.0.2.2"))
	w.asked("c", at("192.0.2.2"))
	all := []string{"a", "b", "c", "never"}
	for _, c := range []struct {
		name  string
		ids   map[string]bool
		addrs map[netip.Addr]bool
		want  []string
	}{
		{"no subscriber", nil, nil, all},
		{"one has said who it is", map[string]bool{"a": true}, nil, []string{"b", "c", "never"}},
		{"a is there by its address", nil, addrs("192.0.2.1"), []string{"b", "c"}},
		{"b or c", nil, addrs("192.0.2.2"), []string{"a"}},
		{"a subscriber that could be any minion", nil, addrs("192.0.2.2", "192.0.2.77"), nil},
	} {
		if got := w.missing(all, c.ids, c.addrs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	w.start("b")
	if got := w.come(); len(got) != 1 || !got["b"] || w.come() != nil {
		t.Errorf("%v has come", got)
	}
}

// TestWhoIsBack: a minion is back when its address has a connection for each
// minion there, and also had at the last check. Brine minions, whose connections have an id, do not count.
func TestWhoIsBack(t *testing.T) {
	at := func(ip string) *net.TCPAddr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 99} }
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	var w addresses
	w.asked("a", at("192.0.2.1"))
	w.asked("b", at("192.0.2.2"))
	w.asked("c", at("192.0.2.2"))
	w.asked("own", at("192.0.2.1"))
	named := func(id string) bool { return id == "own" }
	for i, c := range []struct {
		one, two int
		want     []string
	}{
		{0, 0, nil}, {1, 1, nil}, {1, 1, []string{"a"}}, {0, 2, nil}, {1, 2, []string{"b", "c"}}, {1, 3, []string{"a", "b", "c"}}, {1, 1, []string{"a"}},
	} {
		conns := map[netip.Addr]int{}
		if c.one > 0 {
			conns[one] = c.one
		}
		if c.two > 0 {
			conns[two] = c.two
		}
		there := map[string]bool{}
		w.back(conns, named, there)
		if got := slices.Sorted(maps.Keys(there)); !slices.Equal(got, c.want) {
			t.Errorf("look %d: %v, want %v", i, got, c.want)
		}
	}
	w.back(nil, nil, nil)
	there := map[string]bool{}
	if w.back(map[netip.Addr]int{one: 1}, named, there); len(there) != 0 {
		t.Errorf("after a long time without a look: %v", there)
	}
}
