package voter

import (
	"maps"
	"slices"

	"brine/internal/ha/lease"
)

// A group that begins must know all grants and claims of earlier groups. Each entry of an earlier group is on a majority of its voters, so a
// majority of them must have left the group and reported what they knew. A majority of the new group is not enough: if only one of its voters
// was in the earlier group, that one may have missed the last entries. Each voter reports the groups to which it belonged. A later group that
// has begun includes the knowledge of the earlier ones.

// leftGroup adds the group of a disk to the earlier groups of a voter. begun means that the group has recorded the knowledge of earlier ones.
func leftGroup(from []lease.Origin, s *saved, begun bool) []lease.Origin {
	if s.Number == 0 || len(s.Voters) == 0 {
		return from // the voter was not in a group
	}
	o := lease.Origin{Generation: s.Generation, Voters: s.Voters, Complete: begun, Lost: s.snap == nil && len(s.entries) == 0}
	if begun {
		from = nil
	}
	from = slices.DeleteFunc(slices.Clone(from), o.Same)
	return append(from, o)
}

// awaited returns the voters of an earlier group of which no majority has reported yet (former), and those of them that have not reported
// (missing). known are the reports of the voters of a group of this generation.
func awaited(known map[string]lease.Before, generation uint64) (former, missing []string) {
	begun, newest := false, uint64(0)
	for _, b := range known {
		for _, o := range b.From {
			if o.Complete && o.Generation < generation && (!begun || o.Generation > newest) {
				begun, newest = true, o.Generation
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		for _, o := range known[name].From {
			// A voter may have moved to a later group and back to this one.
			if o.Generation >= generation || begun && o.Generation < newest {
				continue
			}
			missing := slices.DeleteFunc(slices.Clone(o.Voters), func(v string) bool {
				return slices.ContainsFunc(known[v].From, func(p lease.Origin) bool { return o.Same(p) && !p.Lost })
			})
			if len(o.Voters)-len(missing) <= len(o.Voters)/2 && len(o.Voters) > 0 {
				return o.Voters, missing
			}
		}
	}
	return nil, nil
}
