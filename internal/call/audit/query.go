package audit

import (
	"cmp"
	"slices"

	"brine/internal/base/target"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// MaxRecords bounds the records of an answer.
const MaxRecords = 1000

// Query selects records by globs; an empty one matches everything.
type Query struct {
	User, Fun, Result string
	// Limit is the maximum number of records, MaxRecords at most.
	Limit int
}

// limit returns the number of records that an answer may have.
func (q Query) limit() int { return min(max(q.Limit, 0), MaxRecords) }

// Matcher returns a function that reports whether a record matches.
func (q Query) Matcher() func(*value.Dict) bool {
	user, fun, result := target.ParseGlob(cmp.Or(q.User, "*")), target.ParseGlob(cmp.Or(q.Fun, "*")), target.ParseGlob(cmp.Or(q.Result, "*"))
	return func(d *value.Dict) bool {
		return user.Match(d.Str("user")) && fun.Match(d.Str("fun")) && result.Match(d.Str("result"))
	}
}

// Find returns the newest records that match, newest first.
func (l *Log) Find(q Query) ([]*value.Dict, error) { return l.Recent(q.limit(), q.Matcher()) }

// Union joins records of one master from two places, newest first, each once.
func Union(a, b []*value.Dict) []*value.Dict {
	if len(b) == 0 {
		return a
	}
	var all []*value.Dict
	seen := map[string]bool{}
	for _, d := range slices.Concat(a, b) {
		text, err := json.Dump(d, json.Format{ASCII: true})
		if err == nil && !seen[text] {
			seen[text] = true
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b *value.Dict) int { return cmp.Compare(b.Str("time"), a.Str("time")) })
	return all
}

// Merge joins the records of several masters, newest first. Each record names its master.
func (q Query) Merge(byMaster map[string][]*value.Dict) []*value.Dict {
	var all []*value.Dict
	for id, records := range byMaster {
		for _, d := range records[:min(len(records), q.limit())] {
			d.Set("master", id)
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b *value.Dict) int {
		return cmp.Or(cmp.Compare(b.Str("time"), a.Str("time")), cmp.Compare(a.Str("master"), b.Str("master")))
	})
	return all[:min(len(all), q.limit())]
}
