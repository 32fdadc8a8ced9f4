package replica

import (
	"context"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/store/job"
	"brine/internal/store/oplog"
)

// KindJob is the kind of jobs and returns for Watch. The name of a return consists of that of its job, a NUL and
// its minion.
const KindJob = "job"

// ShowJob returns the kind and the name of a job or return in the form for logs.
func ShowJob(kind, name string) (string, string) {
	if jid, id, ok := strings.Cut(name, "\x00"); ok {
		return "return", jid + "/" + id
	}
	return kind, name
}

// jobs implements Source for the jobs and returns of a store.
type jobs struct{ c *job.Compared }

// NewJobs returns the jobs and returns of a replicated store for a Watch with Union.
func NewJobs(s *job.Store) Source { return jobs{s.Compared()} }

func (j jobs) Vector() (oplog.Vector, error) { return j.c.Vector() }

func (j jobs) Sums(_, after, to string) (Part, error) {
	sums, last, from, err := j.c.Sums(after, to)
	return Part{Sums: sums, Last: last, From: from}, err
}

func (j jobs) Some(_ string, names []string) (sums map[string]string, from string, err error) {
	return j.c.Some(names)
}

func (j jobs) Versions(_, name string) ([]Version, error) {
	data, hour, err := j.c.Item(name)
	if data == nil || err != nil {
		return nil, err
	}
	return []Version{{Origin: hour, Data: data}}, nil
}

func (j jobs) Take(_, name string, versions []Version, instead bool) (changed bool, err error) {
	if len(versions) != 1 {
		return false, salt.Errorf(salt.Invalid, "%d versions of a job of another master", len(versions))
	}
	return j.c.Restore(name, versions[0].Data, versions[0].Origin, instead)
}

// AskReturn gets the content of a return from a master of a version that has no query for contents. It asks as a Watch does. Nil
// means that the master does not have the return.
func AskReturn(ctx context.Context, ask func(ctx context.Context, question []byte) ([]byte, error), name string) (content []byte, err error) {
	w := &Watch{Ask: func(ctx context.Context, _ string, question []byte) ([]byte, error) { return ask(ctx, question) }}
	r, err := w.ask(ctx, "it", question{Kind: KindJob, Whole: name})
	if err != nil || len(r.Versions) != 1 {
		return nil, err
	}
	return job.ContentOf(r.Versions[0].Data, name), nil
}
