package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/target"
	"brine/internal/daemons/master/sinks"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/boltfile"
)

// commands handles publish requests of the command line.
type commands struct {
	access    *access
	recorder  *recorder
	jobs      jobStore
	publisher *publisher
	log       *slog.Logger

	approvals      *approvals
	rateLimitedLog *ratelimit.Log // limits log messages about refused requests
}

// publish starts a job: {tgt, tgt_type, fun, arg, ret, jid, kwargs, user, key}.
// Credentials of an external system are in kwargs.
func (p *commands) publish(c *channel.Call) {
	who, o := p.access.sender(c), readOrder(c.Load)
	fromSyndic := who != nil && who.all && o.kw.AuthList != nil
	if fromSyndic {
		who = who.limited(o.kw.AuthList)
	}
	switch {
	case who == nil:
		p.rateLimitedLog.Log(slog.LevelWarn, "refused command: its sender is not authenticated", "peer", c.Peer(), "user", fmt.Sprintf("%.80s", o.user()))
		p.recorder.record(c, nil, resultRefused, "")
		c.Reply(refused())
		return
	case !p.access.mayPublish(who, o):
		p.rateLimitedLog.Log(slog.LevelWarn, "refused command: its sender is not authorized", "peer", c.Peer(), "user", who.name,
			"fun", fmt.Sprintf("%.80s", value.Str(o.Fun)))
		p.recorder.record(c, who, resultDenied, "")
		c.Reply(forbidden())
		return
	}
	if err := p.approve(who, c.Load, o); err != nil {
		result := resultDenied
		if err.name == wire.ApprovalRequired {
			result = resultUnapproved
		}
		p.recorder.record(c, who, result, "")
		c.Reply(value.DictOf("error", value.DictOf("name", err.name, "message", err.text)))
		return
	}
	taken, err := p.takenJID(who, o.JID)
	if err != nil {
		p.log.Error("refused command: cannot check whether its job id is in use", "jid", o.JID, "user", who.name, "err", err)
		c.Reply(value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", "the master cannot read its job cache: its log has the reason")))
		return
	}
	if taken {
		p.recorder.record(c, who, resultDenied, "")
		c.Reply(value.DictOf("error", value.DictOf("name", "SaltInvocationError", "message",
			fmt.Sprintf("the job id %q belongs to a job of another user; omit jid", o.JID))))
		return
	}
	load := c.Load.Clone()
	load.Delete("key")
	if load.Delete(salt.ApprovedBy); who.approver != "" {
		load.Set(salt.ApprovedBy, cut(who.approver))
	}
	p.publisher.traces.admit(load, o, fromSyndic)
	if who.how != byKey {
		load.Set("user", who.name)
	} else if user, ok := o.kw.User.(string); ok && user != "" && fromSyndic {
		load.Set("user", user) // the user of the master above
	}
	// Credentials are not stored with jobs.
	if o.Kwargs != nil {
		kwargs := o.Kwargs.Clone()
		for _, k := range secretKeys {
			kwargs.Delete(k)
		}
		load.Set("kwargs", kwargs)
	}
	for _, k := range secretKeys {
		load.Delete(k)
	}
	if (p.access.settings.options().OrderMasters || p.publisher.hub != nil) && !who.all {
		// The lower masters resolve the target again, among minions that are unknown here, and
		// each checks these permissions for its own minions.
		load.Set(authListKey, &value.List{Items: who.list})
	}
	reply := p.publisher.publish(load)
	result, did := resultDone, outcomeOfReply(reply)
	if did.refused {
		result = resultFailed
	}
	p.recorder.record(c, who, result, did.jid)
	c.Reply(reply)
}

// secretKeys are the keys with credentials in a publish request and its kwargs.
var secretKeys = []string{"token", "eauth", "username", "password", authListKey, wire.ApproverKey}

// unapproved is the reason why a job lacks the approval that it needs.
type unapproved struct{ name, text string }

// approve checks that a second user approves a job of a user of external_auth for more minions
// than approval_above, and sets the name of that user in who. The second user must be permitted to
// start the job.
func (p *commands) approve(who *caller, load *value.Dict, o *order) *unapproved {
	most := p.access.settings.options().ApprovalAbove
	if most <= 0 || who.how == byKey || jobControl[o.fun()] {
		return nil
	}
	minions, _, err := p.access.targets.resolve(o.targetType(), o.Tgt, o.kw.Delimiter)
	if err != nil || len(minions) <= most {
		return nil // publish reports the error
	}
	var creds wire.Credentials
	wire.View(external(load), &creds)
	if creds.SecondToken() == "" {
		return &unapproved{wire.ApprovalRequired, fmt.Sprintf("this job is for %d minions, more than %d (approval_above): a second user must approve it; start "+
			"it by the console or salt-api, where another user can", len(minions), most)}
	}
	if id, ok := strings.CutPrefix(creds.SecondToken(), wire.ApprovalPrefix); ok {
		by, err := p.approvals.use(who, id, o, minions)
		if err != nil {
			return &unapproved{"AuthorizationError", err.Error()}
		}
		who.approver = by
		p.log.Info("job is approved", "user", who.name, "approver", by, "fun", fmt.Sprintf("%.80s", value.Str(o.Fun)), "minions", len(minions))
		return nil
	}
	u, err := p.access.settings.auth().ByToken(creds.SecondToken())
	if err != nil {
		return &unapproved{"AuthenticationError", "the session of the approving user is no longer valid"}
	}
	second := &caller{how: byToken, name: u.Name, list: p.access.settings.auth().Rights(u)}
	if salt.SamePerson(second.name, who.name) {
		return &unapproved{"AuthorizationError", "a user cannot approve its own job"}
	}
	if !p.access.mayPublish(second, o) {
		return &unapproved{"AuthorizationError", second.name + " is not permitted to start this job, and so cannot approve it"}
	}
	who.approver = second.name
	p.log.Info("job is approved", "user", who.name, "approver", second.name, "fun", fmt.Sprintf("%.80s", value.Str(o.Fun)), "minions", len(minions))
	return nil
}

// takenJID reports whether a limited user names the id of another user's job,
// which would replace its record. Batches publish several times with one id.
func (p *commands) takenJID(who *caller, jid string) (bool, error) {
	if jid == "" || who.all {
		return false, nil
	}
	known, err := p.jobs.Load(jid)
	if known == nil || err != nil {
		return false, err
	}
	return strings.TrimPrefix(readOrder(known).user(), "sudo_") != who.name, nil
}

// publisher publishes jobs to minions.
type publisher struct {
	masterID string // stamped on jobs; "" for none
	settings *settings
	targets  *targets
	keep     time.Duration // how long jobs are kept; 0: for ever
	// revision returns the id of the state of the files that a cluster agreed on, or "".
	revision   func() string
	jobs       jobStore
	sinks      *sinks.Jobs
	stock      *sinks.StockFiles
	bus        *event.Bus
	queue      *queue
	redelivery *redelivery
	cluster    *cluster.Cluster // nil without a cluster
	server     *channel.PublishServer
	reports    *connectionReports
	departures *departures
	functions  *functionCounts
	syndics    *syndics
	runs       *lastStates
	hub        *hubCommands // nil unless this master commands sites
	traces     traces
	mint       func(now time.Time) string // salt.NewJID
	ctx        func() context.Context
	log        *slog.Logger
}

// newJID creates a job id. If the clock was set back before a restart, a new id
// may equal an old one; minions that ran the old job would ignore the new one.
func (p *publisher) newJID() string {
	for {
		jid := p.mint(time.Now())
		known, err := p.jobs.Load(jid)
		if err != nil { // recordJob reports errors of the store
			p.log.Warn("cannot check whether a job id is in use", "jid", jid, "err", err)
		}
		if known == nil {
			return jid
		}
	}
}

// publish starts a job for an authorized sender, and returns the reply: {enc:
// clear, load: {jid, minions, missing}} or a map with error. The job is on disk
// before it is sent; if that fails, it is refused.
func (p *publisher) publish(load *value.Dict) *value.Dict {
	began := time.Now()
	o := readOrder(load)
	minions, missing, err := p.resolve(o)
	if err != nil {
		return clearReply(value.DictOf("jid", nil, "minions", &value.List{}, "error", err.Error()))
	}
	minions = p.syndics.without(minions)
	if len(minions) == 0 && !p.settings.options().OrderMasters && p.hub == nil {
		return clearReply(value.DictOf("jid", nil, "minions", &value.List{},
			"error", fmt.Sprintf("Master could not resolve minions for target %s", value.Str(o.Tgt))))
	}
	jid := o.JID
	if jid == "" {
		jid = p.newJID()
	} else if !salt.ValidJID(jid) {
		return value.DictOf("error", value.DictOf("name", "SaltInvocationError", "message", fmt.Sprintf("%q is not a job id", jid)))
	}
	o.JID = jid
	load.Set("jid", jid)
	if load.Delete(revisionKey); p.revision() != "" {
		load.Set(revisionKey, p.revision())
	}
	link := p.traces.place(load, o)
	now := time.Now()
	expires := p.expiry(o, now)
	until := steady.Late().Add(expires.Sub(now)) // for others and after a restart: the clock may have jumped back
	sites, err := p.hub.record(o, load, until)
	if err != nil {
		p.log.Error("cannot record a command for sites; not publishing it", "jid", jid, "err", err)
		return unrecorded(err)
	}
	if p.hub != nil && sites == nil && len(minions) == 0 {
		return clearReply(value.DictOf("jid", nil, "minions", &value.List{},
			"error", fmt.Sprintf("Master could not resolve minions for target %s, and no site can have some", value.Str(o.Tgt))))
	}
	err = p.recordJob(load, o.fun(), jid, minions, until)
	if err != nil {
		if fun := o.fun(); !jobControl[fun] && !endsJobs[fun] {
			p.hub.drop(sites)
			p.log.Error("cannot record job; not publishing it", "jid", jid, "err", err)
			return unrecorded(err)
		}
		p.log.Error("cannot record job; publishing it, but it cannot be looked up later", "jid", jid, "err", err)
	}
	answers := p.hub.issue(sites) // sites have the longest way
	if err == nil && !strings.HasSuffix(jid, "nocache") {
		p.sinks.SendLoad(load, jid, minions)
		p.stock.PutLoad(load, jid, minions)
	}
	p.announce(load, o, minions, missing)
	job := jobMap(p.hub.local(load, o), jid, p.masterID)
	p.queue.add(job, jid, minions, p.redelivery.absent(minions, expires), expires)
	p.handToPeers(job, jid, minions, until)
	if err := p.server.Publish(job, receivers(o.targetType(), o.Tgt, minions)); err != nil {
		p.log.Error("cannot publish job", "jid", jid, "err", err)
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", err.Error()))
	}
	p.functions.published(o, len(minions))
	p.runs.Published(jid, o.fun(), minions, time.Now())
	p.traces.published(o, link, len(minions), began)
	p.log.Debug("published", "jid", jid, "fun", value.Str(o.Fun), "minions", len(minions))
	reply := value.DictOf("jid", jid, "minions", minions, "missing", missing)
	if sites != nil {
		p.hub.answer(reply, jid, minions, missing, <-answers)
	}
	if others := p.reports.elsewhere(minions); others.Len() > 0 && p.cluster == nil { // any master of a cluster reaches all minions
		reply.Set("elsewhere", others)
	}
	if p.cluster == nil || !jobControl[o.fun()] {
		if away := p.departures.away(p.ctx(), minions); away.Len() > 0 {
			reply.Set("away", away)
			reply.Set("expires", secondsOf(expires))
		}
	}
	return clearReply(reply)
}

// unrecorded is the reply to the sender of a job that cannot be recorded. If it
// were published, a restart could lose it or run it twice, without a trace.
func unrecorded(why error) *value.Dict {
	what, then := "the master cannot record the job, so no minion has received it", "give the command again"
	if errors.Is(why, boltfile.ErrUnknown) {
		what = "the master does not know whether it has recorded the job; no minion has received it, but it may run when the master is started again"
		then = "restart the master, and look the job up before you give the command again"
	}
	return value.DictOf("error", value.DictOf("name", "SaltMasterError",
		"message", fmt.Sprintf("%s: %v; make room on that disk or repair it, and %s", what, why, then)))
}

func clearReply(load *value.Dict) *value.Dict {
	return value.DictOf("enc", "clear", "load", load)
}

func (p *publisher) recordJob(load *value.Dict, fun, jid string, minions []string, expires time.Time) error {
	if strings.HasSuffix(jid, "nocache") {
		return nil
	}
	if jobControl[fun] {
		expires = time.Time{} // no client asks for its state
	}
	return p.jobs.NewJobUntil(load, minions, expires)
}

// announce fires the events of a new job.
func (p *publisher) announce(load *value.Dict, o *order, minions, missing []string) {
	jid := o.JID
	p.bus.Fire(jid, value.DictOf("minions", minions))
	d := value.DictOf("jid", jid, "tgt_type", load.At("tgt_type"), "tgt", o.Tgt, "user", o.User,
		"fun", o.Fun, "arg", o.Arg, "minions", minions, "missing", missing)
	if o.kw.Metadata != nil {
		d.Set("metadata", o.kw.Metadata)
	}
	p.bus.Fire(salt.Tag("job", jid, "new"), d)
	p.bus.Fire(salt.Tag("job", jid, "publish"), jobMap(load, jid, p.masterID))
}

// handToPeers forwards the job to the other masters, which publish it to their
// minions.
func (p *publisher) handToPeers(jobMap *value.Dict, jid string, minions []string, until time.Time) {
	if p.cluster == nil {
		return
	}
	if err := p.cluster.Relay.Publish(cluster.Job{JID: jid, Map: jobMap, Minions: minions, Until: until}); err != nil {
		p.log.Error("cannot forward job to other masters", "jid", jid, "err", err)
	}
}

// jobControl are the functions with which the command line queries jobs. A late
// answer is useless, so they are not queued.
var jobControl = map[string]bool{
	"saltutil.find_job": true, "saltutil.running": true, "saltutil.is_running": true,
}

// endsJobs are the functions with which an operator ends jobs. They are
// published even if they cannot be recorded: a job may be filling the disk.
var endsJobs = map[string]bool{
	"saltutil.kill_job": true, "saltutil.term_job": true, "saltutil.signal_job": true,
	"saltutil.kill_all_jobs": true, "saltutil.term_all_jobs": true,
}

// expiry returns the time until which a job is queued for unreachable minions. The
// default is timeout plus gather_job_timeout; the keyword expire (seconds) replaces it,
// and p.keep bounds it if that is positive. Job control functions are not queued.
func (p *publisher) expiry(job *order, now time.Time) time.Time {
	if jobControl[job.fun()] {
		return now
	}
	o := p.settings.options()
	d := o.Timeout + o.GatherJobTimeout
	switch x := job.kw.Expire.(type) {
	case int64:
		d = time.Duration(min(max(x, 0), maxExpire)) * time.Second
	case float64:
		d = time.Duration(min(max(x, 0), maxExpire) * float64(time.Second))
	}
	if keep := p.keep; keep > 0 {
		d = min(d, keep)
	}
	return now.Add(d)
}

// maxExpire is a year, in seconds.
const maxExpire = 365 * 24 * 3600

// jobMap builds the map that minions receive, in the key order of Salt's
// master.
func jobMap(load *value.Dict, jid, masterID string) *value.Dict {
	o := readOrder(load)
	if o.Arg == nil {
		o.Arg = &value.List{}
	}
	job := value.DictOf("fun", o.Fun, "arg", o.Arg, "tgt", o.Tgt, "jid", jid, "ret", o.Ret)
	if o.kw.MasterID != nil {
		job.Set("master_id", o.kw.MasterID)
	} else if masterID != "" {
		job.Set("master_id", masterID)
	}
	if d := o.kw.Delimiter; d != "" && d != target.DefaultDelimiter {
		job.Set("delimiter", d)
	}
	for _, k := range []string{"id", "tgt_type", "to", authListKey} {
		if v, ok := load.Get(k); ok {
			job.Set(k, v)
		}
	}
	for _, k := range []string{"ret_config", "metadata", "module_executors", "executor_opts", "ret_kwargs", wire.TraceKey} {
		if v, ok := o.Kwargs.Get(k); ok {
			job.Set(k, v)
		}
	}
	if u, ok := load.Get("user"); ok {
		job.Set("user", u)
	}
	return job
}

// receivers are the minions to which a transport with topics sends, nil for
// all: only targets that name ids can be resolved here.
func receivers(typ string, tgt any, minions []string) []string {
	switch typ {
	case "list":
		if l, ok := tgt.(*value.List); ok {
			ids := make([]string, 0, l.Len())
			for _, it := range l.Items {
				ids = append(ids, value.Str(it))
			}
			return ids
		}
		return minions
	case "glob", "pcre":
		return minions
	}
	return nil
}
