package handshake

// Known is what the master knows about a minion id.
type Known uint8

// Known states of an id. Blocked means that something that is not a key is in the place of its
// pending key.
const (
	Unknown Known = iota
	Accepted
	Pending
	Rejected
	Blocked
)

// Bank names the set of keys to which an offered key is written.
type Bank uint8

// The banks, and None for no change.
const (
	None Bank = iota
	ToAccepted
	ToPending
	ToRejected
	ToDenied
)

// Answer is the answer to the minion.
type Answer uint8

// The answers.
const (
	Refuse Answer = iota // ret False
	Wait                 // ret True: the key is pending
	Full                 // ret "full": max_minions reached
	Accept
)

// Policy is how the master treats unknown keys, for one id.
type Policy struct {
	Open       bool // open_mode: any key is accepted
	AutoSign   bool
	AutoReject bool
	// Rule is the name of the option that decided, for the record of the key.
	Rule string
}

// Verdict is the result of one sign-in.
type Verdict struct {
	Answer Answer
	// Store is the bank for the offered key.
	Store Bank
	// DropPending says that the pending key must be removed.
	DropPending bool
	// Act is the value of act in the salt/auth event; "" for a key that had been rejected before,
	// as in Salt 3007.
	Act string
}

// Decide is the decision table of Salt's master for a sign-in. known is the state of the id,
// sameKey says whether the offered key is the one on file.
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

// decidePending keeps the key that was offered first: another one may be an attacker's, so it is
// denied until the operator has deleted the first.
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
