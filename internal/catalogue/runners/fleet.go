package runners

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/ha/roster"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
	"brine/internal/store/lastrun"
)

// fleet returns what a console shows. It sends nothing to minions: it reads keys,
// connections, the cache of minion data and the job cache.
type fleet struct {
	selection
	Minions
	jobs    Jobs
	states  LastStates
	cluster *Clustering
	serves  FileServers
	links   *linkCache
	runs    *ranCache
	console Console
	began   time.Time
}

// Console is what only consoles show.
type Console struct {
	// States has the last runs of states of each minion.
	States LastStates
	// Hot are the masters of the option hot_masters; nil without.
	Hot HotMasters
	// Saved has what users saved; nil where no master runs.
	Saved Saved
	// History has the runs of states of some time; nil where no master runs.
	History History
	// Stores returns what the stores of the master take; nil where no master runs.
	Stores func() StoreUsage
	// KeyOf returns the fingerprint of the accepted key of a minion, "" if there is none; nil where no master runs.
	KeyOf func(id string) string
	// Loads returns how busy this master and the other members of its cluster are, by id, without waiting for them; nil where no master runs.
	Loads func() map[string]MasterLoad
	// Moves returns the changes of masters of a minion that are kept, the newest first; nil where no master runs.
	Moves func(id string) []StandingChange
	// Beacons returns a new map of the events of each beacon of a minion by its name; nil where no master runs.
	Beacons func(id string) map[string]BeaconEvents
	// Functions returns the functions of minions, or of a kind of them (states), for documentation; nil
	// where no master runs.
	Functions func(kind string) (*fn.Registry, error)
}

func init() { runners.Register(FleetModule, fleetModule) }

func fleetModule(d Deps) fn.Module {
	if d.Console.States == nil { // no master runs
		d.Console.States = &lastrun.Store{}
	}
	f := fleet{d.selection(), d.Minions, d.Jobs.Jobs, d.Console.States, d.Cluster, d.Serves, &linkCache{}, &ranCache{}, d.Console, time.Now()}
	return fn.Module{Name: FleetModule, Doc: `The fleet as the console shows it. Nothing is sent to minions.`, Funcs: []fn.Func{
		fn.Of("topology", f.topology, `Return the masters, and which of them command each accepted minion.

minions has for each id: state (up, down, or elsewhere: connected to another master alone), by: the masters that command it, and
standby: those that it keeps as standby. keys_waiting is the number of keys that this master has to accept or reject. revision changes with the result: with since set to it, an unchanged result is left out, but for loads. names are what minions call a master.

loads has how busy each master was in the last seconds: cpu of its process in percent of a core, machine in percent of all its cores, memory and ram in bytes,
requests of a second, mean and most (of all but the longest twentieth) milliseconds to their answers, revision of its files, leads, and seen: when it said so.`,
			fn.Example("salt-run fleet.topology")),
		fn.Of("minions", f.list, `Return a page of the accepted minions, with their number by state, master, version, operating system and severity.

severity is the worst outcome of a minion's last runs of states: failed, not_returned, drift, changed, clean or unknown.`,
			fn.Example("salt-run fleet.minions"), fn.Example("salt-run fleet.minions search=web state=down limit=20")),
		fn.Of("minion", f.minion, `Return the grains of an accepted minion, its masters, its last runs of states, its key, its beacons, and the names in its mine.

links has each master that the minion has reported, with its state and since when. moves are its last changes of masters, the newest first, as far as this
master took the reports. beacons are those in its pillar, and those of which events arrived. Both are kept for console_store_days.`,
			fn.Example("salt-run fleet.minion web1")),
		fn.Of("mine", f.mine, `Return the mine data of a minion. Large values are left out (cut).`, fn.Example("salt-run fleet.mine web1")),
		fn.Of("moves", f.moves, `Return the last change of its master of each accepted minion, the newest first, without first connections. all=True returns the last 20 of each.

Minions report the last one also to masters that start later. This master keeps those that were reported to it for console_store_days. seconds is the time
without a master.`,
			fn.Example("salt-run fleet.moves"), fn.Example("salt-run fleet.moves limit=20 all=True")),
		fn.Of("preview", f.preview, `Return the accepted minions that a target selects, as far as is known, and how many are in each state and at each master.

unknown is how many of them are counted only because the master does not know the data that the target asks for.`,
			fn.Example("salt-run fleet.preview 'G@role:web and not web9' tgt_type=compound")),
		fn.Of("jobs", f.jobList, `Return the newest jobs, with the number of minions that returned and failed.`,
			fn.Example("salt-run fleet.jobs"), fn.Example("salt-run fleet.jobs fun='state.*' minion=web1 limit=10")),
		fn.Of("job", f.job, `Return a job and the results of its minions. Large returns are left out; fleet.result has them.

groups are minions with equal returns, the largest group first. states counts the results of each state over all minions.`,
			fn.Example("salt-run fleet.job 20260101120000000000")),
		fn.Of("result", f.result, `Return what one minion returned for a job.`, fn.Example("salt-run fleet.result 20260101120000000000 web1")),
		fn.Of("compare", f.compare, `Return what is different in the returns of two jobs of the same function: of states their results and changes, otherwise the returns.

Minions with the same difference are one row; what fails now comes first. Large values are left out (cut).`,
			fn.Example("salt-run fleet.compare 20260102120000000000 20260101120000000000")),
		fn.Of("states", f.stateList, `Return the states that failed, drifted or changed something in the last runs of minions, with groups of minions with the same change, and the slowest states.

drift is what the last test=True run would change. changes and comment are those of one minion of the group.`,
			fn.Example("salt-run fleet.states"), fn.Example("salt-run fleet.states outcome=failed search=nginx")),
		fn.Of("change", f.change, `Return one change of fleet.states, and all minions that have it.`,
			fn.Example("salt-run fleet.change 5f2b8c0e5f2b8c0e5f2b8c0e5f2b8c0e")),
		fn.Of("history", f.history, `Return the number of runs of states on each day by their outcome, or a page of the runs of one day.

A run failed, or would change something (drift, with test=True), or changed something, or is clean: the worst counts. Days are those of UTC. source is
console_store, or master for what this master alone stores. next is the argument after of the next page.`,
			fn.Example("salt-run fleet.history days=7"), fn.Example("salt-run fleet.history day=2026-03-01 outcome=failed")),
		fn.Of("runs", f.runsOfMinion, `Return a page of the runs of states of a minion, the newest first.

ms is the sum of the durations of all states.`,
			fn.Example("salt-run fleet.runs web1"), fn.Example("salt-run fleet.runs web1 outcome=failed limit=10")),
		fn.Of("files", f.files, `Return the environments of the file server and a page of the paths of one with their hashes, or the content of a text file.`,
			fn.Example("salt-run fleet.files"), fn.Example("salt-run fleet.files saltenv=prod search=nginx"),
			fn.Example("salt-run fleet.files path=top.sls")),
		fn.Of("schedules", f.schedules, `Return the schedules of minions as far as the master knows them: from their pillar, and from the jobs that returned.

next is by the master's clock. For an interval it counts from the last run, and is missing if that is unknown.`,
			fn.Example("salt-run fleet.schedules"), fn.Example("salt-run fleet.schedules minion=web1")),
		fn.Of("store", f.store, `Return what stores jobs, audit records and other history on this master: driver, size, number of jobs, the oldest, days kept, and errors.

An answer is up to 30 seconds old.`,
			fn.Example("salt-run fleet.store")),
		fn.Of("functions", f.functions, `Return the names of Brine's functions, or the documentation and arguments of one.

params has for each argument: name, kind (any, bool, int, number, str, list, items: a list or one item, dict), doc, default if it has one, keyword if it can only be
given by name, and ignored: why it has no effect.`,
			fn.Example("salt-run fleet.functions"), fn.Example("salt-run fleet.functions pkg.install"),
			fn.Example("salt-run fleet.functions file.managed kind=states")),
	}}
}

// FleetModule is the module whose functions are all for consoles.
const FleetModule = "fleet"

// IsLook reports whether a console may call a runner without a job of its own for each call. Such
// runners wait for no minion, and change at most what users saved.
func IsLook(fun string) bool {
	return strings.HasPrefix(fun, FleetModule+".") || strings.HasPrefix(fun, SavedModule+".") ||
		slices.Contains([]string{"auth.can", "auth.permissions", "auth.roles", "audit.list", "audit.verify", ShowPillar}, fun)
}

// ShowPillar is the runner with which a console shows the pillar of a minion. Its calls are recorded in the audit log.
const ShowPillar = "pillar.show_pillar"

// States of a minion.
const (
	minionUp        = "up"
	minionDown      = "down"
	minionElsewhere = "elsewhere"
)

// minionLink is the connection status of a minion.
type minionLink struct {
	state       string
	by, standby []string
	// since is when the first of the masters in by was connected; zero if unknown.
	since time.Time
}

// picture holds the connections of all accepted minions at one time.
type picture struct {
	ids     []string // sorted
	links   map[string]minionLink
	away    map[string]string // masters that minions cannot reach, with the reason
	known   map[string]string // master ids by the names that minions use
	changes map[string]*StandingChange
	reports map[string]Standing
	display func(m StandingMaster) string // the id of a master that a minion names
	hot     []HotMaster
	waiting int // keys that wait for a decision at this master
}

// linkCache keeps the last picture for a short time, so that several consoles cost a
// master no more than one.
type linkCache struct {
	mu   sync.Mutex
	at   time.Time
	last *picture
}

// pictureAge is how long a picture is reused.
const pictureAge = 500 * time.Millisecond

// elsewhereAge is the maximum age of a report that names a commanding master for a
// minion that is not connected here.
const elsewhereAge = time.Minute

// picture returns the connections of all accepted minions. own is this master's id.
func (f fleet) picture(ctx context.Context, own string) (*picture, error) {
	f.links.mu.Lock()
	defer f.links.mu.Unlock()
	if f.links.last != nil && time.Since(f.links.at) < pictureAge {
		return f.links.last, nil
	}
	ids, err := f.keys.Accepted()
	if err != nil {
		return nil, err
	}
	hot := f.console.hot()
	ids = slices.Compact(slices.Sorted(slices.Values(append(slices.Clone(ids), hotAccepted(hot)...))))
	there, holders, standings := f.Connected(), f.Holders(), f.Standings(ctx, ids)
	names := f.names(own, hot)
	p := &picture{ids: ids, links: make(map[string]minionLink, len(ids)), away: map[string]string{}, known: map[string]string{},
		changes: map[string]*StandingChange{}, hot: hot, reports: standings,
		display: func(m StandingMaster) string { return names(m, f.cluster == nil) }}
	if p.waiting, err = f.keys.Count(keystore.Pending); err != nil {
		return nil, err
	}
	for _, id := range ids {
		s, reported := standings[id]
		l := minionLink{state: minionDown}
		fresh := reported && time.Since(s.At) < elsewhereAge
		if there[id] || fresh {
			for _, m := range s.Masters {
				name := names(m, f.cluster == nil)
				p.known[m.Master] = name
				switch m.State {
				case stateConnected:
					l.by = append(l.by, name)
					if l.since.IsZero() || m.Since.Before(l.since) {
						l.since = m.Since
					}
				case stateStandby:
					l.standby = append(l.standby, name)
				case stateOff, "":
				default:
					p.away[name] = m.State
				}
			}
		}
		if s.Last != nil {
			p.changes[id] = s.Last
		}
		switch {
		case there[id]:
			l.state = minionUp
			if len(l.by) == 0 {
				l.by = slices.Clone(holders[id])
			}
			if len(l.by) == 0 || len(hot) > 0 && !slices.Contains(l.by, own) && !slices.Contains(l.standby, own) {
				l.by = append(l.by, own)
			}
		case fresh && len(l.by) > 0 && !slices.Contains(l.by, own):
			l.state = minionElsewhere
		default:
			l.by, l.standby, l.since = nil, nil, time.Time{}
		}
		for _, m := range hot {
			switch {
			case !m.Minions[id]:
				continue
			case l.state == minionDown:
				l.state = minionElsewhere
			}
			if !slices.Contains(l.by, m.ID) && !slices.Contains(l.standby, m.ID) {
				l.by = append(l.by, m.ID)
			}
		}
		slices.Sort(l.by)
		slices.Sort(l.standby)
		p.links[id] = l
	}
	f.links.last, f.links.at = p, time.Now()
	return p, nil
}

// names returns a function that returns the display name of a master in a minion's
// report: its cluster id if it is a member or this master, else the name in the
// minion's configuration.
func (f fleet) names(own string, hot []HotMaster) func(m StandingMaster, alone bool) string {
	byHost := map[string]string{}
	hotNames(hot, byHost)
	if f.cluster != nil {
		byHost[own] = own
		for _, m := range f.cluster.Members() {
			byHost[m.ID] = m.ID
		}
		for id, s := range f.cluster.Stations() {
			byHost[s.Host] = id
		}
	}
	return func(m StandingMaster, alone bool) string {
		if m.Here && alone {
			return own
		}
		host, _, err := net.SplitHostPort(m.Master)
		if err != nil {
			host = m.Master
		}
		return cmp.Or(byHost[host], byHost[m.Master], m.Master)
	}
}

type topologyArgs struct {
	Since string `salt:"since" doc:"revision of the result that the caller has" default:""`
}

func (f fleet) topology(ctx context.Context, c *fn.Call, a topologyArgs) (*value.Dict, error) {
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	masters := f.masters(c.ID, p)
	revision, loads := p.revision(masters), f.loads(p)
	if revision == a.Since {
		return withLoads(value.DictOf("revision", revision), loads), nil
	}
	minions := value.NewDict(len(p.ids))
	for _, id := range p.ids {
		minions.Set(id, p.links[id].dict())
	}
	return withLoads(value.DictOf("revision", revision, "here", c.ID, "keys_waiting", int64(p.waiting), "masters", masters, "minions", minions), loads), nil
}

// revision identifies the content of a topology for as long as this process runs.
func (p *picture) revision(masters *value.List) string {
	h := maphash.Hash{}
	h.SetSeed(revisionSeed)
	text := func(s string) {
		maphash.WriteComparable(&h, len(s))
		h.WriteString(s)
	}
	texts := func(list []string) {
		maphash.WriteComparable(&h, len(list))
		for _, s := range list {
			text(s)
		}
	}
	text(value.Repr(masters))
	maphash.WriteComparable(&h, p.waiting)
	for _, id := range p.ids {
		l := p.links[id]
		text(id)
		text(l.state)
		texts(l.by)
		texts(l.standby)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

var revisionSeed = maphash.MakeSeed()

func (l minionLink) dict() *value.Dict {
	d := value.DictOf("state", l.state, "by", value.Strings(l.by))
	if len(l.standby) > 0 {
		d.Set("standby", value.Strings(l.standby))
	}
	return d
}

// masters describes the masters that this one knows: the members of its cluster, and
// those that minions name.
func (f fleet) masters(own string, p *picture) *value.List {
	rows := map[string]*value.Dict{own: value.DictOf("id", own, "state", minionUp, "here", true)}
	for _, name := range p.known {
		if rows[name] == nil {
			rows[name] = value.DictOf("id", name, "state", minionUp, "here", false)
		}
	}
	counts := map[string]int64{}
	for _, l := range p.links {
		for _, m := range l.by {
			counts[m]++
			if rows[m] == nil {
				rows[m] = value.DictOf("id", m, "state", minionUp, "here", false)
			}
		}
	}
	for name, why := range p.away {
		if rows[name] != nil && counts[name] == 0 && name != own {
			rows[name].Set("state", minionDown)
			rows[name].Set("problem", why)
		}
	}
	if f.cluster != nil {
		f.members(own, rows)
	}
	addHot(p.hot, rows)
	rows[own].Set("version", salt.BrineVersion)
	rows[own].Set("since", stamp(f.began))
	f.addLoads(rows)
	out := &value.List{}
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		rows[name].Set("minions", counts[name])
		var called []string
		for text, id := range p.known {
			if id == name {
				called = append(called, text)
			}
		}
		slices.Sort(called)
		if len(called) > 0 {
			rows[name].Set("names", value.Strings(called))
		}
		out.Append(rows[name])
	}
	return out
}

// members adds what the cluster knows of its masters.
func (f fleet) members(own string, rows map[string]*value.Dict) {
	rows[own].Set("leads", f.cluster.Leads())
	for _, m := range f.cluster.Members() {
		if m.Gone {
			continue
		}
		state, lag := minionUp, int64(0)
		if !m.Up {
			state = minionDown
		}
		for _, n := range m.Behind {
			lag += n
		}
		d := value.DictOf("id", m.ID, "state", state, "here", false)
		if m.Problem != "" {
			d.Set("problem", m.Problem)
		}
		if f.cluster.Isolated() {
			d.Set("lag", lag)
		}
		rows[m.ID] = d
	}
	for id, s := range f.cluster.Stations() {
		if d := rows[id]; d != nil {
			addStation(d, s)
		}
	}
}

func addStation(d *value.Dict, s roster.Member) {
	if s.Draining {
		d.Set("draining", true)
	}
	if s.Zone != "" {
		d.Set("zone", s.Zone)
	}
}

// maxPage bounds the rows of a page.
const maxPage = 1000

type pageArgs struct {
	Offset int `salt:"offset" doc:"rows to skip" default:"0"`
	Limit  int `salt:"limit" doc:"maximum number of rows, up to 1000" default:"100"`
}

func (a pageArgs) of(n int) (from, to int) {
	from = min(max(a.Offset, 0), n)
	return from, min(from+min(max(a.Limit, 0), maxPage), n)
}

type listMinionsArgs struct {
	Search  string `salt:"search" doc:"part of the id or of the operating system" default:""`
	State   string `salt:"state" doc:"up, down or elsewhere; empty: all" default:""`
	Master  string `salt:"master" doc:"a master that commands it; empty: all" default:""`
	Version string `salt:"version" doc:"version of Salt; empty: all" default:""`
	// Severity is one of lastrun.Severities.
	Severity string `salt:"severity" doc:"failed, not_returned, drift, changed, clean or unknown: by the last runs of states; empty: all" default:""`
	Tgt      string `salt:"tgt" doc:"a target, such as G@role:web; empty: all" default:""`
	TgtType  string `salt:"tgt_type" doc:"type of the target" default:"compound"`
	pageArgs
}

// minionRow is a minion in the list.
type minionRow struct {
	id, os, version, brine string
	link                   minionLink
	runs                   lastrun.Minion
	severity               string
}

func (f fleet) row(id string, l minionLink, runs lastrun.Minion, now time.Time) minionRow {
	g := f.cache.MinionData(id).Grains
	return minionRow{id: id, os: strings.TrimSpace(g.Str("os") + " " + value.Str(cmp.Or(g.At("osrelease"), any("")))), version: g.Str("saltversion"),
		brine: g.Str("brine_version"), link: l, runs: runs, severity: runs.Severity(now)}
}

func (a listMinionsArgs) wants(r minionRow) bool {
	search := strings.ToLower(a.Search)
	return (search == "" || strings.Contains(strings.ToLower(r.id), search) || strings.Contains(strings.ToLower(r.os), search)) &&
		(a.State == "" || a.State == r.link.state) && (a.Master == "" || slices.Contains(r.link.by, a.Master)) &&
		(a.Version == "" || a.Version == r.version) && (a.Severity == "" || a.Severity == r.severity)
}

func (f fleet) list(ctx context.Context, c *fn.Call, a listMinionsArgs) (*value.Dict, error) {
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	ids := p.ids
	if a.Tgt != "" {
		if ids, err = f.targeted(a.Tgt, a.TgtType); err != nil {
			return nil, err
		}
	}
	if a.Severity != "" && !slices.Contains(lastrun.Severities, a.Severity) {
		return nil, salt.Errorf(salt.Invalid, "severity must be one of %s", strings.Join(lastrun.Severities, ", "))
	}
	counts := map[string]map[string]int64{"state": {}, "master": {}, "version": {}, "os": {}, "severity": {}}
	runs, now := f.states.All(), time.Now()
	var found []minionRow
	for _, id := range ids {
		if _, there := p.links[id]; !there {
			continue // accepted since
		}
		r := f.row(id, p.links[id], runs[id], now)
		if !a.wants(r) {
			continue
		}
		found = append(found, r)
		counts["state"][r.link.state]++
		counts["version"][r.version]++
		counts["os"][r.os]++
		counts["severity"][r.severity]++
		for _, m := range r.link.by {
			counts["master"][m]++
		}
	}
	rows := &value.List{}
	from, to := a.of(len(found))
	for _, r := range found[from:to] {
		d := r.link.dict()
		d.Insert(0, "id", r.id)
		d.Set("os", r.os)
		d.Set("version", r.version)
		if r.brine != "" {
			d.Set("brine", r.brine)
		}
		if !r.link.since.IsZero() {
			d.Set("since", stamp(r.link.since))
		}
		d.Set("severity", r.severity)
		if last := r.runs.Last(); last != nil {
			d.Set("run", runDict(last))
		}
		rows.Append(d)
	}
	facets := value.NewDict(len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		facets.Set(name, counted(counts[name]))
	}
	return value.DictOf("accepted", int64(len(p.ids)), "matched", int64(len(found)), "offset", int64(from), "rows", rows, "counts", facets), nil
}

// maxCounts bounds the distinct values that are counted in an answer.
const maxCounts = 50

func counted(m map[string]int64) *value.Dict {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b)) })
	d := value.NewDict(len(keys))
	for _, k := range keys[:min(len(keys), maxCounts)] {
		d.Set(k, m[k])
	}
	return d
}

func (ch *StandingChange) dict() *value.Dict {
	return value.DictOf("from", orNil(ch.From), "to", ch.To, "reason", ch.Reason, "seconds", ch.Seconds, "at", stamp(ch.At))
}

type movesArgs struct {
	All bool `salt:"all" doc:"also the changes before the last one of each minion" default:"false"`
	pageArgs
}

// moves returns the last changes of masters. The times are those of minions: one in the future counts as
// now, so that a wrong clock does not stay on top.
func (f fleet) moves(ctx context.Context, c *fn.Call, a movesArgs) (*value.Dict, error) {
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	type move struct {
		id string
		at time.Time
		*StandingChange
	}
	var all []move
	now := time.Now()
	for _, id := range p.ids {
		changes := f.movesOf(p, id)
		if !a.All {
			changes = changes[:min(len(changes), 1)]
		}
		for i := range changes {
			if ch := &changes[i]; ch.From != "" {
				at := ch.At
				if at.After(now) {
					at = now
				}
				all = append(all, move{id, at, ch})
			}
		}
	}
	slices.SortStableFunc(all, func(x, y move) int { return cmp.Or(y.at.Compare(x.at), strings.Compare(x.id, y.id)) })
	from, to := a.of(len(all))
	rows := &value.List{}
	for _, m := range all[from:to] {
		d := m.dict()
		d.Insert(0, "id", m.id)
		rows.Append(d)
	}
	return value.DictOf("matched", int64(len(all)), "offset", int64(from), "rows", rows), nil
}

// movesOf returns the changes of masters of a minion, the newest first: of its last report, which may have come to another master, and those
// that are kept.
func (f fleet) movesOf(p *picture, id string) []StandingChange {
	moves := p.reports[id].Moves
	if len(moves) == 0 && p.changes[id] != nil {
		moves = []StandingChange{*p.changes[id]}
	}
	if f.console.Moves == nil {
		return moves
	}
	kept := f.console.Moves(id)
	switch {
	case len(moves) == 0:
		return kept
	case len(kept) == 0 || len(moves) > 1:
		return moves
	case kept[0].At.Equal(moves[0].At) && kept[0].To == moves[0].To:
		return kept
	}
	return append(moves[:1:1], kept...)
}

// maxPreviewed bounds the ids in a preview.
const maxPreviewed = 200

// targeted returns the accepted minions that a target selects, sorted.
func (f fleet) targeted(tgt any, typ string) ([]string, error) {
	if expr, ok := tgt.(string); ok && typ == "compound" {
		if err := target.CheckParentheses(expr); err != nil {
			return nil, err
		}
	}
	ids, err := f.minions(tgt, typ)
	slices.Sort(ids)
	return ids, err
}

// cachedMinion is a minion as the master knows it.
type cachedMinion struct {
	id string
	cache.Minion
}

func (m cachedMinion) ID() string          { return m.id }
func (m cachedMinion) Grains() *value.Dict { return m.Minion.Grains }
func (m cachedMinion) Pillar() *value.Dict { return m.Minion.Pillar }

// guessed counts those of the selected minions that are expected only because the master does not know their data.
func (f fleet) guessed(tgt any, typ string, ids []string) (n int64, err error) {
	m, err := f.targets.Nodegroups().Parse(typ, tgt, "")
	if err != nil {
		return 0, fn.Errorf("%w", err)
	}
	for _, id := range ids {
		if data := f.cache.MinionData(id); (data.Grains == nil || data.Pillar == nil) && !m.Match(cachedMinion{id, data}) {
			n++
		}
	}
	return n, nil
}

func (f fleet) preview(ctx context.Context, c *fn.Call, a targetArgs) (*value.Dict, error) {
	ids, err := f.targeted(a.Tgt, a.TgtType)
	if err != nil {
		return nil, err
	}
	p, err := f.picture(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	states, masters := map[string]int64{}, map[string]int64{}
	for _, id := range ids {
		states[cmp.Or(p.links[id].state, minionDown)]++
		for _, m := range p.links[id].by {
			masters[m]++
		}
	}
	unknown, err := f.guessed(a.Tgt, a.TgtType, ids)
	if err != nil {
		return nil, err
	}
	return value.DictOf("matched", int64(len(ids)), "unknown", unknown, "states", counted(states), "masters", counted(masters),
		"ids", value.Strings(ids[:min(len(ids), maxPreviewed)])), nil
}

type functionsArgs struct {
	Name string `salt:"name" doc:"function to describe; empty: list all names" default:""`
	Kind string `salt:"kind" doc:"states: functions that SLS files name; empty: those that minions run" default:""`
}

func (f fleet) functions(_ context.Context, _ *fn.Call, a functionsArgs) (any, error) {
	if f.console.Functions == nil {
		return nil, salt.Errorf(salt.Unavailable, "this master cannot list functions")
	}
	if a.Kind != "" && a.Kind != "states" {
		return nil, salt.Errorf(salt.Invalid, "kind must be states, or empty")
	}
	all, err := f.console.Functions(a.Kind)
	if err != nil {
		return nil, err
	}
	if a.Name == "" {
		return value.Strings(all.Functions()), nil
	}
	if strings.ContainsAny(a.Name, "*?[") {
		return nil, salt.Errorf(salt.Invalid, "name must be one function, not a pattern")
	}
	d := value.DictOf("doc", all.Docs(a.Name), "argspec", all.ArgSpecs(a.Name))
	if one, err := all.Lookup(a.Name); err == nil {
		d.Set("params", one.Form())
	}
	return d, nil
}
