// Package copies decides which masters of a cluster without a shared directory store a return, and gets
// this master the returns that it has to store and lacks. It has no sockets. See docs/adr/0041.
package copies

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

// Member is a master of the cluster, as this one sees it.
type Member struct {
	ID string
	// Known reports whether the member has published Copies and Keep. Older versions do not.
	Known bool
	// Copies is the number of masters on which the member wants each return, 0: all.
	Copies int
	// Keep is how long it keeps jobs, in seconds.
	Keep int64
	// Up reports whether it is reachable.
	Up bool
	// Full reports whether it is reachable and cannot store returns, because its disk is full or read-only. It still answers for those
	// that it has.
	Full bool
	// down is since when it is unreachable or cannot store returns, leaves that it is about to leave the cluster.
	down   time.Time
	leaves bool
}

// Rule decides which masters store a return. Masters with the same members have the same rule.
type Rule struct {
	// N is the number of copies, 0 for one on each member.
	N int
	// Why is the reason for N = 0, "" if it is the configured number.
	Why string
	// Members are the ids of the members that count, sorted.
	Members []string
	// unsure means that N = 0 may be for a moment only: a member has not published its settings yet.
	unsure bool

	marks  []string
	hashes []uint64
}

// DownTime is how long a member may be unreachable, or unable to store returns, before others store the copies that it should have.
const DownTime = 10 * time.Minute

// Agree returns the rule for some members, this master included.
func Agree(members []Member, now time.Time) *Rule {
	r := &Rule{}
	most := 0
	// An unreachable member may never get what a leaving one has.
	leaves := slices.ContainsFunc(members, func(m Member) bool { return m.leaves })
	for i, m := range members {
		switch {
		case !m.Known:
			r.Why, r.unsure = m.ID+" has a version that needs all returns, or has not started yet", true
		case m.Copies <= 0 && r.Why == "":
			r.Why = m.ID + " needs all returns"
		case i > 0 && members[0].Known && m.Keep != members[0].Keep && r.Why == "":
			r.Why = fmt.Sprintf("keep_jobs_seconds of %s and %s differ", members[0].ID, m.ID)
		}
		most = max(most, m.Copies)
		if !m.leaves && (m.down.IsZero() || !leaves && now.Sub(m.down) < DownTime) {
			r.Members = append(r.Members, m.ID)
		}
	}
	if r.Why == "" && most < len(r.Members) {
		r.N = most
	}
	slices.Sort(r.Members)
	for _, id := range r.Members {
		h := fnv.New64a()
		h.Write([]byte(id))
		r.marks = append(r.marks, oplog.Mark(id))
		r.hashes = append(r.hashes, h.Sum64())
	}
	return r
}

// Equal reports whether two rules decide the same.
func (r *Rule) Equal(o *Rule) bool {
	return o != nil && r.N == o.N && slices.Equal(r.Members, o.Members)
}

// Holds implements job.Holds. The receiver and the issuer of a return store it, and as many others as are missing
// to N: those with the highest score for this return. A master that is not one of the members may be a new
// one, and stores all.
func (r *Rule) Holds(master string, p job.Place) bool {
	at, known := slices.BinarySearch(r.Members, master)
	if r.N == 0 || !known || r.marks[at] == p.Receiver || master == p.Issuer {
		return true
	}
	seats := r.N
	base := hashOf(p)
	own := score(base, r.hashes[at])
	for i, id := range r.Members {
		if r.marks[i] == p.Receiver || id == p.Issuer {
			seats--
			continue
		}
		if s := score(base, r.hashes[i]); s > own || s == own && i < at {
			seats--
		}
	}
	return seats > 0
}

// order sorts masters by how probable it is that they have a return.
func (r *Rule) order(p job.Place, masters []string) []string {
	base := hashOf(p)
	rank := func(id string) uint64 {
		i, known := slices.BinarySearch(r.Members, id)
		switch {
		case known && r.marks[i] == p.Receiver, id == p.Issuer:
			return 1<<64 - 1
		case known:
			return score(base, r.hashes[i]) >> 1
		}
		return 0
	}
	out := slices.Clone(masters)
	slices.SortStableFunc(out, func(a, b string) int { return cmp.Compare(rank(b), rank(a)) })
	return out
}

func hashOf(p job.Place) uint64 {
	h := fnv.New64a()
	h.Write([]byte(p.JID))
	h.Write([]byte{0})
	h.Write([]byte(p.ID))
	return h.Sum64()
}

// score mixes two hashes, so that each bit of the result depends on all of theirs (the end of MurmurHash3).
func score(a, b uint64) uint64 {
	x := a ^ b*0x9e3779b97f4a7c15
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
