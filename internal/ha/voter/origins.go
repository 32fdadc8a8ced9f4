package voter

import (
	"maps"
	"slices"

	"brine/internal/ha/lease"
)

// A group that begins must know all that earlier groups granted and recorded. Each entry of an earlier group is on a majority of its voters, so
// a majority of them must have left it and have said what it knew: any voters of the new group are not enough, since the only one of them that
// was in the earlier group may have missed the last entries. A voter says which groups it was in. A later group that has begun knows what the
// earlier ones knew.

// leftGroup adds the group of a disk to those that a voter was in. begun says that the group has recorded what earlier ones knew.
func leftGroup(from []lease.Origin, s *saved, begun bool) []lease.Origin {
	if s.Number == 0 || len(s.Voters) == 0 {
		return from // it had no part in it
	}
	o := lease.Origin{Generation: s.Generation, Voters: s.Voters, Complete: begun, Lost: s.snap == nil && len(s.entries) == 0}
	if begun {
		from = nil
	}
	from = slices.DeleteFunc(slices.Clone(from), o.Same)
	return append(from, o)
}

// awaited returns the voters of an earlier group of which a majority has not said yet what it knew, and those that have not. known is what voters
// of a group with a generation have said.
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
			// A voter may have gone to a later group and come back to this one.
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
