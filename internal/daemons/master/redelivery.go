package master

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/target"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Stock minions do not ask for missed jobs, and forget at a restart which jobs they ran. So a
// job is republished to one only if it certainly did not receive it: it had no connection when
// the job was published. It then gets the job once, after it has connected.
//
// Over tcp a subscriber proves its id. Over zeromq stock minions send no id; there the address
// from which a minion sends requests is compared. A minion counts as connected after its start
// event. A mere network failure causes no start event; then the minion counts once its address
// has as many connections as minions.

// addresses records the source addresses of minions.
type addresses struct {
	guests *netserve.Guests // is notified of the addresses, too

	mu      sync.Mutex
	at      map[string]netip.Addr // of the last request
	started map[string]bool       // since the last check
	before  map[netip.Addr]int    // connections at the last check
}

func hostOf(a net.Addr) (netip.Addr, bool) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return t.AddrPort().Addr().Unmap(), true
}

// asked records the source address of a minion's request.
func (w *addresses) asked(id string, peer net.Addr) {
	ip, ok := hostOf(peer)
	if !ok {
		return
	}
	w.guests.Known(ip)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.at == nil {
		w.at = map[string]netip.Addr{}
	}
	w.at[id] = ip
}

// start records that a minion has started.
func (w *addresses) start(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started == nil {
		w.started = map[string]bool{}
	}
	w.started[id] = true
}

// come returns the minions that started since the last call.
func (w *addresses) come() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.started
	w.started = nil
	return out
}

// back adds to there the minions whose address has at least as many connections without an id as
// minions, both now (conns) and at the last call: a new connection may not have subscribed yet.
// Minions that are named, as those of Brine, have no such connection. Nil discards the counts of
// the last call.
func (w *addresses) back(conns map[netip.Addr]int, named func(id string) bool, there map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if conns == nil {
		w.before = nil
		return
	}
	minions := map[netip.Addr]int{}
	for id, ip := range w.at {
		if !named(id) {
			minions[ip]++
		}
	}
	for id, ip := range w.at {
		if n := minions[ip]; !named(id) && conns[ip] >= n && w.before[ip] >= n {
			there[id] = true
		}
	}
	w.before = conns
}

// missing returns the given minions that are certainly not connected. ids are the ids of all
// subscribers, addrs the addresses of those without an id. It returns none if a subscriber has
// an address from which no minion sent a request: that could be any minion.
func (w *addresses) missing(minions []string, ids map[string]bool, addrs map[netip.Addr]bool) (out []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	known := 0
	seen := map[netip.Addr]bool{}
	for _, ip := range w.at {
		if addrs[ip] && !seen[ip] {
			seen[ip] = true
			known++
		}
	}
	if known < len(addrs) {
		return nil
	}
	for _, id := range minions {
		ip, ok := w.at[id]
		if !ids[id] && (len(addrs) == 0 || ok && !addrs[ip]) {
			out = append(out, id)
		}
	}
	return out
}

// redelivery republishes jobs that stock minions missed.
type redelivery struct {
	states     *jobStates
	publishers []transport.Publisher
	audience   audience
	addresses  *addresses
	reconnects *reconnects
	cluster    *cluster.Cluster // nil without a cluster
	server     *channel.PublishServer
	log        *slog.Logger
}

// absent returns those of a job's minions that are probably stock minions and
// not connected now.
func (r *redelivery) absent(minions []string, expires time.Time) []string {
	if !expires.After(time.Now()) || r.cluster != nil { // in a cluster the minion may be connected elsewhere: see method again
		return nil
	}
	mute := r.states.queue.mute(minions)
	if len(mute) == 0 {
		return nil
	}
	l := r.audience.now(r.publishers)
	if l.odd {
		return nil
	}
	return r.addresses.missing(mute, l.ids, l.addrs)
}

// stockJobs bounds the jobs that are republished per second.
const stockJobs = 500

// handOut publishes what was queued for stock minions that have connected.
func (r *redelivery) handOut() {
	if r.cluster != nil {
		r.again()
		return
	}
	there := r.addresses.come()
	if !r.states.queue.awaits() {
		r.addresses.back(nil, nil, nil) // discard old observations
		return
	}
	if there == nil {
		there = map[string]bool{}
	}
	l := r.audience.now(r.publishers)
	maps.Copy(there, l.ids)
	r.addresses.back(l.conns, r.states.queue.brine, there)
	come := r.states.queue.arrived(there, stockJobs)
	if len(come) > 0 {
		r.states.store() // or a restart would republish them
	}
	r.republish(come)
}

// republication is a job that is republished to some of its minions.
type republication struct {
	handout
	ids    []string
	waited []time.Duration
}

// byJob groups jobs by minion into republications, one per job with all of its minions, oldest
// first: without zmq_filtering a publication goes to every subscriber. unfit has, by job, the
// minions whose ids cannot be in a list target.
func byJob(come map[string][]handout) (jobs []*republication, unfit map[string][]string) {
	known := map[string]*republication{}
	for _, id := range slices.Sorted(maps.Keys(come)) {
		for _, h := range come[id] {
			if !fitsList(id) {
				if unfit == nil {
					unfit = map[string][]string{}
				}
				unfit[h.jid] = append(unfit[h.jid], id)
				continue
			}
			a := known[h.jid]
			if a == nil {
				a = &republication{handout: h}
				known[h.jid] = a
				jobs = append(jobs, a)
			}
			a.ids, a.waited = append(a.ids, id), append(a.waited, h.waited)
		}
	}
	slices.SortFunc(jobs, func(a, b *republication) int { return cmp.Compare(a.number, b.number) })
	return jobs, unfit
}

// republish republishes jobs to stock minions that missed them.
func (r *redelivery) republish(come map[string][]handout) {
	jobs, unfit := byJob(come)
	for jid, ids := range unfit {
		r.notForOne(jid, ids)
	}
	for _, a := range jobs {
		job := a.job
		if job == nil {
			job = r.states.storedJob(a.jid)
		}
		if job == nil {
			continue
		}
		if job = forSome(job, a.ids); job == nil {
			r.notForOne(a.jid, a.ids)
			continue
		}
		if err := r.server.Publish(job, a.ids); err != nil {
			r.log.Error("cannot publish job", "jid", a.jid, "err", err)
			continue
		}
		for i, id := range a.ids {
			r.states.fire(a.jid, id, stateDelivered, "waited", a.waited[i].Seconds())
		}
	}
}

func (r *redelivery) notForOne(jid string, ids []string) {
	r.log.Info("cannot redeliver job to stock minions: target cannot be narrowed to single ids", "jid", jid, "minions", ids)
}

// fitsList reports whether an id can be part of a list target.
func fitsList(id string) bool { return !strings.ContainsAny(id, " ,()") }

// compoundLetters are the target types that depend on the minion's data, with
// their letters in compound targets.
var compoundLetters = map[string]string{"grain": "G@", "grain_pcre": "P@", "pillar": "I@", "pillar_pcre": "J@", "ipcidr": "S@"}

// forSome returns a job whose target matches only the given minions, and these only if they
// match the original; nil if there is no such target. Other minions must not run the job again.
func forSome(job *value.Dict, ids []string) *value.Dict {
	job = job.Clone()
	var pub wire.Job
	wire.View(job, &pub)
	tgt, _ := pub.Tgt.(string)
	switch typ := pub.TgtType; typ {
	case "", "glob", "pcre", "list": // decided by the id, which the master knows
		job.Set("tgt", value.Strings(ids))
		job.Set("tgt_type", "list")
		return job
	case "compound":
		if tgt == "" || strings.Contains(tgt, "N@") {
			return nil
		}
		job.Set("tgt", "L@"+strings.Join(ids, ",")+" and ( "+tgt+" )")
	default:
		letter := compoundLetters[typ]
		if letter == "" || tgt == "" || strings.ContainsAny(tgt, " ()") {
			return nil
		}
		job.Set("tgt", "L@"+strings.Join(ids, ",")+" and "+letter+tgt)
	}
	if d := pub.Delimiter; d != "" && d != target.DefaultDelimiter {
		return nil
	}
	job.Set("tgt_type", "compound")
	return job
}
