package master

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// askDigest is the query with which masters compare their state.
const askDigest = "digest"

// checkTime bounds the wait for the digests of others.
const checkTime = time.Minute

// comparison checks whether all masters of a cluster have the same state.
type comparison struct {
	replicated *replicated
	revisions  *revisions
	jobs       jobStore
}

// digest returns this master's part of the comparison: for each section a map
// of names to short checksums.
func (x *comparison) digest() *value.Dict {
	d := value.NewDict(len(x.replicated.mirrors) + 2)
	for _, kind := range slices.Sorted(maps.Keys(x.replicated.mirrors)) {
		mirror := x.replicated.mirrors[kind]
		sums := value.NewDict(0)
		err := mirror.Each(func(name string, content []byte) { sums.Set(name, shortSum(content)) })
		if err != nil {
			d.Set("error", err.Error())
		}
		if isSecretName(kind) {
			sums = hidden(sums)
		}
		d.Set(kind, sums)
	}
	jobs, returns := value.NewDict(0), value.NewDict(0)
	list, err := x.jobs.List(job.Filter{})
	for _, j := range list {
		slices.Sort(j.Minions)
		jobs.Set(j.JID, shortSum(fmt.Append(nil, value.Str(j.Load), j.Minions)))
		sums, rerr := x.sums(j.JID)
		if err == nil {
			err = rerr
		}
		for id, sum := range sums {
			returns.Set(j.JID+"/"+id, sum)
		}
	}
	if err != nil {
		d.Set("error", err.Error())
	}
	d.Set(kindTree, x.revisions.trees())
	d.Set("job", jobs)
	d.Set(sectionReturns, returns)
	return d
}

// sectionReturns is the section of the checksums of returns. Earlier versions have other
// checksums of them, in a section with the name that is shown.
const sectionReturns = "returns"

// sums returns the checksums of the returns of a job, also of those that only other masters have.
func (x *comparison) sums(jid string) (map[string]string, error) {
	if s, ok := x.jobs.(*job.Store); ok {
		return s.ReturnSums(jid)
	}
	return nil, nil
}

// hidden replaces secret names.
func hidden(sums *value.Dict) *value.Dict {
	out := value.NewDict(sums.Len())
	for k, v := range sums.All() {
		out.Set(shortSum([]byte(value.Str(k))), v)
	}
	return out
}

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// maxDifferences bounds the differences shown per section.
const maxDifferences = 100

// check compares the state of all reachable masters.
func (x *comparison) check(ctx context.Context) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	all := x.replicated.cluster.Queries.Ask(ctx, askDigest)
	all[x.replicated.id] = x.digest()
	masters := slices.Sorted(maps.Keys(all))
	silent := &value.List{}
	for _, p := range x.replicated.cluster.Members() {
		if all[p.ID] == nil && !p.Gone {
			silent.Append(p.ID)
		}
	}
	counts, differences := value.NewDict(8), value.NewDict(0)
	for _, section := range []string{kindKey, kindPeer, kindMember, kindShare, kindRoster, kindSecret, kindSession, kindRemoved, kindRotated, kindToken,
		kindMinion, kindTree, "job", "return"} {
		names, shown := map[string]bool{}, section
		if section == "return" {
			section = sectionReturns
		}
		for _, d := range all {
			for k := range d.Dict(section).All() {
				names[value.Str(k)] = true
			}
		}
		counts.Set(shown, int64(len(names)))
		diff := value.NewDict(0)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			by := value.NewDict(len(masters))
			sums := map[string]bool{}
			for _, id := range masters {
				if !all[id].Has(section) {
					continue // its version does not know this kind
				}
				sum := all[id].Dict(section).Str(name)
				by.Set(id, sum)
				sums[sum] = true
			}
			if len(sums) > 1 && diff.Len() < maxDifferences {
				diff.Set(name, by)
			}
		}
		if diff.Len() > 0 {
			differences.Set(shown, diff)
		}
	}
	for id, d := range all {
		var digest wire.Digest
		wire.View(d, &digest)
		if digest.Error != "" {
			silent.Append(fmt.Sprintf("%s: %s", id, digest.Error))
		}
	}
	return value.DictOf("masters", value.Strings(masters), "silent", silent, "counts", counts, "differences", differences,
		"equal", differences.Len() == 0 && silent.Len() == 0), nil
}
