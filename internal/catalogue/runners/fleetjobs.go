package runners

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/store/job"
)

// Bounds of what fleet.job and fleet.jobs return.
const (
	// maxResult and maxResults bound the size of the returns in a job, in bytes: of one
	// minion, and of all.
	maxResult  = 32 << 10
	maxResults = 4 << 20
	// maxJudged and maxJudgedAll bound how many returns the list of jobs reads to count
	// failures: of one job, and of all. The newest jobs go first.
	maxJudged    = 200
	maxJudgedAll = 2000
	// maxJobs bounds the jobs of a page.
	maxJobs = 200
)

type jobListArgs struct {
	Fun    string `salt:"fun" doc:"glob for the function" default:"'*'"`
	User   string `salt:"user" doc:"glob for the user" default:"'*'"`
	Minion string `salt:"minion" doc:"id of a minion of the job; empty: any" default:""`
	Before string `salt:"before" doc:"only jobs before this job id; empty: the newest" default:""`
	Limit  int    `salt:"limit" doc:"maximum number of jobs, up to 200" default:"50"`
	All    bool   `salt:"all" doc:"include jobs by which clients look for running jobs" default:"false"`
}

// quiet lists the functions with which clients look for running jobs.
var quiet = []string{"saltutil.find_job", "saltutil.running"}

func (f fleet) jobList(_ context.Context, _ *fn.Call, a jobListArgs) (*value.Dict, error) {
	fun, user := target.ParseGlob(a.Fun), target.ParseGlob(a.User)
	list, err := f.jobs.List(job.Filter{Limit: min(max(a.Limit, 1), maxJobs) + 1, Before: a.Before, Returned: true, Keep: func(j *job.Job) bool {
		name := value.Str(j.Load.At("fun"))
		return (a.All || !slices.Contains(quiet, name)) && fun.Match(name) && user.Match(j.Load.Str("user")) &&
			(a.Minion == "" || slices.Contains(j.Minions, a.Minion))
	}})
	if err != nil {
		return nil, err
	}
	more := len(list) > min(max(a.Limit, 1), maxJobs)
	if more {
		list = list[:len(list)-1]
	}
	rows, judged := &value.List{}, 0
	for _, j := range list {
		d := about(j.JID, j.Load)
		d.Set("minions", int64(max(len(j.Minions), len(j.Returned))))
		d.Set("returned", int64(len(j.Returned)))
		if n := len(j.Returned); n <= maxJudged && judged+n <= maxJudgedAll {
			judged += n
			failed, err := f.failed(j.JID)
			if err != nil {
				return nil, err
			}
			d.Set("failed", failed)
		}
		rows.Append(d)
	}
	return value.DictOf("rows", rows, "more", more), nil
}

// failed counts the failed returns of a job.
func (f fleet) failed(jid string) (int64, error) {
	returns, err := f.jobs.Returns(jid)
	return failures(returns), err
}

func failures(returns map[string]*value.Dict) (n int64) {
	for _, r := range returns {
		if Failed(r) {
			n++
		}
	}
	return n
}

// unavailable counts the returns whose content only unreachable masters have. They count as failed, too.
func unavailable(returns map[string]*value.Dict) (n int64) {
	for _, r := range returns {
		if job.Unavailable(r) {
			n++
		}
	}
	return n
}

// Failed reports whether a return is a failure: by its return code, its success field,
// or the result of one of its states.
func Failed(ret *value.Dict) bool {
	if code, ok := ret.At("retcode").(int64); ok && code != 0 {
		return true
	}
	if ret.At("success") == false {
		return true
	}
	if d, ok := ret.At("return").(*value.Dict); ok && !ret.Has("retcode") && d.Has("fun") && d.At("success") == false {
		return true // of a runner: the job cache has the event of its end as the return
	}
	s := StatesOf(ret.At("return"))
	return s != nil && s.Failed > 0
}

// about describes a job by its published load.
func about(jid string, load *value.Dict) *value.Dict {
	d := value.DictOf("jid", jid, "fun", load.At("fun"), "tgt", load.At("tgt"), "tgt_type", load.At("tgt_type"), "user", load.At("user"),
		"time", startTime(jid))
	if by := load.Str(salt.ApprovedBy); by != "" {
		d.Set(salt.ApprovedBy, by)
	}
	arg, _ := bounded(load.At("arg"), maxArgs)
	d.Set("arg", arg)
	return d
}

// maxArgs bounds the arguments of a job, as shown, in bytes.
const maxArgs = 2 << 10

type fleetJobArgs struct {
	JID string `salt:"jid" doc:"job id"`
}

func (f fleet) job(_ context.Context, _ *fn.Call, a fleetJobArgs) (*value.Dict, error) {
	load, err := f.jobs.Load(a.JID)
	if err != nil {
		return nil, err
	}
	if load == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no job %.64q in the job cache", a.JID)
	}
	minions, err := f.jobs.Minions(a.JID)
	if err != nil {
		return nil, err
	}
	returns, err := f.jobs.Returns(a.JID)
	if err != nil {
		return nil, err
	}
	d := about(a.JID, load)
	minions = append(minions, slices.Collect(maps.Keys(returns))...)
	slices.Sort(minions)
	minions = slices.Compact(minions)
	d.Set("minions", value.Strings(minions))
	results, room := value.NewDict(len(returns)), maxResults
	for _, id := range minions {
		if r := returns[id]; r != nil {
			row, size := summary(r, min(room, maxResult))
			room -= size
			results.Set(id, row)
		}
	}
	d.Set("results", results)
	counts := value.DictOf("minions", int64(len(minions)), "returned", int64(len(returns)), "failed", failures(returns))
	if n := unavailable(returns); n > 0 {
		counts.Set("unavailable", n)
	}
	d.Set("counts", counts)
	d.Set("groups", groupsOf(returns))
	if rows := statesByName(returns); rows.Len() > 0 {
		d.Set("states", rows)
	}
	return d, nil
}

const (
	// maxGroups bounds the groups of equal returns of a job, maxStateRows its states. maxMembers
	// bounds the minions that each of them names.
	maxGroups, maxStateRows = 50, 1000
	maxMembers              = 100
)

// groupsOf groups minions by equal returns: {count, minions, retcode, failed}, the largest first.
// Minions of the same group have the same return and return code.
func groupsOf(returns map[string]*value.Dict) *value.List {
	type group struct {
		ids []string
		of  *value.Dict
	}
	groups := map[[sha256.Size]byte]*group{}
	for _, id := range slices.Sorted(maps.Keys(returns)) {
		r := returns[id]
		key := sha256.Sum256([]byte(value.Repr(value.ListOf(r.At("retcode"), r.At("return")))))
		if groups[key] == nil {
			groups[key] = &group{of: r}
		}
		groups[key].ids = append(groups[key].ids, id)
	}
	all := slices.SortedFunc(maps.Values(groups), func(a, b *group) int {
		return cmp.Or(cmp.Compare(len(b.ids), len(a.ids)), strings.Compare(a.ids[0], b.ids[0]))
	})
	out := &value.List{}
	for _, g := range all[:min(len(all), maxGroups)] {
		out.Append(value.DictOf("count", int64(len(g.ids)), "minions", value.Strings(g.ids[:min(len(g.ids), maxMembers)]),
			"retcode", g.of.At("retcode"), "failed", Failed(g.of)))
	}
	return out
}

// statesByName counts the results of each state over all minions, in the order of the first run:
// {state, ok, changed, failed, unknown, failed_on}. It is empty if no minion returned states.
func statesByName(returns map[string]*value.Dict) *value.List {
	type row struct {
		name     string
		order    int64
		n        States
		failedOn []string
	}
	rows := map[string]*row{}
	for _, id := range slices.Sorted(maps.Keys(returns)) {
		v := returns[id].At("return")
		if StatesOf(v) == nil {
			continue
		}
		for k, one := range v.(*value.Dict).All() {
			name, state := k.(string), one.(*value.Dict)
			r := rows[name]
			if r == nil {
				if len(rows) >= maxStateRows {
					continue
				}
				order, _ := state.At("__run_num__").(int64)
				r = &row{name: name, order: order}
				rows[name] = r
			}
			if r.n.add(state); state.At("result") == false && len(r.failedOn) < maxMembers {
				r.failedOn = append(r.failedOn, id)
			}
		}
	}
	out := &value.List{}
	for _, r := range slices.SortedFunc(maps.Values(rows), func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.order, b.order), strings.Compare(a.name, b.name))
	}) {
		d := r.n.Dict()
		d.Insert(0, "state", r.name)
		if len(r.failedOn) > 0 {
			d.Set("failed_on", value.Strings(r.failedOn))
		}
		out.Append(d)
	}
	return out
}

// summary describes a return in at most about most bytes, and returns the number used.
func summary(ret *value.Dict, most int) (*value.Dict, int) {
	d := value.DictOf("retcode", ret.At("retcode"), "success", ret.At("success"), "failed", Failed(ret))
	v := ret.At("return")
	if s := StatesOf(v); s != nil {
		d.Set("states", s.Dict())
	}
	shown, size := bounded(v, most)
	if size > most {
		d.Set("cut", true)
		return d, 0
	}
	d.Set("return", shown)
	return d, size
}

// bounded returns a value if it takes at most about most bytes, else nil.
func bounded(v any, most int) (shown any, size int) {
	size = Size(v, most)
	if size > most {
		return nil, size
	}
	return v, size
}

// Size estimates the bytes of a value as JSON. It stops above most.
func Size(v any, most int) (n int) {
	switch x := v.(type) {
	case string:
		return len(x) + 2
	case []byte:
		return len(x) + 2
	case *value.List:
		for _, it := range value.Items(x) {
			if n += 2 + Size(it, most-n); n > most {
				return n
			}
		}
	case value.Tuple:
		for _, it := range x {
			if n += 2 + Size(it, most-n); n > most {
				return n
			}
		}
	case *value.Dict:
		for k, it := range x.All() {
			if n += 4 + Size(k, most-n) + Size(it, most-n); n > most {
				return n
			}
		}
	default:
		return 8
	}
	return n + 2
}

type resultArgs struct {
	JID string `salt:"jid" doc:"job id"`
	ID  string `salt:"id" doc:"id of the minion"`
}

// maxWhole bounds the single return of fleet.result, in bytes.
const maxWhole = 8 << 20

func (f fleet) result(_ context.Context, _ *fn.Call, a resultArgs) (*value.Dict, error) {
	returns, err := f.jobs.Returns(a.JID)
	if err != nil {
		return nil, err
	}
	r := returns[a.ID]
	if r == nil {
		return nil, salt.Errorf(salt.NotFound, "%.200q has returned nothing for the job %.64q", a.ID, a.JID)
	}
	if job.Unavailable(r) {
		return nil, salt.Errorf(salt.Unavailable, "%s", r.Str("return"))
	}
	d, _ := summary(r, maxWhole)
	return d, nil
}

// States counts the states in a return of state functions.
type States struct {
	OK, Changed, Failed, Unknown int64
}

// StatesOf counts the states in a return; nil if it is not one of a state function.
func StatesOf(v any) *States {
	d, ok := v.(*value.Dict)
	if !ok || d.Len() == 0 {
		return nil
	}
	s := &States{}
	for k, v := range d.All() {
		name, isText := k.(string)
		one, isDict := v.(*value.Dict)
		if !isText || !isDict || strings.Count(name, "_|-") != 3 {
			return nil
		}
		if !one.Has("result") {
			return nil
		}
		s.add(one)
	}
	return s
}

// add counts the result of one state.
func (s *States) add(state *value.Dict) {
	switch result := state.At("result"); {
	case result == nil:
		s.Unknown++
	case result == false:
		s.Failed++
	case value.Truth(state.At("changes")):
		s.Changed++
	default:
		s.OK++
	}
}

// Dict returns the numbers as a map.
func (s *States) Dict() *value.Dict {
	return value.DictOf("ok", s.OK, "changed", s.Changed, "failed", s.Failed, "unknown", s.Unknown)
}
