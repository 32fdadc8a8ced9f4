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

// Stock minions do not ask what they missed, and forget with their process
// which jobs they ran. So a job is published to one again only if it surely
// never had it: there was no connection of that minion when the job was
// published. It then gets it once, when it has come.
//
// Over tcp a subscriber proves its id. Over zeromq Salt's say nothing; there
// the address counts from which a minion sends its requests. That it has come its
// start event says, or, if only the network was away, that there are as many
// connections from its address as minions.

// addresses knows from where minions send their requests.
type addresses struct {
	guests *netserve.Guests // learns the addresses of minions, too

	mu      sync.Mutex
	at      map[string]netip.Addr // of the last request
	started map[string]bool       // since the last look
	before  map[netip.Addr]int    // connections at the last look
}

func hostOf(a net.Addr) (netip.Addr, bool) {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}, false
	}
	return t.AddrPort().Addr().Unmap(), true
}

// asked notes from where a minion has sent a request.
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

// start notes that a minion has come.
func (w *addresses) start(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started == nil {
		w.started = map[string]bool{}
	}
	w.started[id] = true
}

// come returns the minions that have come since the last call.
func (w *addresses) come() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.started
	w.started = nil
	return out
}

// back adds to there the minions of which each must have one of the connections,
// given their number from each address, now and at the last call: a connection
// that is new may not have subscribed yet.
func (w *addresses) back(conns map[netip.Addr]int, there map[string]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if conns == nil {
		w.before = nil
		return
	}
	minions := map[netip.Addr]int{}
	for _, ip := range w.at {
		minions[ip]++
	}
	for id, ip := range w.at {
		if n := minions[ip]; conns[ip] >= n && w.before[ip] >= n {
			there[id] = true
		}
	}
	w.before = conns
}

// missing returns those of some minions that are surely not connected, given
// the ids and the addresses of all subscribers, these of those without an id.
// One at an address from which no minion has asked for anything could be any.
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

// redelivery publishes jobs again for stock minions that missed them.
type redelivery struct {
	states     *jobStates
	publishers []transport.Publisher
	audience   audience
	addresses  *addresses
	reconnects *reconnects
	cluster    *cluster.Cluster // nil for a master of its own
	server     *channel.PublishServer
	log        *slog.Logger
}

// absent returns those of a job's minions that are stock minions, as far as
// is known, and not connected now.
func (r *redelivery) absent(minions []string, expires time.Time) []string {
	if !expires.After(time.Now()) || r.cluster != nil { // in a cluster it may be elsewhere: again
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

// stockJobs bounds the jobs that are published again in one second.
const stockJobs = 500

// handOut publishes what was kept for stock minions that have come.
func (r *redelivery) handOut() {
	if r.cluster != nil {
		r.again()
		return
	}
	there := r.addresses.come()
	if !r.states.queue.awaits() {
		r.addresses.back(nil, nil) // what was seen long ago says nothing
		return
	}
	if there == nil {
		there = map[string]bool{}
	}
	l := r.audience.now(r.publishers)
	maps.Copy(there, l.ids)
	r.addresses.back(l.conns, there)
	come := r.states.queue.arrived(there, stockJobs)
	if len(come) > 0 {
		r.states.store() // or they would get it again after a restart
	}
	r.republish(come)
}

// republication is a job that is published again, for some of its minions.
type republication struct {
	handout
	ids    []string
	waited []time.Duration
}

// byJob turns what minions are to get into what is to be published, each job
// once for all of its minions, the oldest first: without zmq_filtering a
// publication goes to every subscriber. unfit are those that have no target.
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

// republish publishes jobs for stock minions that missed them.
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
			r.log.Error("cannot publish a job", "jid", a.jid, "err", err)
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

// fitsList tells whether an id can stand in a target that is a list.
func fitsList(id string) bool { return !strings.ContainsAny(id, " ,()") }

// compoundLetters are the types of targets that depend on the minion's data,
// with their letter in a compound target.
var compoundLetters = map[string]string{"grain": "G@", "grain_pcre": "P@", "pillar": "I@", "pillar_pcre": "J@", "ipcidr": "S@"}

// forSome is a job with a target that only some of its minions fit, and these
// only if they fit the original; nil if there is no such target. Others must
// not take the job again.
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
