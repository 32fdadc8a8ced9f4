package voter

import (
	"encoding/json"
	"maps"
	"slices"

	"brine/internal/ha/lease"
)

// state is the result of applying the log: the lease, the claims and the members. It contains no times, so that it is the same on all
// voters.
type state struct {
	// Floor plus the index of an entry is the token of a grant. While it is 0 no lease is granted, because it is unknown which tokens
	// were granted before this group existed.
	Floor uint64 `json:"floor"`
	// Token is the greatest granted token. Holder is its holder, "" after a release.
	Token  uint64 `json:"token"`
	Holder string `json:"holder"`
	// Granted means that this group has granted a lease.
	Granted bool `json:"granted"`
	lease.Claims
	// Members maps the numbers of the voters in the group to their names.
	Members map[uint64]string `json:"members"`
	// Gone are the numbers of voters that were replaced or removed.
	Gone []uint64 `json:"gone,omitempty"`
	// Learners get the log and do not vote yet.
	Learners map[uint64]string `json:"learners,omitempty"`
	// Changed is the index of the last entry by which a command changed the voters, 0 if they are the initial ones.
	Changed uint64 `json:"changed,omitempty"`
	// Left maps the names of removed voters to the entries that removed them.
	Left map[string]uint64 `json:"left,omitempty"`
}

func newState() *state {
	return &state{Claims: lease.Claims{By: map[string]string{}}, Members: map[uint64]string{},
		Learners: map[uint64]string{}, Left: map[string]uint64{}}
}

func readState(b []byte) (*state, error) {
	s := newState()
	err := json.Unmarshal(b, s)
	if s.Members == nil {
		s.Members = map[uint64]string{}
	}
	if s.By == nil {
		s.By = map[string]string{}
	}
	if s.Learners == nil {
		s.Learners = map[uint64]string{}
	}
	if s.Left == nil {
		s.Left = map[string]uint64{}
	}
	return s, err
}

func (s *state) bytes() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // it has only strings and numbers
	}
	return b
}

// names returns the members, sorted.
func (s *state) names() []string { return slices.Sorted(maps.Values(s.Members)) }

// learners returns the names of the learners, sorted.
func (s *state) learners() []string { return slices.Sorted(maps.Values(s.Learners)) }

// nameOf returns the name of a voter or learner, "" if it is neither.
func (s *state) nameOf(number uint64) string {
	if name := s.Members[number]; name != "" {
		return name
	}
	return s.Learners[number]
}

// numberOf returns the number of a voter or learner, 0 if it is neither.
func (s *state) numberOf(name string) uint64 {
	for _, m := range []map[uint64]string{s.Members, s.Learners} {
		for number, of := range m {
			if of == name {
				return number
			}
		}
	}
	return 0
}

// command is an entry of the log.
type command struct {
	Op commandOp `json:"op"`
	// ID identifies the request on the leader that proposed the entry.
	ID     uint64 `json:"id"`
	Holder string `json:"holder,omitempty"`
	// Token is the holder's token. In a grant it is the greatest token known to the leader before.
	Token  uint64        `json:"token,omitempty"`
	Claim  string        `json:"claim,omitempty"`
	Before *lease.Before `json:"before,omitempty"`
}

type commandOp string

const (
	opBegin   commandOp = "begin"
	opGrant   commandOp = "grant"
	opRelease commandOp = "release"
	opClaim   commandOp = "claim"
)

// apply changes the state, and returns the answer for the requester.
func (s *state) apply(index uint64, c command) lease.Answer {
	var a lease.Answer
	switch c.Op {
	case opBegin:
		if s.Floor == 0 && c.Before != nil {
			s.Floor = max(c.Before.Seen, 1)
			s.Token = c.Before.Seen
			s.Merge(c.Before.Claims)
		}
	case opGrant:
		// If there was another grant in between, the leader did not know the present holder.
		if s.Floor > 0 && s.Token == c.Token {
			s.Token, s.Holder, s.Granted = s.Floor+index, c.Holder, true
			a.Granted = true
		}
	case opRelease:
		if s.Token == c.Token && s.Holder == c.Holder {
			s.Holder = ""
		}
	case opClaim:
		if s.Token == c.Token && s.Holder == c.Holder && c.Holder != "" {
			a.By = s.Record(c.Claim, c.Holder)
			a.Claimed = a.By == ""
		}
	}
	a.Seen, a.Holder = s.Token, s.Holder
	return a
}
