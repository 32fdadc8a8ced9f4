package roster

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// Prefer sorts members in the order in which a minion tries them. Draining members come last, members of the minion's zone before others,
// then those with lower latency. Equal members are ordered differently for each minion, so that minions are distributed by share. class
// returns the latency class of a member (see Latency). Unknown ones count as 0, so that the minion measures them; nil means the same class
// for all.
//
// When a share changes, or a member is added or removed, minions move only to or from that member, not between the others.
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

// score returns a pseudo-random, stable score of a master for a minion; the minion prefers the highest. The probability of being preferred
// is proportional to the share (weighted rendezvous hashing): with u uniform between 0 and 1, each of n values -1/ln(u) is the greatest
// equally often, and a factor w makes that w times as likely.
func score(minion string, m Member) float64 {
	share := m.Share
	if share == 0 {
		share = FullShare
	}
	sum := sha256.Sum256([]byte(minion + "\x00" + m.ID))
	const bits = 53 // precision of a float64
	u := (float64(binary.BigEndian.Uint64(sum[:])>>(64-bits)) + 0.5) / (1 << bits)
	return -float64(share) / math.Log(u)
}
