package syndic

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// router decides what of the lower master's events goes to which master of masters, and which
// commands from above the lower master has to publish. It has no sockets and starts nothing.
type router struct {
	id string
	// masterID is the lower master's option master_id, "" for none.
	masterID string
	opts     *Options
	book     *book
	log      *slog.Logger
	uppers   []*outgoing

	mu      sync.Mutex
	loads   map[string]*value.Dict // descriptions of the lower master's own jobs
	ordered []string               // the keys of loads, oldest first
}

// outgoing is what waits for one master of masters. Returns are in the book.
type outgoing struct {
	name string
	// connected reports whether the master is connected.
	connected func() bool
	// wake is called when something was added.
	wake func()
	log  *slog.Logger

	mu      sync.Mutex
	events  []*value.Dict // {tag, data}, oldest first
	dropped int
}

// Limits of the events that wait for a master.
const (
	maxEvents = 10_000
	// eventBatch bounds the events of one message.
	eventBatch = 500
)

func newRouter(id, masterID string, o *Options, b *book, uppers []*outgoing, log *slog.Logger) *router {
	return &router{id: id, masterID: masterID, opts: o, book: b, uppers: uppers, log: log, loads: map[string]*value.Dict{}}
}

// command takes a publication of a master of masters. news and late are those of book.asked.
func (r *router) command(from string, load *value.Dict) (news, late bool) {
	var in wire.Job
	if err := wire.Decode(load, &in); err != nil || !salt.ValidJID(in.JID) {
		r.log.Warn("ignoring a malformed command", "master", from, "err", err)
		return false, false
	}
	if id, _ := in.MasterID.(string); id != "" && id == r.masterID {
		r.log.Debug("ignoring a command that came from this master", "jid", in.JID)
		return false, false
	}
	return r.book.asked(from, in.JID, load)
}

// published reports the minions of a job from above to the masters that asked for it.
func (r *router) published(c *command, minions, missing []string) {
	askers := r.book.published(c, minions)
	if len(minions) > 0 {
		r.send(c.jid, value.DictOf("jid", c.jid, "minions", minions, "missing", missing), askers)
	}
}

// event takes an event of the lower master.
func (r *router) event(tag string, data *value.Dict) {
	jid, name := jobOf(tag)
	if jid != "" && name == "ret" && data.Has("return") && strings.HasPrefix(tag, "salt/job/") {
		r.returned(jid, data)
		return
	}
	if data.Has("retcode") || ownQuestion(tag, data) {
		return
	}
	asked := jid != "" && r.book.isAsked(jid)
	minions := value.OnlyTexts(data.At("minions"))
	switch {
	case asked:
		// Those below further syndics become known when these report them.
		r.book.expects(jid, minions)
	case jid != "" && name == "new":
		r.describe(jid, data)
	}
	if r.opts.Mode == modeCluster && !(asked && len(minions) > 0) {
		return
	}
	var to []string
	switch {
	case asked:
		to = r.book.askersOf(jid)
	case r.opts.ForwardAllEvents:
		for _, u := range r.uppers {
			to = append(to, u.name)
		}
	default:
		to = append(to, r.preferred())
	}
	r.send(tag, data, to)
}

// jobOf returns the job id in a tag, and the word after it.
func jobOf(tag string) (jid, name string) {
	words := strings.Split(tag, "/")
	for i, w := range words {
		if salt.ValidJID(w) {
			if i+1 < len(words) {
				name = words[i+1]
			}
			return w, name
		}
	}
	return "", ""
}

// lookUp is the runner function by which a syndic reads jobs of the lower master.
const lookUp = "jobs.list_job"

// ownQuestion reports whether an event is about a job that a syndic looked up.
func ownQuestion(tag string, data *value.Dict) bool {
	return strings.HasPrefix(tag, "salt/run/") && data.Str("fun") == "runner."+lookUp
}

// returned takes the event of a return.
func (r *router) returned(jid string, data *value.Dict) {
	var in wire.Return
	wire.View(data, &in)
	if in.JID != jid || salt.CheckID(in.ID) != nil {
		return // not a return of a job
	}
	own := ""
	if r.opts.Mode == modeSync {
		own = r.preferred()
	}
	if r.book.returned(jid, in.ID, keptReturn(data), own) {
		r.wake()
	}
}

// found takes the returns of a job from above that the lower master had stored.
func (r *router) found(jid string, fun any, returns map[string]*value.Dict) {
	for id, d := range returns {
		if salt.CheckID(id) != nil || !d.Has("return") {
			continue
		}
		kept := keptReturn(d)
		kept.Set("fun", fun)
		if r.book.returned(jid, id, kept, "") {
			r.log.Debug("found a return whose event was missed", "jid", jid, "minion", id)
			r.wake()
		}
	}
	r.book.looked(jid)
}

// keptReturn returns the part of a return that is sent to masters of masters: {fun, master_id,
// item}.
func keptReturn(data *value.Dict) *value.Dict {
	item := value.NewDict(4)
	for _, k := range []string{"return", "retcode", "success", "fun_args", "out"} {
		if v, ok := data.Get(k); ok {
			item.Set(k, v)
		}
	}
	kept := value.DictOf("item", item)
	for _, k := range []string{"fun", "master_id"} {
		if v, ok := data.Get(k); ok {
			kept.Set(k, v)
		}
	}
	return kept
}

// describe remembers the description of an own job of the lower master.
func (r *router) describe(jid string, data *value.Dict) {
	load := value.DictOf("jid", jid, "cmd", "publish", "ret", "")
	for _, k := range []string{"tgt", "tgt_type", "fun", "arg", "user", "metadata"} {
		if v, ok := data.Get(k); ok {
			load.Set(k, v)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.loads[jid] == nil {
		r.ordered = append(r.ordered, jid)
	}
	r.loads[jid] = load
	for len(r.ordered) > max(r.opts.JIDForwardCacheHWM, 1) {
		delete(r.loads, r.ordered[0])
		r.ordered = r.ordered[1:]
	}
}

// preferred returns the master of masters for what belongs to none of them: a connected one, in
// the order of syndic_failover.
func (r *router) preferred() string {
	order := slices.Clone(r.uppers)
	if r.opts.Failover == failoverRandom {
		rand.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
	}
	for _, u := range order {
		if u.connected() {
			return u.name
		}
	}
	return order[0].name
}

// failOver gives what belongs to no master, but waits for one that is unreachable, to another.
func (r *router) failOver() {
	to := ""
	for _, u := range r.uppers {
		if u.connected() {
			to = u.name
			break
		}
	}
	if to == "" {
		return
	}
	for _, u := range r.uppers {
		if u.connected() {
			continue
		}
		if n := r.book.reassign(u.name, to); n > 0 {
			r.log.Info("returns of own jobs go to another master of masters", "unreachable", u.name, "master", to, "returns", n)
			r.wake()
		}
	}
}

// send queues an event for some masters.
func (r *router) send(tag string, data *value.Dict, to []string) {
	for _, u := range r.uppers {
		if slices.Contains(to, u.name) {
			u.add(value.DictOf("tag", tag, "data", data))
		}
	}
}

func (r *router) wake() {
	for _, u := range r.uppers {
		u.wake()
	}
}

func (u *outgoing) add(e *value.Dict) {
	u.mu.Lock()
	u.events = append(u.events, e)
	if len(u.events) > maxEvents {
		u.events[0] = nil
		u.events = u.events[1:]
		u.dropped++
	}
	u.mu.Unlock()
	u.wake()
}

// take removes and returns the oldest events.
func (u *outgoing) take() (out []*value.Dict, more bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.dropped > 0 {
		u.log.Warn("dropped events: too many wait for the master of masters", "events", u.dropped, "limit", maxEvents)
		u.dropped = 0
	}
	n := min(len(u.events), eventBatch)
	out = slices.Clone(u.events[:n])
	clear(u.events[:n])
	u.events = u.events[n:]
	return out, len(u.events) > 0
}

// putBack queues events again that could not be sent.
func (u *outgoing) putBack(events []*value.Dict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.events = append(slices.Clone(events), u.events...)
	for len(u.events) > maxEvents {
		u.events[0] = nil
		u.events = u.events[1:]
		u.dropped++
	}
}

// eventsMessage is the request with events, under Salt's names.
func (r *router) eventsMessage(events []*value.Dict) *value.Dict {
	list := &value.List{}
	for _, e := range events {
		list.Append(e)
	}
	return value.DictOf("id", r.id, "cmd", "_minion_event", "pretag", "syndic/"+r.id, "events", list)
}

// returnsMessage is the request with returns, under Salt's names.
func (r *router) returnsMessage(parcels []parcel) *value.Dict {
	list := &value.List{}
	for _, p := range parcels {
		entry := value.DictOf("id", r.id, "jid", p.jid, "fun", nil, "arg", nil, "tgt", nil, "tgt_type", nil, "load", r.load(&p))
		items := value.NewDict(len(p.ids))
		for _, id := range p.ids {
			var k kept
			wire.View(p.returns[id], &k)
			items.Set(id, k.Item)
			if k.Fun != nil {
				entry.Set("fun", k.Fun)
			}
			if k.MasterID != nil {
				entry.Set("master_id", k.MasterID)
			}
		}
		entry.Set("return", items)
		list.Append(entry)
	}
	return value.DictOf("cmd", "_syndic_return", "id", r.id, "load", list)
}

// kept is the map of keptReturn.
type kept struct {
	Fun      any         `wire:"fun,omitempty"`
	MasterID any         `wire:"master_id,omitempty"`
	Item     *value.Dict `wire:"item"`
	Rest     *value.Dict `wire:"*"`
}

// load returns the description of a job for a master that has none, otherwise an empty map.
func (r *router) load(p *parcel) *value.Dict {
	r.mu.Lock()
	defer r.mu.Unlock()
	if load := r.loads[p.jid]; load != nil && p.describe {
		return load
	}
	return value.NewDict(0)
}

// expired reports whether a command is too old to be published.
func expired(c *command, now time.Time, timeout time.Duration) bool { return now.Sub(c.at) > timeout }
