package federation

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// HubHost is the master in which a Hub runs.
type HubHost interface {
	// Store stores a return, and calls done when it is on disk.
	Store(jid, id string, ret *value.Dict, done func(error))
	// Announce adds minions to a job whose command has been given before.
	Announce(jid string, minions []string)
	// Restore stores the job of a command that this master had forgotten, unless it has it.
	Restore(c *wire.SiteCommand) error
	// Returned returns the minions whose returns of a job are stored.
	Returned(jid string) ([]string, error)
	// OwnMinion reports whether an id is that of a minion of the hub's own.
	OwnMinion(id string) bool
	// Fire fires an event.
	Fire(tag string, data *value.Dict)
}

// HubConfig is the configuration of a Hub.
type HubConfig struct {
	// Path is the file of the book, KeyDir has the keys of sites.
	Path, KeyDir string
	Bus          BusOptions
	Key          *sealed.Sealer
	// Replicas is the number of copies of what the bus stores.
	Replicas int
	// Wait is how long a command waits for the answers of sites.
	Wait time.Duration
	// Keep is how long jobs are remembered.
	Keep time.Duration
	// Leads reports whether this master does what one of a cluster does: it sends the list of sites, and
	// the commands of others again. Nil: it is alone.
	Leads func() bool
	// Again is when a command is first sent again whose final summary is missing.
	Again time.Duration
	Host  HubHost
	Log   *slog.Logger
}

// The states of a command at a site, as the hub knows them.
const (
	StateWaiting = "waiting" // not confirmed yet
	StateStored  = "stored"
	StateRefused = "refused"
	StateExpired = "expired" // it did not arrive in time
	StateLost    = "lost"    // the site confirmed it, and does not know it any more
)

// Command is a command that was given to sites.
type Command struct {
	cmd     wire.SiteCommand
	sites   map[string]*sitePart
	given   time.Time
	waiting int           // connected sites that have not answered
	heard   chan struct{} // closed when waiting is 0
	open    bool          // Issue has not returned
	loaded  bool          // it was read from the journal
	others  bool          // another master of the cluster gave it
	changed bool          // recordSoon waits
	stored  chan error    // receives once, when the journal has the command
}

// sitePart is a command at one site.
type sitePart struct {
	tgt     any // the target, as the site gets it
	tgtType string
	state   string
	reason  string
	minions []string // by the names that the hub has for them
	missing []string
	live    bool    // the site was connected when the command was given
	heard   bool    // the site has answered since the command was given
	by      string  // the master of the site that confirmed it
	summed  *summed // the stored summary, nil until it is needed
	final   bool    // its final summary is stored
	asked   bool    // for returns that are missing here
	tryAt   time.Time
	pause   time.Duration
}

// siteState is what the hub knows of a site.
type siteState struct {
	presence wire.SitePresence
	seen     time.Time
	kept     time.Time // when seen was stored
	lag      time.Duration
}

// Hub commands sites.
type Hub struct {
	cfg     HubConfig
	log     *slog.Logger
	limited *ratelimit.Log
	// Messages that peers cause do not count for limited, and one error of the streams does not hide another.
	refusals *ratelimit.Log
	causes   *limitlog.Log
	book     *book
	keys     *keystore.Store
	conn     *nats.Conn
	opener   *sealed.Opener
	ctx      context.Context
	work     sync.WaitGroup
	streams  wait.Wakeup
	clock    *hubClock
	peers    *hubPeers
	news     atomic.Bool // the list of sites has to be sent

	decisions *decisions
	recalls   *recalls

	mu     sync.Mutex
	jobs   map[string]*Command
	owners map[string]string // site of a minion
	sites  map[string]*siteState
	made   map[string]bool // sites with a consumer

	returns, summaries, refused atomic.Int64
}

// maxPendingSites bounds the keys of sites that wait for acceptance.
const maxPendingSites = 100

// NewHub opens the book and the keys of sites.
func NewHub(cfg HubConfig) (*Hub, error) {
	h := &Hub{
		cfg: cfg, log: cfg.Log.With("component", "federation"), limited: ratelimit.NewLog(cfg.Log, 3, time.Minute), jobs: map[string]*Command{},
		refusals: ratelimit.NewLog(cfg.Log, 3, time.Minute), causes: limitlog.New(cfg.Log),
		owners: map[string]string{}, sites: map[string]*siteState{}, made: map[string]bool{}, streams: wait.NewWakeup(), ctx: context.Background(),
		clock: newHubClock(cfg.Key),
	}
	if h.cfg.Again <= 0 {
		h.cfg.Again = time.Minute
	}
	h.opener = sealed.NewOpener(h.trusts)
	h.peers, h.recalls = newHubPeers(h), newRecalls(h)
	var err error
	if h.keys, err = keystore.Open(cfg.KeyDir, cfg.Log); err != nil {
		return nil, err
	}
	if h.book, err = openBook(cfg.Path, cfg.Log); err != nil {
		return nil, err
	}
	h.decisions = &decisions{book: h.book, keys: h.keys, made: func(k wire.HubKey) { h.peers.decided(k); h.streams.Wake() }}
	if err := errors.Join(h.load(), h.decisions.load()); err != nil {
		h.book.close()
		return nil, err
	}
	return h, nil
}

// trusts accepts the accepted key of each site.
func (h *Hub) trusts(id *sealed.Identity) error {
	if id.Role != sealed.Site {
		return salt.Errorf(salt.Denied, "%s is not a site", id.Name)
	}
	key, err := h.keys.AcceptedKey(id.Name) // a stat while the file does not change
	if err != nil && salt.KindOf(err) != salt.NotFound {
		return err
	}
	if err != nil || !id.Has(key.Public) {
		return salt.Errorf(salt.Denied, "the key %s of the site %s is not accepted", id.Fingerprint, id.Name)
	}
	return nil
}

func (h *Hub) load() error {
	err := h.book.each(ownersBucket, "", func(id string, d *value.Dict) { h.owners[id] = value.Str(d.At("site")) })
	if err != nil {
		return err
	}
	if err := h.book.each(sitesBucket, "", func(name string, d *value.Dict) {
		st := &siteState{}
		p, _ := d.At("presence").(*value.Dict)
		wire.View(p, &st.presence)
		at, _ := d.At("seen").(int64)
		st.seen = time.UnixMilli(at)
		h.sites[name] = st
	}); err != nil {
		return err
	}
	err = h.book.each(jobsBucket, "", func(jid string, d *value.Dict) {
		j := commandOf(d)
		if j == nil {
			return
		}
		j.loaded = true
		h.jobs[jid] = j
	})
	if err != nil {
		return err
	}
	return h.book.each(summariesBucket, "", func(key string, d *value.Dict) {
		jid, site, _ := strings.Cut(key, "/")
		if j := h.jobs[jid]; j != nil && j.sites[site] != nil {
			j.sites[site].final, _ = d.At("final").(bool)
		}
	})
}

// commandOf reads the record of a command, nil if it is damaged.
func commandOf(d *value.Dict) *Command {
	j := &Command{sites: map[string]*sitePart{}}
	cmd, _ := d.At("cmd").(*value.Dict)
	if wire.Decode(cmd, &j.cmd) != nil {
		return nil
	}
	at, _ := d.At("given").(int64)
	j.given = time.UnixMilli(at)
	j.others, _ = d.At("others").(bool)
	sites, _ := d.At("sites").(*value.Dict)
	for k, v := range sites.All() {
		if p, ok := v.(*value.Dict); ok {
			j.sites[value.Str(k)] = &sitePart{tgt: p.At("tgt"), tgtType: value.Str(p.At("tgt_type")), state: value.Str(p.At("state")),
				reason: value.Str(p.At("reason")), minions: value.OnlyTexts(p.At("minions")), by: textOf(p.At("by"))}
		}
	}
	return j
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// recordSoon records a change of a command after a while, with those that follow: a record has the names
// of all minions, and the answers of many sites arrive together. Locked.
func (j *Command) recordSoon(h *Hub) {
	if j.changed || j.cmd.Passing {
		return
	}
	j.changed = true
	time.AfterFunc(5*flushPause, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		j.changed = false
		if h.jobs[j.cmd.JID] == j { // not forgotten
			h.book.later(jobsBucket, j.cmd.JID, j.record())
		}
	})
}

func (j *Command) record() *value.Dict {
	sites := value.NewDict(len(j.sites))
	for _, name := range slices.Sorted(maps.Keys(j.sites)) {
		p := j.sites[name]
		sites.Set(name, value.DictOf("tgt", p.tgt, "tgt_type", p.tgtType, "state", p.state, "reason", p.reason, "minions", value.Strings(p.minions), "by", p.by))
	}
	d := value.DictOf("cmd", wire.Encode(j.cmd), "given", j.given.UnixMilli(), "sites", sites)
	if j.others {
		d.Set("others", true)
	}
	return d
}

// Run serves until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	h.ctx = ctx
	conn, err := dial(h.cfg.Bus, "hub", h.cfg.Key, func() { h.news.Store(true); h.peers.connected.Store(true); h.streams.Wake() }, h.log)
	if err != nil {
		h.book.close()
		return err
	}
	h.mu.Lock()
	h.conn = conn
	h.mu.Unlock()
	for subject, take := range map[string]nats.MsgHandler{
		subjectUp + "*": h.take, subjectSummary + "*": h.take, subjectKept + keptHub: h.take, subjectHello + "*": h.hello,
		SubjectWants: func(*nats.Msg) { h.news.Store(true); h.streams.Wake() }, subjectPeers: h.peers.take,
	} {
		if _, err := conn.Subscribe(subject, take); err != nil {
			conn.Close()
			h.book.close()
			return err
		}
	}
	h.work.Go(func() { h.prepare(ctx) })
	h.work.Go(func() { h.repeat(ctx) })
	<-ctx.Done()
	conn.Close()
	h.work.Wait()
	return h.book.close()
}

// Connected reports whether the hub's master is connected to the bus.
func (h *Hub) Connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conn != nil && h.conn.IsConnected()
}

// prepare sends the list of sites to the bus, and makes its streams.
func (h *Hub) prepare(ctx context.Context) {
	for pause := time.Duration(0); ctx.Err() == nil; {
		wait.Until(ctx, h.streams.C(), pause)
		if ctx.Err() != nil {
			return
		}
		pause = 10 * time.Second
		if !h.Connected() {
			continue
		}
		h.peers.compare()
		if !h.peers.leads() {
			continue
		}
		sites, err := h.accepted()
		if err != nil {
			h.limited.Log(slog.LevelError, "cannot read the keys of sites", "err", err)
			continue
		}
		list := value.NewDict(len(sites))
		for _, name := range slices.Sorted(maps.Keys(sites)) {
			list.Set(name, sites[name])
		}
		h.publish(SubjectSites, KindSites, "", wire.SiteList{Sites: list})
		if h.news.Swap(false) {
			h.publish(subjectAll, kindHello, "", wire.SitePresence{})
			h.mu.Lock()
			clear(h.made)
			h.mu.Unlock()
		}
		if missing := h.withoutConsumer(sites); len(missing) > 0 {
			if err := makeStreams(h.conn, h.cfg.Replicas, missing); err != nil {
				h.causes.Warn(err.Error(), "the bus keeps nothing for sites that are unreachable; the masters repeat it themselves", "err", err)
				pause = 2 * time.Second
				continue
			}
			h.mu.Lock()
			for _, name := range missing {
				h.made[name] = true
			}
			h.mu.Unlock()
		}
	}
}

func (h *Hub) withoutConsumer(sites map[string]string) (out []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name := range sites {
		if !h.made[name] {
			out = append(out, name)
		}
	}
	return out
}

// accepted returns the keys of the accepted sites.
func (h *Hub) accepted() (map[string]string, error) {
	names, err := h.keys.Accepted()
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		if pub, err := h.keys.Read(keystore.Accepted, name); err == nil && sealed.CheckName(name) == nil {
			out[name] = pub
		}
	}
	return out, nil
}

// publish sends a message. What is lost is repeated.
func (h *Hub) publish(subject, kind, to string, data any) error {
	b, err := h.cfg.Key.Seal(kind, to, data)
	if err == nil {
		err = h.conn.Publish(subject, b)
	}
	if err != nil && h.ctx.Err() == nil {
		h.limited.Log(slog.LevelDebug, "cannot send to the bus now", "kind", kind, "site", to, "err", err)
	}
	return err
}

// take handles a message of a site.
func (h *Hub) take(m *nats.Msg) {
	msg, err := h.opener.Open(m.Data)
	if err == nil {
		err = h.handle(msg, m)
	} else {
		acknowledge(h.conn, m)
	}
	if err != nil {
		h.refused.Add(1)
		h.refusals.Log(slog.LevelWarn, "refused a message of a site", "subject", m.Subject, "err", err)
	}
}

func (h *Hub) handle(msg *sealed.Message, m *nats.Msg) error {
	site := msg.From.Name
	switch msg.Kind {
	case kindStored:
		var in wire.SiteStored
		if err := msg.Read(&in); err != nil {
			return err
		}
		return h.stored(site, &in)
	case kindReturns:
		var in wire.SiteReturns
		if err := msg.Read(&in); err != nil {
			return err
		}
		return h.returned(site, &in)
	case kindSummary:
		defer acknowledge(h.conn, m)
		var in wire.SiteSummary
		if err := msg.Read(&in); err != nil {
			return err
		}
		return h.summary(site, &in)
	case kindRecall:
		var in wire.SiteRecall
		if err := msg.Read(&in); err != nil {
			return err
		}
		return h.recalls.take(site, &in)
	case kindPresence:
		var in wire.SitePresence
		if err := msg.Read(&in); err != nil {
			return err
		}
		h.presence(site, in, msg.At)
	case kindEvent:
		var in wire.SiteEvent
		if err := msg.Read(&in); err != nil {
			return err
		}
		h.cfg.Host.Fire("salt/site/"+site+"/"+in.Tag, in.Data)
	default:
		return salt.Errorf(salt.Invalid, "unknown kind of message %.20q of %s", msg.Kind, site)
	}
	return nil
}

// hello records the key of a site that is not accepted.
func (h *Hub) hello(m *nats.Msg) {
	var id *sealed.Identity
	open := sealed.NewOpener(func(of *sealed.Identity) error { id = of; return nil })
	msg, err := open.OpenAnyTime(m.Data) // the clock of the site may be wrong
	if err != nil || msg.Kind != kindHello || id.Role != sealed.Site {
		h.refusals.Log(slog.LevelWarn, "refused a greeting of a site", "err", err)
		return
	}
	st, pub, err := h.keys.Lookup(id.Name)
	switch {
	case salt.KindOf(err) == salt.NotFound || err == nil && pub == "":
		if n, err := h.keys.Count(keystore.Pending); err != nil || n >= maxPendingSites {
			h.refusals.Log(slog.LevelWarn, "cannot record the key of a site: too many wait for acceptance", "site", id.Name, "pending", n)
			return
		}
		if err := h.keys.Add(keystore.Pending, id.Name, id.Pub); err != nil {
			h.limited.Log(slog.LevelError, "cannot record the key of a site", "site", id.Name, "err", err)
			return
		}
		h.log.Info("the key of a site waits for acceptance: salt-run federation.accept", "site", id.Name, "fingerprint", id.Fingerprint)
		h.cfg.Host.Fire("salt/site/"+id.Name+"/pending", value.DictOf("site", id.Name, "fingerprint", id.Fingerprint))
	case err != nil:
		h.limited.Log(slog.LevelError, "cannot read the key of a site", "site", id.Name, "err", err)
	case st == keystore.Accepted && sealed.Fingerprint(pub) == id.Fingerprint:
		if c := h.clock.answer(msg, h.limited); c != nil {
			h.publish(clockSubject(id.Fingerprint), kindClock, id.Name, *c)
		}
	case sealed.Fingerprint(pub) != id.Fingerprint:
		h.refusals.Log(slog.LevelWarn, "a site with another key uses the name of a known one", "site", id.Name, "fingerprint", id.Fingerprint, "state", st.String())
	}
}

// name returns the name that the hub has for a minion of a site. The first site with an id owns it;
// for another site the name of the site is added. Locked.
func (h *Hub) name(site, id string) string {
	owner, known := h.owners[id]
	if !known && !h.cfg.Host.OwnMinion(id) {
		h.owners[id], owner = site, site
		h.book.later(ownersBucket, id, value.DictOf("site", site))
	}
	if owner == site {
		return id
	}
	return id + "@" + site
}

// names is name for the valid ids of a list.
func (h *Hub) names(site string, ids any) (out []string) {
	for _, id := range value.OnlyTexts(ids) {
		if salt.CheckNewID(id) == nil {
			out = append(out, h.name(site, id))
		}
	}
	return out
}

// stored handles the answer of a site to a command.
func (h *Hub) stored(site string, in *wire.SiteStored) error {
	h.mu.Lock()
	j := h.jobs[in.JID]
	if j == nil || j.sites[site] == nil {
		h.mu.Unlock()
		return h.recalls.unknown(site, in.JID)
	}
	p := j.sites[site]
	before, known := p.state, len(p.minions)
	if !p.answer(in, h.names(site, in.Minions)) {
		h.mu.Unlock()
		return nil
	}
	late := !j.open
	if before != p.state {
		p.pause = h.cfg.Again
		p.tryAt = time.Now().Add(p.pause)
	}
	if !in.More && !p.heard {
		p.heard = true
		if p.live && j.waiting > 0 {
			if j.waiting--; j.waiting == 0 {
				close(j.heard)
			}
		}
	}
	minions := slices.Clone(p.minions[known:])
	state, reason, all := p.state, p.reason, len(p.minions)
	j.recordSoon(h)
	h.mu.Unlock()
	if late && len(minions) > 0 && !j.cmd.Passing {
		h.cfg.Host.Announce(in.JID, minions)
	}
	if state == StateLost {
		h.log.Error("a site lost a command that it had confirmed; was its disk restored from an older copy?", "jid", in.JID, "site", site, "reason", in.Refused)
	}
	if state != before || len(minions) > 0 {
		h.tell(in.JID, site, value.DictOf("state", state, "reason", reason, "minions", int64(all)))
	}
	return nil
}

// answer applies the answer of a site, and reports whether it says something new. Masters of a site
// that share nothing answer each, and a long list of minions comes in parts, so minions are added.
func (p *sitePart) answer(in *wire.SiteStored, minions []string) (news bool) {
	switch {
	case in.Refused == "":
		news = p.state != StateStored
		p.state, p.reason = StateStored, ""
		if p.by == "" || news {
			p.by = in.Master
		}
		all := join(p.minions, minions)
		news = news || len(all) > len(p.minions)
		p.minions, p.missing = all, join(p.missing, value.OnlyTexts(in.Missing))
		return news || !p.heard && !in.More
	case p.state == StateWaiting || p.state == StateExpired:
		p.state, p.reason = StateRefused, in.Refused
		return true
	case p.state == StateStored && !p.final && p.by != "" && p.by == in.Master:
		p.state, p.reason = StateLost, "the site confirmed this command, and does not know it any more: "+in.Refused
		return true
	}
	return false
}

// join appends the names of a list that another one lacks.
func join(to, more []string) []string {
	have := make(map[string]bool, len(to))
	for _, id := range to {
		have[id] = true
	}
	for _, id := range more {
		if !have[id] {
			have[id] = true
			to = append(to, id)
		}
	}
	return to
}

// tell fires an event about a job at a site.
func (h *Hub) tell(jid, site string, d *value.Dict) {
	d.Set("jid", jid)
	d.Set("site", site)
	h.cfg.Host.Fire(salt.Tag("job", jid, "site", site), d)
}

// returned stores returns of a site's minions, and confirms them.
func (h *Hub) returned(site string, in *wire.SiteReturns) error {
	h.mu.Lock()
	j := h.jobs[in.JID]
	if j == nil || j.sites[site] == nil {
		h.mu.Unlock()
		return h.recalls.unknown(site, in.JID)
	}
	type one struct {
		id, name string
		ret      *value.Dict
	}
	var all []one
	for k, v := range in.Returns.All() {
		id, _ := k.(string)
		ret, ok := v.(*value.Dict)
		if ok && salt.CheckNewID(id) == nil {
			all = append(all, one{id, h.name(site, id), ret})
		}
	}
	h.mu.Unlock()
	var mu sync.Mutex
	left := len(all)
	var ids []string
	for _, r := range all {
		load := r.ret.Clone()
		load.Set("jid", in.JID)
		load.Set("id", r.name)
		for k, v := range map[string]any{"fun": j.cmd.Fun, "fun_args": j.cmd.Arg} {
			if !load.Has(k) {
				load.Set(k, v)
			}
		}
		h.cfg.Host.Store(in.JID, r.name, load, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil || salt.KindOf(err) == salt.Invalid {
				ids = append(ids, r.id)
				h.returns.Add(1)
			}
			if left--; left == 0 && !j.cmd.Passing {
				h.publish(subjectDown+site, kindConfirmed, site, wire.SiteConfirmed{JID: in.JID, IDs: value.Strings(ids)})
			}
		})
	}
	return nil
}

// summary stores the summary of a site, and confirms it.
func (h *Hub) summary(site string, in *wire.SiteSummary) error {
	key := in.JID + "/" + site
	h.mu.Lock()
	j := h.jobs[in.JID]
	if j == nil || j.sites[site] == nil {
		h.mu.Unlock()
		return h.recalls.unknown(site, in.JID)
	}
	p := j.sites[site]
	if p.summed == nil {
		var before wire.SiteSummary
		if err := h.book.each(summariesBucket, key, func(_ string, d *value.Dict) { wire.View(d, &before) }); err != nil {
			h.mu.Unlock()
			return err
		}
		p.summed = summedOf(&before)
	}
	is := summedOf(in)
	is.version = max(is.version, p.summed.version)
	if !newer(p.summed, in) {
		was := *p.summed
		h.mu.Unlock()
		h.counted(site, j, was)
		h.confirm(site, in.JID, was)
		return nil
	}
	p.summed = is
	d := wire.Encode(*in)
	d.Set("version", is.version)
	stored := h.book.begin(summariesBucket, key, d, false)
	h.mu.Unlock()
	h.work.Go(func() {
		if err := <-stored; err != nil {
			h.mu.Lock()
			p.summed = nil // as it is on disk
			h.mu.Unlock()
			h.limited.Log(slog.LevelError, "cannot store the summary of a site; it is sent again", "jid", in.JID, "site", site, "err", err)
			return
		}
		h.summaries.Add(1)
		h.counted(site, j, *is)
		h.confirm(site, in.JID, *is)
		h.tell(in.JID, site, d.Clone())
	})
	return nil
}

// summed is what decides whether a summary is newer than another one.
type summed struct {
	version, returns int64
	final            bool
}

func summedOf(s *wire.SiteSummary) *summed { return &summed{s.Version, s.OK + s.Failed, s.Final} }

// confirm tells a site which summary is stored.
func (h *Hub) confirm(site, jid string, s summed) {
	h.publish(subjectDown+site, kindConfirmed, site, wire.SiteConfirmed{JID: jid, Version: s.version, Counted: s.returns, Final: s.final})
}

// newer reports whether a summary replaces another one. Masters of a site that share nothing number
// their summaries each for itself, and one that was restored from an older copy begins again, so what
// counts more returns is newer.
func newer(before *summed, in *wire.SiteSummary) bool {
	if is := in.OK + in.Failed; is != before.returns {
		return is > before.returns
	}
	return in.Final && !before.final || in.Final == before.final && in.Version > before.version
}

// counted records that a summary is stored. If this master was restarted since the command, it asks
// for returns that it lost meanwhile: its disk may have been restored from an older copy.
func (h *Hub) counted(site string, j *Command, s summed) {
	h.mu.Lock()
	p := j.sites[site]
	p.final = p.final || s.final
	check := s.final && j.loaded && !j.cmd.Summary && !p.asked
	p.asked = p.asked || check
	h.mu.Unlock()
	if !check {
		return
	}
	ids, err := h.cfg.Host.Returned(j.cmd.JID)
	if err != nil {
		h.limited.Log(slog.LevelWarn, "cannot count the returns of a job of a site", "jid", j.cmd.JID, "site", site, "err", err)
		return
	}
	here := int64(0)
	h.mu.Lock()
	for _, id := range ids {
		if name, of, ok := splitName(id); h.owners[id] == site || ok && of == site && name != "" {
			here++
		}
	}
	h.mu.Unlock()
	if here < s.returns {
		h.publish(subjectDown+site, kindAsk, site, wire.SiteAsk{JID: j.cmd.JID})
	}
}

// presence records the state of a site, and sends it what it has not confirmed.
func (h *Hub) presence(site string, in wire.SitePresence, sent time.Time) {
	now := time.Now()
	h.mu.Lock()
	st := h.sites[site]
	if st == nil {
		st = &siteState{}
		h.sites[site] = st
	}
	back := now.Sub(st.seen) > 3*presenceEvery
	st.presence, st.seen, st.lag = in, now, now.Sub(sent).Round(time.Millisecond)
	var record *value.Dict
	if now.Sub(st.kept) > time.Minute {
		st.kept = now
		record = value.DictOf("presence", wire.Encode(in), "seen", now.UnixMilli())
	}
	if back || in.News {
		for _, j := range h.jobs {
			if p := j.sites[site]; p != nil {
				p.pause, p.tryAt = 0, time.Time{}
			}
		}
	}
	h.mu.Unlock()
	if record != nil {
		h.book.later(sitesBucket, site, record)
	}
	if back {
		h.cfg.Host.Fire("salt/site/"+site+"/present", value.DictOf("site", site, "connected", in.Connected, "accepted", in.Accepted))
	}
	if back || in.News {
		h.resend(now)
	}
}

// repeat sends commands again that sites have not confirmed.
func (h *Hub) repeat(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			h.resend(now)
		}
	}
}

// resend sends what is due.
func (h *Hub) resend(now time.Time) {
	type again struct {
		site string
		cmd  wire.SiteCommand
		kept bool
	}
	var send []again
	var expired []again
	var old []string
	leads := h.peers.leads()
	early := steady.Early() // an expired command does not come back
	h.mu.Lock()
	for jid, j := range h.jobs {
		if age := early.Sub(j.given); age > h.cfg.Keep || j.cmd.Passing && age > time.Minute {
			delete(h.jobs, jid)
			if !j.cmd.Passing {
				old = append(old, jid)
			}
			continue
		}
		if j.cmd.Passing {
			continue
		}
		over := early.UnixMilli() > j.cmd.Expires
		for name, p := range j.sites {
			switch {
			case j.others && !leads && (!over || p.state != StateWaiting):
			case p.state == StateStored && !p.final:
				// The site may have been restored from an older copy, or this master.
				if !now.Before(p.tryAt) && h.isPresent(name, now) {
					p.pause = min(max(2*p.pause, h.cfg.Again), 10*h.cfg.Again)
					p.tryAt = now.Add(p.pause)
					send = append(send, again{name, j.at(p), p.state == StateWaiting})
				}
			case p.state != StateWaiting:
			case over:
				p.state = StateExpired
				expired = append(expired, again{site: name, cmd: j.cmd})
				h.book.later(jobsBucket, jid, j.record())
			case !now.Before(p.tryAt) && h.isPresent(name, now):
				p.pause = min(max(2*p.pause, time.Second), 10*time.Second)
				p.tryAt = now.Add(p.pause)
				send = append(send, again{name, j.at(p), p.state == StateWaiting})
			}
		}
	}
	h.mu.Unlock()
	for _, a := range send {
		h.command(a.site, a.cmd, a.kept)
	}
	for _, a := range expired {
		h.log.Warn("a command expired before a site confirmed it", "jid", a.cmd.JID, "site", a.site)
		h.tell(a.cmd.JID, a.site, value.DictOf("state", StateExpired))
	}
	for _, jid := range old {
		h.book.remove(jobsBucket, jid)
		_ = h.book.each(summariesBucket, jid+"/", func(key string, _ *value.Dict) { h.book.remove(summariesBucket, key) }) // tried again at the next start
	}
}

// command sends a command to a site, which the stream keeps if kept is set: a site that is connected
// would get it twice. One that is too large for the bus counts as refused.
func (h *Hub) command(site string, c wire.SiteCommand, kept bool) {
	subject := subjectDown
	if kept {
		subject = subjectCommand
	}
	if err := h.publish(subject+site, kindCommand, site, c); errors.Is(err, nats.ErrMaxPayload) {
		why := "the command is larger than a message of the bus may be (" + value.Str(h.conn.MaxPayload()) + " bytes)"
		if err := h.stored(site, &wire.SiteStored{JID: c.JID, Refused: why}); err != nil {
			h.log.Error("cannot refuse a command", "jid", c.JID, "site", site, "err", err)
		}
	}
}

// at returns the command as one site gets it.
func (j *Command) at(p *sitePart) wire.SiteCommand {
	c := j.cmd
	c.Tgt, c.TgtType = p.tgt, p.tgtType
	return c
}

// isPresent reports whether a site was seen lately. Locked.
func (h *Hub) isPresent(site string, now time.Time) bool {
	st := h.sites[site]
	return st != nil && now.Sub(st.seen) < 3*presenceEvery
}

// Issued is a command that was given to sites.
type Issued struct {
	// Minions are those that the sites named in time, and Missing those that were named and that
	// no site has.
	Minions, Missing []string
	// Sites has the state of the command at each site.
	Sites map[string]SiteResult
}

// SiteResult is the state of a command at a site.
type SiteResult struct {
	State, Reason string
	Minions       int
}

// Record begins to put a command into the journal, from where it is sent until each site has
// confirmed it. It returns nil if no accepted site can match the target.
func (h *Hub) Record(c wire.SiteCommand) (*Command, error) {
	sites, err := h.keys.Accepted()
	if err != nil {
		return nil, err
	}
	j := &Command{cmd: c, sites: map[string]*sitePart{}, given: time.Now(), heard: make(chan struct{}), open: true, stored: make(chan error, 1)}
	h.mu.Lock()
	only := h.ownersOf(c.TgtType, c.Tgt)
	for _, name := range sites {
		if only != nil && !only[name] || sealed.CheckName(name) != nil {
			continue
		}
		typ, tgt, possible := SiteTarget(name, c.TgtType, c.Tgt)
		if !possible {
			continue
		}
		p := &sitePart{tgt: h.localNames(name, typ, tgt), tgtType: typ, state: StateWaiting}
		p.live = h.isPresent(name, j.given) && h.conn != nil && h.conn.IsConnected()
		if p.live {
			j.waiting++
			p.tryAt, p.pause = j.given.Add(2*time.Second), time.Second
		}
		j.sites[name] = p
	}
	h.mu.Unlock()
	if len(j.sites) == 0 {
		return nil, nil
	}
	if c.Passing {
		j.stored <- nil
		return j, nil
	}
	record := j.record()
	go func() { j.stored <- h.book.put(jobsBucket, c.JID, record) }()
	return j, nil
}

// Drop removes a recorded command that is not to be given.
func (h *Hub) Drop(j *Command) {
	<-j.stored
	h.book.remove(jobsBucket, j.cmd.JID)
}

// Issue sends a recorded command once it is on disk, and waits for the answers of the sites that are
// connected.
func (h *Hub) Issue(j *Command) (Issued, error) {
	if err := <-j.stored; err != nil {
		return Issued{}, err
	}
	h.mu.Lock()
	h.jobs[j.cmd.JID] = j
	if j.waiting == 0 {
		close(j.heard)
	}
	connected := h.conn != nil
	h.mu.Unlock()
	if connected {
		h.peers.given(j)
		for name, p := range j.sites {
			h.command(name, j.at(p), !p.live && !j.cmd.Passing)
		}
		timer := time.NewTimer(h.cfg.Wait)
		defer timer.Stop()
		select {
		case <-j.heard:
		case <-timer.C:
		case <-h.ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	j.open = false
	out := Issued{Sites: map[string]SiteResult{}}
	missing, answers := map[string]int{}, 0
	for name, p := range j.sites {
		out.Sites[name] = SiteResult{p.state, p.reason, len(p.minions)}
		out.Minions = append(out.Minions, p.minions...)
		if p.state == StateStored {
			answers++
			for _, id := range p.missing {
				missing[id]++
			}
		}
	}
	for id, n := range missing {
		if n == len(j.sites) && answers == n {
			out.Missing = append(out.Missing, id)
		}
	}
	slices.Sort(out.Minions)
	slices.Sort(out.Missing)
	return out, nil
}

// ownersOf returns the sites of the minions that a list names, nil if the sites of some are not
// known. Locked.
func (h *Hub) ownersOf(typ string, tgt any) map[string]bool {
	l, ok := tgt.(*value.List)
	if typ != "list" || !ok {
		return nil
	}
	out := map[string]bool{}
	for _, id := range value.OnlyTexts(l) {
		if name, site, ok := splitName(id); ok && h.sites[site] != nil && name != "" {
			out[site] = true
			continue
		}
		owner, known := h.owners[id]
		if !known && !h.cfg.Host.OwnMinion(id) {
			return nil
		}
		if known {
			out[owner] = true
		}
	}
	return out
}

// localNames replaces the hub's names of minions in a list by those of the site. Locked.
func (h *Hub) localNames(site, typ string, tgt any) any {
	l, ok := tgt.(*value.List)
	if typ != "list" || !ok {
		return tgt
	}
	out := &value.List{}
	for _, it := range l.Items {
		id, _ := it.(string)
		if name, of, ok := splitName(id); ok && of == site {
			out.Append(name)
		} else if owner, known := h.owners[id]; !known || owner == site {
			out.Append(it)
		}
	}
	return out
}

// Ask asks the sites of a job for all returns, and returns the sites that it asked.
func (h *Hub) Ask(jid string) []string {
	h.mu.Lock()
	j := h.jobs[jid]
	connected := h.conn != nil
	h.mu.Unlock()
	if j == nil || !connected {
		return nil
	}
	names := slices.Sorted(maps.Keys(j.sites))
	for _, name := range names {
		h.publish(subjectDown+name, kindAsk, name, wire.SiteAsk{JID: jid})
	}
	return names
}

// Job returns what the hub knows of a job at each site, nil if it is not one of the hub's.
func (h *Hub) Job(jid string) (*value.Dict, error) {
	h.mu.Lock()
	j := h.jobs[jid]
	if j == nil {
		h.mu.Unlock()
		return nil, nil
	}
	out := value.NewDict(len(j.sites))
	for _, name := range slices.Sorted(maps.Keys(j.sites)) {
		p := j.sites[name]
		d := value.DictOf("state", p.state)
		if p.reason != "" {
			d.Set("reason", p.reason)
		}
		out.Set(name, d)
	}
	h.mu.Unlock()
	err := h.book.each(summariesBucket, jid+"/", func(key string, d *value.Dict) {
		if at, ok := out.At(key[len(jid)+1:]).(*value.Dict); ok {
			d.Delete("jid")
			at.Update(d)
		}
	})
	return out, err
}

// seconds returns a duration in whole seconds.
func seconds(d time.Duration) int64 { return int64(d.Round(time.Second) / time.Second) }

// Sites returns what the hub knows of each site.
func (h *Hub) Sites() (*value.Dict, error) {
	sites, err := h.accepted()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	waiting, _ := h.undone(now)
	out := value.NewDict(len(sites))
	for _, name := range slices.Sorted(maps.Keys(sites)) {
		w := waiting[name]
		d := value.DictOf("connected", h.isPresent(name, now) && h.conn != nil && h.conn.IsConnected(), "waiting", int64(w.waiting),
			"incomplete", int64(w.incomplete), "oldest", seconds(w.oldest))
		if st := h.sites[name]; st != nil {
			d.Set("minions", st.presence.Accepted)
			d.Set("minions_up", st.presence.Connected)
			d.Set("master", st.presence.Master)
			d.Set("version", st.presence.Version)
			d.Set("seen", st.seen.UTC().Format(time.RFC3339))
			d.Set("silent", seconds(now.Sub(st.seen)))
			d.Set("lag", st.lag.Seconds())
			d.Set("unconfirmed", st.presence.Returns)
		}
		out.Set(name, d)
	}
	return out, nil
}

// Keys returns the keys of sites: by state, names with fingerprints.
func (h *Hub) Keys() (*value.Dict, error) {
	all, err := h.keys.List()
	if err != nil {
		return nil, err
	}
	out := value.NewDict(3)
	for _, st := range []keystore.State{keystore.Accepted, keystore.Pending, keystore.Rejected} {
		d := value.NewDict(len(all[st]))
		for _, name := range all[st] {
			pub, err := h.keys.Read(st, name)
			if err != nil {
				return nil, err
			}
			d.Set(name, sealed.Fingerprint(pub))
		}
		out.Set(st.String(), d)
	}
	return out, nil
}

// Accept accepts the pending or rejected key of a site. With a fingerprint, the key must have it.
func (h *Hub) Accept(name, fingerprint string) error {
	return h.decisions.set(name, fingerprint, keystore.Accepted)
}

// Reject rejects the key of a site. What the site sends has no effect from then on.
func (h *Hub) Reject(name string) error { return h.decisions.set(name, "", keystore.Rejected) }

// Delete removes the key of a site.
func (h *Hub) Delete(name string) error { return h.decisions.remove(name) }

// Minions returns the minions that sites have named, by site.
func (h *Hub) Minions() map[string][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string][]string{}
	for id, site := range h.owners {
		out[site] = append(out[site], id)
	}
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
