package lease

import (
	"context"
	"slices"
	"time"

	"brine/internal/base/salt"
)

// List is the list of voters of a group.
type List struct {
	// Group is the fingerprint of the list that the group began with.
	Group string `json:"group"`
	// Names are the voters, Learners those that have been added and do not vote yet.
	Names    []string `json:"names"`
	Learners []string `json:"learners,omitempty"`
	// Changed is the entry in the log of the group by which a command changed the list, 0 if it is that of the configuration.
	Changed uint64 `json:"changed,omitempty"`
}

// maxNames bounds the voters of a list.
const maxNames = 64

// check rejects what is no list.
func (l List) check() bool {
	return len(l.Names) > 0 && len(l.Names) <= maxNames && len(l.Group) <= maxNames &&
		!slices.ContainsFunc(l.Names, func(name string) bool { return checkVoter(name) != nil })
}

// Change is how far a change of the voters is.
type Change string

const (
	// ChangeBegun says that it goes on, ChangeBusy that another one must end before.
	ChangeBegun Change = "begun"
	ChangeBusy  Change = "busy"
	// ChangeDone says that a voter to be added votes, ChangeAbsent that one to be removed is no voter.
	ChangeDone   Change = "done"
	ChangeAbsent Change = "absent"
	// ChangeRefused says that it is not made.
	ChangeRefused Change = "refused"
)

// List returns the voters as far as this master knows.
func (h *Holder) List() List {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list
}

// all returns the voters and those of the configuration: of a list that was changed meanwhile one may be left that knows the others.
func (h *Holder) all() []string {
	names := slices.Concat(h.List().Names, h.voters.Names)
	slices.Sort(names)
	return slices.Compact(names)
}

// Learn takes the list of an answer if it is a later one. The one of the leader counts, also after the voters began again with the list of the
// configuration.
func (h *Holder) Learn(a Answer) {
	if a.List == nil || !a.List.check() {
		return
	}
	h.mu.Lock()
	was, now := h.list, *a.List
	later := now.Changed > was.Changed || a.Leads && now.Changed != was.Changed && now.Changed > 0
	back := now.Changed == 0 && was.Changed > 0 && a.Leads && now.Group == h.voters.Group
	take := (later || back) && (now.Group != was.Group || now.Changed != was.Changed)
	if take {
		h.list = now
	}
	h.mu.Unlock()
	if take && h.voters.Learned != nil {
		h.voters.Learned(now)
	}
}

// Know sets the list that was learned before the last restart.
func (h *Holder) Know(l List) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.check() {
		h.list = l
	}
}

// changeBeat is the interval in which a change is asked for until it is made.
const changeBeat = 250 * time.Millisecond

// ChangeVoters adds or removes a voter, and waits until that is done. It is given up when ctx ends; a voter that was added may still get the
// right to vote then. It returns the new list.
func (h *Holder) ChangeVoters(ctx context.Context, op Op, id string, force bool) (List, error) {
	if err := checkVoter(id); err != nil {
		return List{}, err
	}
	begun, why := false, "no voter has answered as the leader of a majority"
	for {
		a := h.askLeader(ctx, Request{Op: op, Voter: id, Force: force})
		switch {
		case a.Change == ChangeRefused && op == RemoveVoter:
			return List{}, salt.Errorf(salt.Invalid, "%s is not removed: %.500s", id, a.Reason)
		case a.Change == ChangeRefused:
			return List{}, salt.Errorf(salt.Invalid, "%s is not added: %.500s", id, a.Reason)
		case a.Change == ChangeDone && !begun:
			return h.List(), salt.Errorf(salt.Exists, "%s is a voter already", id)
		case a.Change == ChangeAbsent && !begun:
			return h.List(), salt.Errorf(salt.NotFound, "%s is not a voter", id)
		case a.Change == ChangeDone, a.Change == ChangeAbsent:
			return h.List(), nil
		case a.Change == ChangeBegun, a.Change == ChangeBusy:
			begun, why = begun || a.Change == ChangeBegun, a.Reason
		case a.Why != "":
			why = a.Why
		}
		select {
		case <-ctx.Done():
			return List{}, salt.Errorf(salt.Unavailable, "the voters are not changed: %s: %.500s", id, why)
		case <-time.After(changeBeat):
		}
	}
}

// askLeader asks all voters, and returns the answer of the one that leads.
func (h *Holder) askLeader(ctx context.Context, r Request) (leader Answer) {
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	answers, n := h.askAll(ctx, r, h.all())
	for range n {
		a := <-answers
		switch {
		case a.err == nil && a.Change != "":
			return a.Answer
		case a.err == nil && a.Leads && a.Why != "":
			leader.Why = a.Why
		}
	}
	return leader
}
