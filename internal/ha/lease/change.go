package lease

import (
	"context"
	"slices"
	"time"

	"brine/internal/base/salt"
)

// List is the list of voters of a group.
type List struct {
	// Group is the fingerprint of the group's first list.
	Group string `json:"group"`
	// Names are the voters. Learners are added voters that do not vote yet.
	Names    []string `json:"names"`
	Learners []string `json:"learners,omitempty"`
	// Changed is the index of the log entry by which a command changed the list, 0 if the list is the configured one.
	Changed uint64 `json:"changed,omitempty"`
}

// maxNames bounds the voters of a list.
const maxNames = 64

// check reports whether the list is valid.
func (l List) check() bool {
	return len(l.Names) > 0 && len(l.Names) <= maxNames && len(l.Group) <= maxNames &&
		!slices.ContainsFunc(l.Names, func(name string) bool { return checkVoter(name) != nil })
}

// Change is the progress of a change of the voters.
type Change string

const (
	// ChangeBegun means that the change is in progress, ChangeBusy that another change must finish first.
	ChangeBegun Change = "begun"
	ChangeBusy  Change = "busy"
	// ChangeDone means that an added voter votes, ChangeAbsent that a removed one is no longer a voter.
	ChangeDone   Change = "done"
	ChangeAbsent Change = "absent"
	// ChangeRefused means that the change was rejected.
	ChangeRefused Change = "refused"
)

// List returns the voters known to this master.
func (h *Holder) List() List {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.list
}

// all returns the known voters and the configured ones. If the list was changed meanwhile, one of the configured voters may still be in use
// and know the others.
func (h *Holder) all() []string {
	names := slices.Concat(h.List().Names, h.voters.Names)
	slices.Sort(names)
	return slices.Compact(names)
}

// Learn stores the list in an answer if it is newer. The leader's list always wins, also after the voters started again with the configured
// list.
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

// Know sets the list that was stored before the last restart.
func (h *Holder) Know(l List) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l.check() {
		h.list = l
	}
}

// changeBeat is the interval at which a change is requested until it is done.
const changeBeat = 250 * time.Millisecond

// ChangeVoters adds or removes a voter, waits until that is done, and returns the new list. It fails when ctx ends; an added voter may still
// become a full voter after that.
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

// askLeader queries all voters, and returns the answer of the leader.
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
