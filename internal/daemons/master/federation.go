package master

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/daemons/master/sinks"
	"brine/internal/ha/cluster"
	"brine/internal/ha/federation"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	seal "brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// FederationOptions are the options of the masters of a federation.
type FederationOptions struct {
	URLs        []string      `salt:"federation_urls" default:"[]" doc:"addresses of the hub's nodes, such as tls://hub.example.com:4515; with them this master belongs to a federation (Brine only)" change:"restart"`
	Site        string        `salt:"federation_site" default:"" doc:"name of the site of this master, the same on all its masters; empty: cluster_id, or the id of the master (Brine only)" change:"restart"`
	Finger      []string      `salt:"federation_finger" default:"[]" doc:"fingerprints of the masters or clusters whose commands this site takes, as salt-key -F master prints them there (Brine only)" change:"restart"`
	CA          string        `salt:"federation_ca" default:"" doc:"file of certificates by which the hub's nodes are checked; empty: those of the system (Brine only)" change:"restart"`
	Credentials string        `salt:"federation_credentials" default:"" doc:"file of credentials for a NATS server that is not brine-hub (Brine only)" change:"restart"`
	Allow       []any         `salt:"federation_allow" default:"['.*']" doc:"functions that the hub may call at this site, in the form of a user's list in publisher_acl (Brine only)" change:"restart"`
	AllReturns  bool          `salt:"federation_all_returns" default:"false" doc:"send the hub all returns also of jobs for which it wants summaries only (Brine only)" change:"restart"`
	Events      []string      `salt:"federation_events" default:"[]" doc:"patterns of tags of events that this site sends to the hub (Brine only)" change:"restart"`
	Hub         bool          `salt:"federation_hub" default:"false" doc:"command the sites of a federation from this master (Brine only)" change:"restart"`
	Replicas    int           `salt:"federation_replicas" default:"1" doc:"copies of what the hub's nodes keep for sites that are unreachable, at most the number of nodes (Brine only)" change:"restart"`
	Wait        time.Duration `salt:"federation_wait" default:"2" doc:"seconds that commands wait for sites that are connected to name their minions (Brine only)" change:"restart"`
}

// Check implements config.Checker.
func (o *FederationOptions) Check() error {
	invalid := func(format string, args ...any) error { return salt.Errorf(salt.Invalid, format, args...) }
	for _, u := range o.URLs {
		if !strings.Contains(u, "://") {
			return invalid("federation_urls: %.100q has no scheme; write tls://%.100s", u, u)
		}
	}
	if o.Site != "" {
		if err := seal.CheckName(o.Site); err != nil {
			return invalid("federation_site: %w", err)
		}
	}
	for _, f := range o.Finger {
		if !seal.ValidFingerprint(f) {
			return invalid("federation_finger: %.100q is no fingerprint such as 3a:f1:... with 32 bytes", f)
		}
	}
	switch {
	case o.Hub && len(o.URLs) == 0:
		return invalid("federation_hub needs federation_urls: the addresses of the hub's nodes")
	case len(o.Finger) > 0 && len(o.URLs) == 0:
		return invalid("federation_finger needs federation_urls: the addresses of the hub's nodes")
	case len(o.URLs) > 0 && !o.Hub && len(o.Finger) == 0:
		return invalid("federation_urls needs federation_hub, to command sites, or federation_finger: the masters whose commands this site takes")
	case o.Replicas < 1 || o.Replicas > 5:
		return invalid("federation_replicas: %d is not from 1 to 5", o.Replicas)
	case o.Wait < 0:
		return invalid("federation_wait: it is negative")
	}
	return nil
}

// isSite reports whether the master takes commands of a hub.
func (o *FederationOptions) isSite() bool { return len(o.URLs) > 0 && len(o.Finger) > 0 }

// siteName returns the name of the site of a master.
func siteName(cfg *Config) string {
	switch {
	case cfg.Federation.Site != "":
		return cfg.Federation.Site
	case cfg.Cluster.On():
		return cfg.Cluster.ID
	}
	return strings.NewReplacer(".", "-", " ", "-").Replace(cfg.ID)
}

// wireFederation makes the parts of a federation.
func (m *Master) wireFederation() (err error) {
	o := &m.cfg.Federation
	if len(o.URLs) == 0 {
		if o.Hub || o.Site != "" || len(o.Finger) > 0 {
			m.log.Warn("the options of a federation have no effect: set federation_urls to the addresses of the hub's nodes")
		}
		return nil
	}
	if !o.Hub && !o.isSite() {
		m.log.Warn("this master takes no commands of a hub: set federation_finger to the fingerprint of the master that commands sites, " +
			"which this prints on it: salt-key -F master")
		return nil
	}
	key := func() *crypt.PrivateKey { return m.identity.Key() }
	bus := federation.BusOptions{URLs: o.URLs, CAFile: o.CA, Credentials: o.Credentials}
	dir := filepath.Join(m.own.dir, "federation")
	keep := max(m.cfg.Jobs.Keep(), time.Hour)
	if o.Hub {
		var leads func() bool
		if m.cluster != nil {
			leads = m.cluster.Leads
		}
		if m.hub, err = federation.NewHub(federation.HubConfig{
			Path: filepath.Join(dir, "hub.db"), KeyDir: filepath.Join(m.cfg.PKIDir, "sites"), Bus: bus, Key: seal.NewSealer("hub", seal.Hub, key),
			Replicas: o.Replicas, Wait: o.Wait, Keep: keep, Host: &hubHost{m.returned, m.jobs, m.bus, m.keys}, Leads: leads,
			Log: m.log,
		}); err != nil {
			return err
		}
		m.publisher.hub = &hubCommands{hub: m.hub, jobs: m.jobs, log: m.log}
	}
	if !o.isSite() {
		return nil
	}
	name := siteName(&m.cfg)
	m.site, err = federation.NewSite(federation.SiteConfig{
		Name: name, Master: m.cfg.ID, Version: salt.Version, Path: filepath.Join(dir, "site.db"), Bus: bus, Key: seal.NewSealer(name, seal.Site, key),
		Trusts: func(f string) bool { return slices.Contains(o.Finger, f) }, Keep: keep, AllReturns: o.AllReturns, Events: o.Events, Log: m.log,
		Host: &siteHost{
			id: m.cfg.ID, dir: filepath.Join(m.cfg.CacheDir, "brine", "federation"), allow: o.Allow, access: m.access, recorder: m.recorder,
			publisher: m.publisher, jobs: m.jobs, history: m.sinks, cluster: m.cluster, presence: m.presence, keys: m.keys, shared: m.cohabitation.shared,
		},
	})
	return err
}

// runSite runs the site, and gives it the events of the bus.
func (m *Master) runSite(ctx context.Context) error {
	prefixes := []string{"salt/job/"}
	if m.site.Subscribes() {
		prefixes = nil
	}
	defer m.bus.Handle(func(e *event.Event) {
		if rest, ok := strings.CutPrefix(e.Tag, "salt/job/"); ok {
			jid, rest, _ := strings.Cut(rest, "/")
			if id, ok := strings.CutPrefix(rest, "ret/"); ok {
				m.site.Returned(jid, id, e.Data)
			}
		}
		m.site.Fired(e.Tag, func() *value.Dict { return e.Data })
	}, prefixes...)()
	return m.site.Run(ctx)
}

// siteHost is the master of a site.
type siteHost struct {
	id        string
	dir       string // for claims of masters that share cachedir
	allow     []any
	access    *access
	recorder  *recorder
	publisher *publisher
	jobs      jobStore
	history   *sinks.Jobs
	cluster   *cluster.Cluster
	presence  *presence
	keys      *keystore.Store
	shared    func() bool
}

// Publish implements federation.SiteHost. The rules of this site apply, and those of the hub to its
// user.
func (h *siteHost) Publish(c *wire.SiteCommand) (minions, missing []string, err error) {
	kwargs := value.NewDict(4)
	for _, k := range []string{"delimiter", "metadata", "ret_config", "ret_kwargs", "module_executors", "executor_opts"} {
		if v, ok := c.Kwargs.Get(k); ok {
			kwargs.Set(k, v)
		}
	}
	h.publisher.traces.below(kwargs, c.Kwargs, c.JID)
	left := time.Until(time.UnixMilli(c.Expires))
	kwargs.Set("expire", max(left.Seconds(), 0))
	load := value.DictOf("cmd", "publish", "tgt", c.Tgt, "fun", c.Fun, "arg", orList(c.Arg), "tgt_type", c.TgtType, "ret", c.Ret, "jid", c.JID,
		"kwargs", kwargs, "user", c.User)
	callers := []*caller{{how: byKey, name: c.User, list: h.allow}}
	if c.AuthList != nil {
		// A malformed list permits nothing.
		callers = append(callers, (&caller{how: byKey, name: c.User}).limited(c.AuthList))
	}
	o := readOrder(load)
	for i, who := range callers {
		if len(who.list) == 0 || !h.access.mayPublish(who, o) {
			h.record(load, resultDenied)
			why := "federation_allow of this site does not allow it"
			if i > 0 {
				why = "the user has no permission for these minions"
			}
			return nil, nil, salt.Errorf(salt.Denied, "%s", why)
		}
	}
	if l, ok := c.AuthList.(*value.List); ok {
		load.Set(authListKey, l)
	}
	reply := h.publisher.publish(load)
	var outer wire.ClearReply
	var in wire.Published
	var failure wire.Failure
	wire.View(reply, &outer)
	wire.View(outer.Load, &in)
	if outer.Error != nil {
		wire.View(outer.Error, &failure)
		if failure.Name == "SaltInvocationError" {
			return nil, nil, salt.Errorf(salt.Invalid, "%s", failure.Message)
		}
		return nil, nil, salt.Errorf(salt.Unavailable, "%s", failure.Message)
	}
	h.record(load, resultDone)
	return value.OnlyTexts(in.Minions), value.OnlyTexts(in.Missing), nil
}

func orList(v any) any {
	if v == nil {
		return &value.List{}
	}
	return v
}

// record writes an audit record.
func (h *siteHost) record(load *value.Dict, result string) {
	o := readOrder(load)
	if o.fun() == "saltutil.find_job" && result == resultDone {
		return
	}
	d := entry(o.user(), "federation", load)
	d.Set("from", "hub")
	d.Set("cmd", "publish")
	d.Set("result", result)
	d.Set("jid", o.JID)
	h.recorder.keep(d)
}

// Job implements federation.SiteHost.
func (h *siteHost) Job(jid string) ([]string, bool, error) {
	load, err := h.history.History().Load(jid)
	if err != nil || load == nil {
		return nil, false, err
	}
	minions, err := h.history.History().Minions(jid)
	return minions, true, err
}

// Returns implements federation.SiteHost.
func (h *siteHost) Returns(jid string) (map[string]*value.Dict, error) {
	return h.history.History().Returns(jid)
}

// Leads implements federation.SiteHost. Masters that share a key without a cluster have no leader:
// they claim each command.
func (h *siteHost) Leads() bool { return h.cluster == nil || h.cluster.Leads() }

// Shared implements federation.SiteHost.
func (h *siteHost) Shared() bool { return h.cluster != nil || h.shared() }

// claimTime is how long a master that claimed a command may take until its job is stored, before
// another one publishes it.
const claimTime = 5 * time.Second

// Claim implements federation.SiteHost: with the voters of a cluster, or by a file in a shared
// cachedir.
func (h *siteHost) Claim(ctx context.Context, jid string) (bool, error) {
	if h.cluster != nil {
		if !h.cluster.Voting.Votes() {
			return true, nil // the leader decides alone
		}
		_, by, err := h.cluster.Voting.Claim(ctx, "federation/"+jid)
		return by == "" || by == h.id, err
	}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return false, fmt.Errorf("cannot claim a command: %w", err)
	}
	path := filepath.Join(h.dir, jid+".claim")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		h.dropClaims()
		return true, f.Close()
	}
	if !errors.Is(err, fs.ErrExist) {
		return false, fmt.Errorf("cannot claim a command: %w", err)
	}
	info, err := os.Stat(path)
	if err == nil && time.Since(info.ModTime()) < claimTime {
		return false, salt.Errorf(salt.Unavailable, "another master of this site is publishing it")
	}
	return false, nil
}

// dropClaims removes claims of jobs that are over.
func (h *siteHost) dropClaims() {
	entries, err := os.ReadDir(h.dir)
	if err != nil || len(entries) < 2000 {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && steady.Removal().Sub(info.ModTime()) > 24*time.Hour {
			_ = os.Remove(filepath.Join(h.dir, e.Name())) // tried again
		}
	}
}

// Presence implements federation.SiteHost.
func (h *siteHost) Presence() (accepted, connected int) {
	n, err := h.keys.Count(keystore.Accepted)
	if err != nil {
		n = 0
	}
	return n, len(h.presence.current())
}

// hubHost is the master that commands sites.
type hubHost struct {
	returns *returns
	jobs    jobStore
	bus     *event.Bus
	keys    *keystore.Store
}

// Store implements federation.HubHost.
func (h *hubHost) Store(jid, id string, ret *value.Dict, done func(error)) {
	h.returns.store(jid, id, ret, nil, done)
}

// Announce implements federation.HubHost.
func (h *hubHost) Announce(jid string, minions []string) {
	if err := h.jobs.AddMinions(jid, minions); err != nil {
		h.returns.rateLimitedLog.Log(slog.LevelError, "cannot record the minions of a job at a site", "jid", jid, "err", err)
	}
	h.bus.Fire(salt.Tag("job", jid, "new"), value.DictOf("jid", jid, "minions", minions, "missing", &value.List{}))
}

// Restore implements federation.HubHost. The minions are added as sites name them.
func (h *hubHost) Restore(c *wire.SiteCommand) error {
	if old, err := h.jobs.Load(c.JID); err != nil || old != nil {
		return err
	}
	load := value.DictOf("cmd", "publish", "jid", c.JID, "tgt", c.Tgt, "tgt_type", c.TgtType, "fun", c.Fun, "arg", orList(c.Arg), "ret", c.Ret, "user", c.User)
	return h.jobs.NewJobUntil(load, nil, time.Time{})
}

// Returned implements federation.HubHost.
func (h *hubHost) Returned(jid string) ([]string, error) {
	rets, err := h.jobs.Returns(jid)
	return slices.Collect(maps.Keys(rets)), err
}

// OwnMinion implements federation.HubHost.
func (h *hubHost) OwnMinion(id string) bool {
	st, _, err := h.keys.Lookup(id)
	return err != nil || st == keystore.Accepted
}

// Fire implements federation.HubHost.
func (h *hubHost) Fire(tag string, data *value.Dict) { h.bus.Fire(tag, data) }

// hubCommands gives commands to sites. A nil *hubCommands has none.
type hubCommands struct {
	hub  *federation.Hub
	jobs jobStore
	log  *slog.Logger
}

// record puts a command into the journal. The result is nil if no site can match.
func (h *hubCommands) record(o *order, load *value.Dict, expires time.Time) (*federation.Command, error) {
	if h == nil {
		return nil, nil
	}
	var given wire.SiteCommand // the permissions that were added to the load
	wire.View(load, &given)
	c := wire.SiteCommand{JID: o.JID, Tgt: o.Tgt, TgtType: o.targetType(), Fun: o.Fun, Arg: o.Arg, Ret: o.Ret, User: o.user(), Expires: expires.UnixMilli(),
		Kwargs: o.Kwargs, AuthList: given.AuthList}
	c.Summary = value.Truth(o.kw.SiteSummary)
	if jobControl[o.fun()] {
		c.Passing, c.Expires = true, time.Now().Add(15*time.Second).UnixMilli()
	}
	return h.hub.Record(c)
}

// drop removes a recorded command that is not given.
func (h *hubCommands) drop(c *federation.Command) {
	if c != nil {
		h.hub.Drop(c)
	}
}

// issue sends a recorded command, and returns where its answers arrive.
func (h *hubCommands) issue(c *federation.Command) <-chan issued {
	if c == nil {
		return nil
	}
	out := make(chan issued, 1)
	go func() {
		answers, err := h.hub.Issue(c)
		out <- issued{answers, err}
	}()
	return out
}

// issued are the answers of sites to a command.
type issued struct {
	federation.Issued
	err error // the command is not in the journal, and was not sent
}

// local returns the load as the hub's own minions get it.
func (h *hubCommands) local(load *value.Dict, o *order) *value.Dict {
	if h == nil {
		return load
	}
	load = load.Clone()
	typ, tgt, _ := federation.SiteTarget("", o.targetType(), o.Tgt)
	if federation.NamesSites(o.targetType(), o.Tgt) {
		load.Set("tgt", tgt)
		load.Set("tgt_type", typ)
	}
	load.Delete(authListKey)
	return load
}

// addMinionsAfter is when the job store of the hub gets the minions of a job at sites.
const addMinionsAfter = 100 * time.Millisecond

// answer completes the reply to a publish request by what sites have answered.
func (h *hubCommands) answer(reply *value.Dict, jid string, minions, missing []string, in issued) {
	if in.err != nil {
		h.log.Error("cannot record a command for sites; not sent to them", "jid", jid, "err", in.err)
		reply.Set("sites", value.DictOf("-", value.DictOf("state", "unsent", "reason", in.err.Error(), "minions", int64(0))))
		return
	}
	if len(in.Minions) > 0 {
		// The journal of the hub has them, too. A flush now would delay the returns that are about to arrive.
		time.AfterFunc(addMinionsAfter, func() {
			if err := h.jobs.AddMinions(jid, in.Minions); err != nil {
				h.log.Error("cannot record the minions of a job at sites", "jid", jid, "err", err)
			}
		})
	}
	gone := missing[:0:0]
	for _, id := range missing {
		if slices.Contains(in.Missing, id) {
			gone = append(gone, id)
		}
	}
	reply.Set("minions", value.Strings(slices.Concat(minions, in.Minions)))
	reply.Set("missing", value.Strings(gone))
	sites := value.NewDict(len(in.Sites))
	for _, name := range slices.Sorted(maps.Keys(in.Sites)) {
		r := in.Sites[name]
		sites.Set(name, value.DictOf("state", r.State, "reason", r.Reason, "minions", int64(r.Minions)))
	}
	reply.Set("sites", sites)
}

// resolve resolves the target of a job among the minions of this master.
func (p *publisher) resolve(o *order) (minions, missing []string, err error) {
	typ, tgt := o.targetType(), o.Tgt
	if p.hub != nil {
		var possible bool
		if typ, tgt, possible = federation.SiteTarget("", typ, tgt); !possible {
			return nil, nil, nil
		}
	}
	return p.targets.resolve(typ, tgt, o.kw.Delimiter)
}
