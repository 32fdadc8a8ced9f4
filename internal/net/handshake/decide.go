package handshake

// Known says what the master knows of a minion id.
type Known uint8

// What a master can know of an id. Blocked means that something that is not a
// key stands in the place of its pending key.
const (
	Unknown Known = iota
	Accepted
	Pending
	Rejected
	Blocked
)

// Bank names the set of keys that an offered key is written to.
type Bank uint8

// The banks, and None for leaving all as it is.
const (
	None Bank = iota
	ToAccepted
	ToPending
	ToRejected
	ToDenied
)

// Answer is what the minion is told.
type Answer uint8

// The answers.
const (
	Refuse Answer = iota // ret False
	Wait                 // ret True: the key waits for acceptance
	Full                 // ret "full": max_minions reached
	Accept
)

// Policy is how the master treats keys that it does not know, for one id.
type Policy struct {
	Open       bool // open_mode: any key is taken
	AutoSign   bool
	AutoReject bool
	// Rule is the name of what says so, for those who ask later.
	Rule string
}

// Verdict is what is done about one sign-in.
type Verdict struct {
	Answer Answer
	// Store is where the offered key goes.
	Store Bank
	// DropPending tells to remove the pending key.
	DropPending bool
	// Act is the word in the salt/auth event; "" for a key that had been
	// rejected before, as Salt 3007 sends it.
	Act string
}

// Decide is the decision table of Salt's master: what happens to a sign-in of
// an id of which known is known, with sameKey telling whether the offered key
// is the one on file.
func Decide(known Known, sameKey bool, p Policy) Verdict {
	if p.Open {
		v := Verdict{Answer: Accept, Act: "accept", DropPending: known == Pending}
		if known != Accepted || !sameKey {
			v.Store = ToAccepted
		}
		return v
	}
	switch known {
	case Rejected:
		return Verdict{Answer: Refuse}
	case Accepted:
		if !sameKey {
			return Verdict{Answer: Refuse, Store: ToDenied, Act: "denied"}
		}
		return Verdict{Answer: Accept, Act: "accept"}
	case Blocked:
		return Verdict{Answer: Refuse}
	case Pending:
		return decidePending(sameKey, p)
	}
	switch {
	case p.AutoReject:
		return Verdict{Answer: Refuse, Store: ToRejected, Act: "reject"}
	case p.AutoSign:
		return Verdict{Answer: Accept, Store: ToAccepted, Act: "accept"}
	}
	return Verdict{Answer: Wait, Store: ToPending, Act: "pend"}
}

// decidePending keeps the first key that was offered: another one may be an
// impostor's, so it is denied until the operator has deleted the first.
func decidePending(sameKey bool, p Policy) Verdict {
	switch {
	case p.AutoReject:
		return Verdict{Answer: Refuse, Store: ToRejected, DropPending: true, Act: "reject"}
	case !sameKey:
		return Verdict{Answer: Refuse, Store: ToDenied, Act: "denied"}
	case p.AutoSign:
		return Verdict{Answer: Accept, Store: ToAccepted, DropPending: true, Act: "accept"}
	}
	return Verdict{Answer: Wait, Act: "pend"}
}
