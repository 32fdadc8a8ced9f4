package copies

import (
	"fmt"
	"testing"
	"time"

	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

func members(n, copies int) (out []Member) {
	for i := range n {
		out = append(out, Member{ID: fmt.Sprintf("10.0.0.%d", i+1), Known: true, Copies: copies, Keep: 86400, Up: true})
	}
	return out
}

func holders(r *Rule, p job.Place) (out []string) {
	for _, id := range r.Members {
		if r.Holds(id, p) {
			out = append(out, id)
		}
	}
	return out
}

// TestRule: a return is on the master that got it, on the one that published its job, and on as many more as are missing to N;
// the load is even, and few returns move when a member is removed.
func TestRule(t *testing.T) {
	t.Parallel()
	const n, minions = 3, 5000
	all := members(7, n)
	r := Agree(all, time.Now())
	if r.N != n {
		t.Fatalf("%+v", r)
	}
	less := Agree(all[:6], time.Now())
	loads, moved := map[string]int{}, 0
	for i := range minions {
		p := job.Place{JID: "20260101000000000000", ID: fmt.Sprintf("m%d", i)}
		bare := holders(r, p)
		if len(bare) != n {
			t.Fatalf("%v has %v", p, bare)
		}
		for _, id := range bare {
			loads[id]++
		}
		for _, id := range holders(less, p) {
			if !r.Holds(id, p) {
				moved++
			}
		}
		p.Receiver, p.Issuer = oplog.Mark(all[i%7].ID), all[(i/7)%7].ID
		got := holders(r, p)
		if len(got) != n || !r.Holds(all[i%7].ID, p) || !r.Holds(p.Issuer, p) {
			t.Fatalf("%+v has %v", p, got)
		}
		p.Receiver, p.Issuer = oplog.Mark("10.9.9.9"), "10.9.9.9" // removed since
		if got := holders(r, p); fmt.Sprint(got) != fmt.Sprint(bare) {
			t.Fatalf("%v, %v without masters that left", bare, got)
		}
	}
	for id, load := range loads {
		if even := minions * n / 7; load < even*9/10 || load > even*11/10 {
			t.Errorf("%s stores %d of %d returns, of %v", id, load, minions, loads)
		}
	}
	if even := minions * n / 7; moved < even*9/10 || moved > even*11/10 {
		t.Errorf("%d returns moved when one of 7 masters was removed, which stored %d", moved, loads[all[6].ID])
	}
	if !r.Holds("10.0.0.99", job.Place{JID: "1", ID: "m"}) {
		t.Error("a master that is not known yet does not get all returns")
	}
}

// TestAgree: each master stores all returns while one of them may need them, or there are not more masters than copies.
func TestAgree(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		name   string
		change func(m []Member) []Member
		n, of  int
	}{
		{"five", func(m []Member) []Member { return m }, 3, 5},
		{"three", func(m []Member) []Member { return m[:3] }, 0, 3},
		{"one is of an older version", func(m []Member) []Member { m[2].Known = false; return m }, 0, 5},
		{"one wants all", func(m []Member) []Member { m[2].Copies = 0; return m }, 0, 5},
		{"one wants more", func(m []Member) []Member { m[2].Copies = 4; return m }, 4, 5},
		{"one keeps jobs for longer", func(m []Member) []Member { m[4].Keep = 0; return m }, 0, 5},
		{"one was unreachable for a moment", func(m []Member) []Member { m[1].down = now.Add(-DownTime / 2); return m }, 3, 5},
		{"one is unreachable", func(m []Member) []Member { m[1].down = now.Add(-2 * DownTime); return m }, 3, 4},
		{"two are unreachable", func(m []Member) []Member { m[1].down, m[2].down = now.Add(-2*DownTime), now.Add(-2*DownTime); return m }, 0, 3},
		{"one leaves", func(m []Member) []Member { m[1].leaves = true; return m }, 3, 4},
		{"one leaves while another is unreachable", func(m []Member) []Member { m[1].leaves, m[2].down = true, now; return m }, 0, 3},
	} {
		r := Agree(c.change(members(5, 3)), now)
		if r.N != c.n || len(r.Members) != c.of || c.n == 0 && c.of == 5 && r.Why == "" {
			t.Errorf("%s: %d copies on %v, %q", c.name, r.N, r.Members, r.Why)
		}
	}
}
