package runners

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/call/schedule"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

type scheduleArgs struct {
	Minion string `salt:"minion" doc:"id of a minion; empty: all" default:""`
	Search string `salt:"search" doc:"part of the name or the function" default:""`
	pageArgs
}

// Bounds of what is known of schedules.
const (
	// ranBack is how far the job cache is searched for runs of schedules, and maxRan how many runs are read.
	ranBack = 24 * time.Hour
	maxRan  = 5000
	// ranAge is how long the result is reused.
	ranAge = 30 * time.Second
	// maxSchedule bounds the entries of one minion.
	maxSchedule = 200
)

// ranJob is the newest run of a scheduled job.
type ranJob struct{ jid, fun string }

// scheduleKey is an entry of a minion's schedule.
type scheduleKey struct{ minion, name string }

// ranCache keeps the newest runs of schedules for a short time.
type ranCache struct {
	mu   sync.Mutex
	at   time.Time
	last map[scheduleKey]ranJob
}

// ran returns the newest run of each scheduled job in the job cache.
func (f fleet) ran() (map[scheduleKey]ranJob, error) {
	f.runs.mu.Lock()
	defer f.runs.mu.Unlock()
	if f.runs.last != nil && time.Since(f.runs.at) < ranAge {
		return f.runs.last, nil
	}
	list, err := f.jobs.List(job.Filter{Limit: maxRan, Since: time.Now().Add(-ranBack), Keep: func(j *job.Job) bool { return j.Load.Str("schedule") != "" }})
	if err != nil {
		return nil, err
	}
	out := map[scheduleKey]ranJob{}
	for _, j := range list {
		k := scheduleKey{j.Load.Str("id"), j.Load.Str("schedule")}
		if out[k].jid < j.JID {
			out[k] = ranJob{j.JID, value.Str(j.Load.At("fun"))}
		}
	}
	f.runs.last, f.runs.at = out, time.Now()
	return out, nil
}

// schedules returns what the master knows of the schedules of minions without asking them: the entries in their
// pillar, and the jobs of schedules that returned.
func (f fleet) schedules(_ context.Context, _ *fn.Call, a scheduleArgs) (*value.Dict, error) {
	ids, err := f.keys.Accepted()
	if err != nil {
		return nil, err
	}
	ran, err := f.ran()
	if err != nil {
		return nil, err
	}
	accepted, withPillar, now := map[string]bool{}, 0, time.Now()
	var rows []*value.Dict
	add := func(d *value.Dict) {
		search := strings.ToLower(a.Search)
		if strings.Contains(strings.ToLower(d.Str("name")), search) || strings.Contains(strings.ToLower(d.Str("fun")), search) {
			rows = append(rows, d)
		}
	}
	seen := map[scheduleKey]bool{}
	for _, id := range ids {
		accepted[id] = true
		if a.Minion != "" && id != a.Minion {
			continue
		}
		pillar := f.cache.MinionData(id).Pillar
		if pillar != nil {
			withPillar++
		}
		entries, n := pillar.Dict("schedule"), 0
		globals := schedule.ParseGlobals(entries)
		for k, v := range entries.All() {
			name, isText := k.(string)
			entry, isDict := v.(*value.Dict)
			if n++; !isText || !isDict || schedule.IsGlobal(name) || n > maxSchedule {
				continue
			}
			seen[scheduleKey{id, name}] = true
			add(entryDict(id, name, entry, globals, ran[scheduleKey{id, name}], now))
		}
	}
	for k, r := range ran {
		if !seen[k] && accepted[k.minion] && (a.Minion == "" || k.minion == a.Minion) {
			d := value.DictOf("minion", k.minion, "name", k.name, "fun", r.fun, "source", "returns")
			d.Set("last", value.DictOf("jid", r.jid, "time", startTime(r.jid)))
			add(d)
		}
	}
	slices.SortFunc(rows, func(x, y *value.Dict) int {
		return cmp.Or(strings.Compare(x.Str("minion"), y.Str("minion")), strings.Compare(x.Str("name"), y.Str("name")))
	})
	from, to := a.of(len(rows))
	out := &value.List{}
	for _, d := range rows[from:to] {
		out.Append(d)
	}
	asked := len(ids)
	if a.Minion != "" {
		asked = min(1, len(ids))
		if !accepted[a.Minion] {
			return nil, salt.Errorf(salt.NotFound, "there is no accepted minion %.200q", a.Minion)
		}
	}
	return value.DictOf("matched", int64(len(rows)), "offset", int64(from), "rows", out, "minions", int64(asked), "pillar_known", int64(withPillar),
		"note", "entries in a minion's own configuration are known only by their returns; schedule.list asks the minion"), nil
}

// entryDict describes an entry of a schedule in pillar.
func entryDict(id, name string, entry *value.Dict, globals schedule.Globals, last ranJob, now time.Time) *value.Dict {
	d := value.DictOf("minion", id, "name", name, "fun", value.Str(cmp.Or(entry.At("function"), any(""))), "source", "pillar")
	j, err := schedule.Parse(name, entry, globals, nil)
	if err != nil {
		d.Set("problem", err.Error())
	} else {
		d.Set("enabled", j.Enabled && globals.Enabled)
		if j.Every > 0 {
			d.Set("every", j.Seconds())
		}
	}
	for _, k := range []string{"cron", "when", "once", "splay", "range", "until", "after"} {
		if v, ok := entry.Get(k); ok {
			if shown, _ := bounded(v, maxArgs); shown != nil {
				d.Set(k, shown)
			}
		}
	}
	if last.jid != "" {
		d.Set("last", value.DictOf("jid", last.jid, "time", startTime(last.jid)))
	}
	if err == nil && j.Enabled && globals.Enabled {
		if next := nextRun(j, last.jid, now); !next.IsZero() {
			d.Set("next", stamp(next))
		}
	}
	return d
}

// nextRun returns when a job is due, by the master's clock; zero if that is unknown: an interval counts from the last
// run.
func nextRun(j *schedule.Job, last string, now time.Time) time.Time {
	if j.Every == 0 {
		return j.Next(now)
	}
	at, err := salt.JIDTime(last)
	if err != nil {
		return time.Time{}
	}
	next := at.Add(j.Every)
	for range 3 {
		if next.Before(now) {
			next = next.Add(j.Every)
		}
	}
	if next.Before(now) {
		return time.Time{} // it has not run for long
	}
	return next
}
