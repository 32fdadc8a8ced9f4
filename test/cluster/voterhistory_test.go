package cluster

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/test/eventually"
	"brine/test/tools"
)

// leaseSeen is an answer of a master that it has the lease.
type leaseSeen struct {
	master    string
	token     uint64
	call, end time.Time
}

// leaseHistory asks masters all the time whether they have the lease.
type leaseHistory struct {
	mu   sync.Mutex
	seen []leaseSeen
}

func (h *leaseHistory) add(s leaseSeen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen = append(h.seen, s)
}

// watch asks some masters until the returned function is called.
func (h *leaseHistory) watch(masters ...*node) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, m := range masters {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				case <-time.After(50 * time.Millisecond):
				}
				call := time.Now()
				if l, err := lease(m); err == nil && l.Here {
					h.add(leaseSeen{m.Name, l.Token, call, time.Now()})
				}
			}
		})
	}
	return func() { close(done); wg.Wait() }
}

// wrong returns what no order of leases allows: a token of two masters, or one that is lower than a token that was seen before.
func (h *leaseHistory) wrong() (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	owner := map[uint64]string{}
	byEnd := slices.Clone(h.seen)
	slices.SortFunc(byEnd, func(a, b leaseSeen) int { return a.end.Compare(b.end) })
	slices.SortFunc(h.seen, func(a, b leaseSeen) int { return a.call.Compare(b.call) })
	most, next := leaseSeen{}, 0
	for _, s := range h.seen {
		for ; next < len(byEnd) && byEnd[next].end.Before(s.call); next++ {
			if byEnd[next].token > most.token {
				most = byEnd[next]
			}
		}
		if s.token < most.token {
			out = append(out, fmt.Sprintf("%s has token %d after %s had %d", s.master, s.token, most.master, most.token))
		}
		if o := cmp.Or(owner[s.token], s.master); o != s.master {
			out = append(out, fmt.Sprintf("%s and %s have token %d", o, s.master, s.token))
		}
		owner[s.token] = s.master
	}
	return out
}

// TestLeaseHistory: the check finds what it should, and nothing else.
func TestLeaseHistory(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	for name, c := range map[string]struct {
		seen []leaseSeen
		want int
	}{
		"one after the other":      {[]leaseSeen{{"a", 1, at(1), at(2)}, {"b", 2, at(3), at(4)}, {"a", 3, at(5), at(6)}}, 0},
		"at the same time":         {[]leaseSeen{{"a", 1, at(1), at(4)}, {"b", 2, at(2), at(3)}}, 0},
		"an old token":             {[]leaseSeen{{"b", 2, at(1), at(2)}, {"a", 1, at(3), at(4)}}, 1},
		"two masters of one token": {[]leaseSeen{{"a", 1, at(1), at(2)}, {"b", 1, at(3), at(4)}}, 1},
	} {
		h := &leaseHistory{seen: c.seen}
		if got := h.wrong(); len(got) != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestVotersSetBack: of three voting masters, two, one after the other, start with a copy of their voter file from some terms ago, while the others are
// asked all the time and work is done. Afterwards the holder is killed. No token is used by two masters or after a higher one, and no work
// begins twice.
func TestVotersSetBack(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	a := newApart(t, 3, "auto_accept: true\n")
	var ids []string
	for _, m := range a.masters {
		ids = append(ids, m.Name)
	}
	for _, m := range a.masters {
		m.Write("master", m.Read("master")+fmt.Sprintf("cluster_voters: [%s]\n", strings.Join(ids, ", ")))
	}
	a.start()
	_, token := holder(t, "at first", 0, a.masters...)
	file := func(m *node) string { return m.Path("var/cache/salt/master/brine/masters/" + m.Name + "/voter.db") }
	old := map[*node][]byte{}
	for _, m := range a.masters {
		m.Kill()
		b, err := os.ReadFile(file(m))
		must(t, err)
		old[m] = b
		m.Start()
		_, token = holder(t, "after a restart", token-1, a.masters...)
	}
	allVote := func() {
		t.Helper()
		eventually.Nil(t, soon, "all vote", func() error {
			for _, m := range a.masters {
				by, err := votersAt(m)
				for _, id := range ids {
					if err == nil && by[id].Votes != "yes" {
						err = fmt.Errorf("%s: %+v", id, by[id])
					}
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	var done []string
	work := func() {
		t.Helper()
		at := a.masters[len(done)%3]
		var jid string
		eventually.Nil(t, soon, "work is given", func() error {
			out, errs, code := at.Run(brine, "salt-run", "--cluster", "--async", "test.arg", fmt.Sprint(len(done)))
			if jid = jidIn(out + errs); code != 0 || jid == "" {
				return fmt.Errorf("%d %s%s", code, out, errs)
			}
			return nil
		})
		inState(t, at, jid, "done")
		done = append(done, jid)
	}
	for range 2 { // terms that the copies lack
		h, _ := holder(t, "before a kill", 0, a.masters...)
		h.Kill()
		_, token = holder(t, "after a kill", token, but(a.masters, h)...)
		h.Start()
		allVote()
		work()
	}

	h := &leaseHistory{}
	stop := h.watch(a.masters...)
	for _, m := range a.masters[:2] {
		m.Kill()
		must(t, os.WriteFile(file(m), old[m], 0o600))
		m.Start()
		work()
		allVote()
		now, _ := holder(t, "with an old file of "+m.Name, token-1, a.masters...)
		now.Kill()
		_, token = holder(t, "after a kill", token, but(a.masters, now)...)
		now.Start()
		allVote()
	}
	stop()
	for _, text := range h.wrong() {
		t.Error(text)
	}
	for _, jid := range done {
		if got := inState(t, a.masters[0], jid, "done"); got.Runs != 1 {
			t.Errorf("%s has begun %d times", jid, got.Runs)
		}
	}
	replaced := 0
	for _, m := range a.masters {
		replaced += strings.Count(m.Log(), "becomes a new voter in its own place")
	}
	if replaced < 2 {
		t.Errorf("%d voters have found that their file is an old one", replaced)
	}
	t.Logf("%d answers of holders, the last token is %d", len(h.seen), token)
}
