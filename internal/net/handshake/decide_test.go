package handshake

import (
	"fmt"
	"testing"
)

// TestDecide has a row for each row of Salt's decision table, in its order.
func TestDecide(t *testing.T) {
	const same, other = true, false
	var (
		ask    = Policy{}
		sign   = Policy{AutoSign: true}
		reject = Policy{AutoReject: true}
		both   = Policy{AutoReject: true, AutoSign: true}
		open   = Policy{Open: true}

		accept = Verdict{Answer: Accept, Act: "accept"}
		denied = Verdict{Answer: Refuse, Store: ToDenied, Act: "denied"}
	)
	for _, c := range []struct {
		known Known
		key   bool
		p     Policy
		want  Verdict
	}{
		// Open mode accepts and stores any key, replacing the old one.
		{Unknown, other, open, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		{Accepted, same, open, accept},
		{Accepted, other, open, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		{Pending, same, open, Verdict{Answer: Accept, Store: ToAccepted, DropPending: true, Act: "accept"}},
		{Pending, other, open, Verdict{Answer: Accept, Store: ToAccepted, DropPending: true, Act: "accept"}},
		{Rejected, same, open, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		{Rejected, other, open, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		{Blocked, other, open, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		// A rejected key stays rejected; the event has no act.
		{Rejected, same, ask, Verdict{Answer: Refuse}},
		{Rejected, other, ask, Verdict{Answer: Refuse}},
		{Rejected, same, sign, Verdict{Answer: Refuse}},
		// An accepted minion must present the same key, whatever the policy is.
		{Accepted, same, ask, accept},
		{Accepted, same, reject, accept},
		{Accepted, other, ask, denied},
		{Accepted, other, sign, denied},
		{Accepted, other, reject, denied},
		// Something that is not a key is in the place of the pending key.
		{Blocked, other, ask, Verdict{Answer: Refuse}},
		{Blocked, other, sign, Verdict{Answer: Refuse}},
		// New minions.
		{Unknown, other, ask, Verdict{Answer: Wait, Store: ToPending, Act: "pend"}},
		{Unknown, other, sign, Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}},
		{Unknown, other, reject, Verdict{Answer: Refuse, Store: ToRejected, Act: "reject"}},
		{Unknown, other, both, Verdict{Answer: Refuse, Store: ToRejected, Act: "reject"}},
		// Pending keys. The first key stays pending.
		{Pending, same, reject, Verdict{Answer: Refuse, Store: ToRejected, DropPending: true, Act: "reject"}},
		{Pending, other, reject, Verdict{Answer: Refuse, Store: ToRejected, DropPending: true, Act: "reject"}},
		{Pending, same, both, Verdict{Answer: Refuse, Store: ToRejected, DropPending: true, Act: "reject"}},
		{Pending, other, ask, denied},
		{Pending, same, ask, Verdict{Answer: Wait, Act: "pend"}},
		{Pending, other, sign, denied},
		{Pending, same, sign, Verdict{Answer: Accept, Store: ToAccepted, DropPending: true, Act: "accept"}},
	} {
		t.Run(fmt.Sprintf("known %d same %t %+v", c.known, c.key, c.p), func(t *testing.T) {
			if got := Decide(c.known, c.key, c.p); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestDecideNeverTrustsAnotherKey checks invariants over all cases.
func TestDecideNeverTrustsAnotherKey(t *testing.T) {
	for known := Unknown; known <= Blocked; known++ {
		for bits := range 8 {
			same, p := bits&1 != 0, Policy{AutoSign: bits&2 != 0, AutoReject: bits&4 != 0}
			v := Decide(known, same, p)
			if v.Answer == Accept && !same && known != Unknown {
				t.Errorf("known %d, another key, %+v: accepted", known, p)
			}
			if v.Answer == Accept && known == Unknown && !p.AutoSign {
				t.Errorf("an unknown minion is accepted with %+v", p)
			}
			if v.Store == ToAccepted && v.Answer != Accept || v.Store != ToAccepted && v.Answer == Accept && known != Accepted {
				t.Errorf("known %d, same %t, %+v: answer and bank do not agree: %+v", known, same, p, v)
			}
			if v.DropPending && known != Pending {
				t.Errorf("known %d: removes a pending key", known)
			}
		}
	}
}
