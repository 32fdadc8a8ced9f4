package master

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/ha/copies"
	"brine/internal/ha/replica"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Queries between masters about copies of returns: the contents of returns, and whether the
// asking master may leave.
const (
	askReturns = "returns"
	askRelease = "release"
)

// newCopies returns what keeps the copies of returns on this master; nil if jobs are not replicated.
func newCopies(id string, c *cluster.Cluster, jobs jobStore, log *slog.Logger) *copies.Keeper {
	s, ok := jobs.(*job.Store)
	if !ok || s.Stream() == nil {
		return nil
	}
	k := &copies.Keeper{Store: s.Stream(), Members: func() []copies.Member { return copyMembers(id, c) }, Ask: askContentsOf(c), Self: id, Log: log}
	s.Stream().Fetch(k.Contents, k.Where)
	return k
}

// copyMembers returns the members with their settings for copies.
func copyMembers(id string, c *cluster.Cluster) []copies.Member {
	out := []copies.Member{{ID: id, Up: true}}
	for _, m := range c.Members() {
		if !m.Gone {
			out = append(out, copies.Member{ID: m.ID, Up: m.Up, Full: m.Refuses[streamJobs] != ""})
		}
	}
	for i := range out {
		out[i].Copies, out[i].Keep, out[i].Known = c.Copies(out[i].ID)
	}
	return out
}

// ownCopies returns the number of masters on which this one wants each return, 0 for all, and how
// many seconds it keeps them. Some uses need all returns on this master.
func ownCopies(cfg *Config, files bool) (n int, keep int64) {
	if cfg.Cluster.Record == "" && cfg.Jobs.JobCache && !files {
		n = cfg.Cluster.Copies
	}
	return n, int64(cfg.Jobs.Keep().Seconds())
}

// askContentsOf returns a function that asks another master for contents of returns.
func askContentsOf(c *cluster.Cluster) func(ctx context.Context, peer string, names []string) (map[string][]byte, int, error) {
	return func(ctx context.Context, peer string, names []string) (map[string][]byte, int, error) {
		if _, _, known := c.Copies(peer); !known {
			return askOlder(ctx, c, peer, names)
		}
		d, err := c.Queries.AskOne(ctx, peer, askReturns, wire.Encode(&wire.ReturnsQuestion{Names: value.Strings(names)}))
		if err != nil {
			return nil, 0, err
		}
		var in wire.ReturnsAnswer
		wire.View(d, &in)
		asked := map[string]bool{}
		for _, name := range names {
			asked[name] = true
		}
		out := map[string][]byte{}
		for _, it := range value.Items(in.Contents) {
			pair, _ := it.(*value.List)
			if pair.Len() != 2 {
				return nil, 0, salt.Errorf(salt.Invalid, "%s sent an invalid answer", peer)
			}
			name, _ := pair.Items[0].(string)
			raw, _ := pair.Items[1].([]byte)
			if !asked[name] || len(raw) == 0 {
				return nil, 0, salt.Errorf(salt.Invalid, "%s sent another return than was asked for", peer)
			}
			out[name] = raw
		}
		return out, int(in.Done), nil
	}
}

// olderNames bounds the contents that askOlder gets at once: each one is a query.
const olderNames = 32

// askOlder gets contents from a master of a version without askReturns.
func askOlder(ctx context.Context, c *cluster.Cluster, peer string, names []string) (out map[string][]byte, done int, err error) {
	ask := askFor(c, askJobSums)
	out = map[string][]byte{}
	for _, name := range names[:min(len(names), olderNames)] {
		content, err := replica.AskReturn(ctx, func(ctx context.Context, question []byte) ([]byte, error) { return ask(ctx, peer, question) }, name)
		if err != nil && done == 0 {
			return nil, 0, err
		}
		if err != nil {
			break
		}
		if done++; content != nil {
			out[name] = content
		}
	}
	return out, done, nil
}

// answerContents answers a query for contents of returns.
func answerContents(k *copies.Keeper, log *slog.Logger) func(arg *value.Dict) *value.Dict {
	return func(arg *value.Dict) *value.Dict {
		var in wire.ReturnsQuestion
		wire.View(arg, &in)
		contents, done, err := k.Answer(value.OnlyTexts(in.Names))
		if err != nil {
			log.Debug("cannot read returns for another master", "err", err)
			return value.NewDict(0)
		}
		pairs := &value.List{}
		for name, raw := range contents {
			pairs.Append(&value.List{Items: []any{name, raw}})
		}
		return wire.Encode(&wire.ReturnsAnswer{Contents: pairs, Done: int64(done)})
	}
}

// answerRelease answers whether this master can do without the asking one.
func answerRelease(k *copies.Keeper) func(peer string, _ *value.Dict) *value.Dict {
	return func(peer string, _ *value.Dict) *value.Dict {
		return wire.Encode(&wire.ReleaseAnswer{Done: k.Release(peer)})
	}
}

// released reports whether all reachable masters can do without this one, which is about to leave.
// Masters of an older version store all returns.
func released(ctx context.Context, c *cluster.Cluster) bool {
	answers := c.Queries.Ask(ctx, askRelease)
	for _, m := range c.Members() {
		if _, _, known := c.Copies(m.ID); m.Gone || !m.Up || !known {
			continue
		}
		var in wire.ReleaseAnswer
		wire.View(answers[m.ID], &in)
		if !in.Done {
			return false
		}
	}
	return true
}

// oldestCopy returns the age in seconds of the oldest return without enough copies.
func oldestCopy(st copies.Status, now time.Time) float64 {
	oldest := 0.0
	for _, jid := range []string{st.Lost, st.Oldest} {
		if at, err := salt.JIDTime(jid); err == nil {
			oldest = max(oldest, now.Sub(at).Seconds())
		}
	}
	return oldest
}

// unstored returns in one line why this master cannot store changes of others.
func unstored(why map[string]string) string {
	var parts []string
	for _, stream := range slices.Sorted(maps.Keys(why)) {
		parts = append(parts, stream+": "+why[stream])
	}
	return strings.Join(parts, "; ")
}

// copiesStatus returns the state of the copies for the status of the cluster.
func copiesStatus(k *copies.Keeper) *value.Dict {
	st := k.Status()
	return value.DictOf("copies", int64(st.Copies), "masters", int64(st.Masters), "reason", st.Why, "missing", int64(st.Missing), "lost", st.Lost,
		"few", int64(st.Few), "oldest", st.Oldest, "senseless", st.Senseless)
}
