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
		rets, rerr := x.jobs.Returns(j.JID)
		if err == nil {
			err = rerr
		}
		for id, r := range rets {
			returns.Set(j.JID+"/"+id, shortSum([]byte(value.Str(r))))
		}
	}
	if err != nil {
		d.Set("error", err.Error())
	}
	d.Set(kindTree, x.revisions.trees())
	d.Set("job", jobs)
	d.Set("return", returns)
	return d
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
		names := map[string]bool{}
		for _, d := range all {
			for k := range d.Dict(section).All() {
				names[value.Str(k)] = true
			}
		}
		counts.Set(section, int64(len(names)))
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
			differences.Set(section, diff)
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
