package master

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// askSums and askJobSums are the queries with which masters continuously compare checksums of
// their records, and of their jobs and returns.
const (
	askSums    = "sums"
	askJobSums = "jobsums"
)

// newRecordWatch returns the continuous comparison of records.
func newRecordWatch(c *replicated, bus *event.Bus, log *slog.Logger) *replica.Watch {
	return &replica.Watch{
		Source: c.records, Kinds: slices.Sorted(maps.Keys(c.mirrors)), Show: shownName, Log: log,
		Peers: comparedWith(c.cluster), Ask: askFor(c.cluster, askSums), Found: tellDifference(bus, log),
	}
}

// newJobWatch returns the continuous comparison of jobs and returns; nil if jobs are not
// replicated.
func newJobWatch(c *cluster.Cluster, jobs jobStore, bus *event.Bus, log *slog.Logger) *replica.Watch {
	s, ok := jobs.(*job.Store)
	if !ok || s.Stream() == nil {
		return nil
	}
	return &replica.Watch{
		Source: replica.NewJobs(s), Kinds: []string{replica.KindJob}, Union: true, Show: replica.ShowJob, Log: log,
		Peers: comparedWith(c), Ask: askFor(c, askJobSums), Found: tellDifference(bus, log),
	}
}

// differing returns the number of differences that the watches have found. Nil watches count as
// none.
func differing(watches ...*replica.Watch) (n int) {
	for _, w := range watches {
		if w != nil {
			n += len(w.Differences())
		}
	}
	return n
}

func comparedWith(c *cluster.Cluster) func() (ids []string, members int) {
	return func() (ids []string, members int) { return comparable(c.Members()) }
}

// askFor returns a function that sends a query to another master.
func askFor(c *cluster.Cluster, query string) func(ctx context.Context, peer string, question []byte) ([]byte, error) {
	return func(ctx context.Context, peer string, question []byte) ([]byte, error) {
		d, err := c.Queries.AskOne(ctx, peer, query, wire.Encode(&wire.SumsMessage{Question: question}))
		if err != nil {
			return nil, err
		}
		var out wire.SumsMessage
		wire.View(d, &out)
		return out.Answer, nil
	}
}

func tellDifference(bus *event.Bus, log *slog.Logger) func(d replica.Difference) {
	return func(d replica.Difference) {
		log.Error("a replicated record differs from that of another master", "kind", d.Kind, "name", d.Name, "peer", d.Peer, "here", d.Here, "there", d.There)
		bus.Fire("salt/cluster/difference", value.DictOf("kind", d.Kind, "name", d.Name, "peer", d.Peer, "here", d.Here, "there", d.There, "since",
			d.Since.UTC().Format(time.RFC3339)))
	}
}

// answerSums returns the handler of these queries from other masters.
func answerSums(w *replica.Watch) func(arg *value.Dict) *value.Dict {
	return func(arg *value.Dict) *value.Dict {
		var in wire.SumsMessage
		wire.View(arg, &in)
		return wire.Encode(&wire.SumsMessage{Answer: w.Answer(in.Question)})
	}
}

// comparable returns the members to compare with, and how many members there are,
// this one included.
func comparable(all []cluster.Member) (ids []string, members int) {
	members = 1
	for _, m := range all {
		if m.Gone {
			continue
		}
		members++
		if m.Up && m.Problem == "" {
			ids = append(ids, m.ID)
		}
	}
	return ids, members
}

// isSecretName reports whether the names of a kind are secrets.
func isSecretName(kind string) bool {
	return kind == kindToken || kind == kindSecret || kind == kindSession
}

// shownName returns the kind and the name of a record for logs.
func shownName(kind, name string) (string, string) {
	if isSecretName(kind) {
		name = shortSum([]byte(name))
	}
	return kind, name
}
