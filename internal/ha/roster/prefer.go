package roster

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Prefer puts members in the order in which a minion tries them: those that
// drain last, those of its zone before others, of these the ones that answer
// more quickly, and of equals each minion another one first, so that they have
// minions by their shares. class says how quickly a member answers, 0 the most
// quickly (see Latency); one that is not known counts as 0, so that the minion
// gets to know it. nil is the same for all.
//
// When a share changes, or a member comes or goes, only minions of that member
// have another order of the others' first, or those that it gets: nobody goes
// from one of the others to another one.
func Prefer(members []Member, minion, zone string, class func(id string) int) []Member {
	type ranked struct {
		Member
		rank  int
		score float64
	}
	all := make([]ranked, 0, len(members))
	for _, m := range members {
		r := ranked{Member: m, score: score(minion, m)}
		if class != nil {
			r.rank = min(max(class(m.ID), 0), maxClasses)
		}
		if zone != "" && m.Zone != zone {
			r.rank += maxClasses + 1
		}
		if m.Draining {
			r.rank += 2 * (maxClasses + 1)
		}
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b ranked) int {
		switch {
		case a.rank != b.rank:
			return a.rank - b.rank
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	})
	out := make([]Member, len(all))
	for i, r := range all {
		out[i] = r.Member
	}
	return out
}

// score is that of a master for a minion, by chance, and always the same: the
// highest of each minion is preferred. The chance to be that is as great as the
// share among all shares (weighted rendezvous hashing): with u even between 0
// and 1, -1/ln(u) is the greatest of n as often as any, and a factor w makes
// that w times as often.
func score(minion string, m Member) float64 {
	share := m.Share
	if share == 0 {
		share = FullShare
	}
	sum := sha256.Sum256([]byte(minion + "\x00" + m.ID))
	const bits = 53 // that a float64 holds
	u := (float64(binary.BigEndian.Uint64(sum[:])>>(64-bits)) + 0.5) / (1 << bits)
	return -float64(share) / math.Log(u)
}
