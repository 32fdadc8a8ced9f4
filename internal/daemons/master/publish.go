package master

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// commands takes jobs from the command line.
type commands struct{ m *Master }

// publish starts a job: {tgt, tgt_type, fun, arg, ret, jid, kwargs, user, key}.
// Credentials of an external system are in kwargs.
func (p *commands) publish(c *channel.Call) {
	who := p.m.sender(c)
	switch {
	case who == nil:
		p.m.gripes.Log(slog.LevelWarn, "a command was refused: it does not show who sends it", "peer", c.Peer(), "user", fmt.Sprintf("%.80s", c.Load.Str("user")))
		p.m.record(c, nil, resultRefused, "")
		c.Reply(refused())
		return
	case !p.m.mayPublish(who, c.Load):
		p.m.gripes.Log(slog.LevelWarn, "a command was refused: its sender may not give it", "peer", c.Peer(), "user", who.name, "fun", fmt.Sprintf("%.80s", value.Str(c.Load.At("fun"))))
		p.m.record(c, who, resultDenied, "")
		c.Reply(forbidden())
		return
	}
	taken, err := p.takenJID(who, c.Load.Str("jid"))
	if err != nil {
		p.m.log.Error("cannot look up whether a job id is in use; the command is refused", "jid", c.Load.Str("jid"), "user", who.name, "err", err)
		c.Reply(value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", "the master cannot read its job cache: its log has the reason")))
		return
	}
	if taken {
		p.m.record(c, who, resultDenied, "")
		c.Reply(value.DictOf("error", value.DictOf("name", "SaltInvocationError", "message", fmt.Sprintf("the job id %q belongs to a job of another user; omit jid", c.Load.Str("jid")))))
		return
	}
	load := c.Load.Clone()
	load.Delete("key")
	if who.how != byKey {
		load.Set("user", who.name)
	}
	// What proves who somebody is has no place in the memory of jobs.
	if kwargs := load.Dict("kwargs"); kwargs != nil {
		kwargs = kwargs.Clone()
		for _, k := range []string{"token", "eauth", "username", "password", "auth_list"} {
			kwargs.Delete(k)
		}
		load.Set("kwargs", kwargs)
	}
	for _, k := range []string{"token", "eauth", "username", "password"} {
		load.Delete(k)
	}
	reply := p.m.Publish(load)
	p.m.record(c, who, resultDone, reply.Dict("load").Str("jid"))
	c.Reply(reply)
}

// takenJID reports whether a limited user names the id of another user's job,
// whose record would be replaced. Batches publish several times with one id.
func (p *commands) takenJID(who *caller, jid string) (bool, error) {
	if jid == "" || who.all {
		return false, nil
	}
	known, err := p.m.jobs.Load(jid)
	if known == nil || err != nil {
		return false, err
	}
	return strings.TrimPrefix(known.Str("user"), "sudo_") != who.name, nil
}

// Publish starts a job whose sender has the right to it, and returns the
// reply that the sender is owed: {enc: clear, load: {jid, minions, missing}}
// or a map with error. The job is on disk before it is sent, if the disk takes it.
func (m *Master) Publish(load *value.Dict) *value.Dict {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = "glob"
	}
	kwargs := load.Dict("kwargs")
	minions, missing, err := m.resolve(typ, load.At("tgt"), kwargs.Str("delimiter"))
	if err != nil {
		return clearReply(value.DictOf("jid", nil, "minions", &value.List{}, "error", err.Error()))
	}
	if len(minions) == 0 && !m.options().OrderMasters {
		return clearReply(value.DictOf("jid", nil, "minions", &value.List{},
			"error", fmt.Sprintf("Master could not resolve minions for target %s", value.Str(load.At("tgt")))))
	}
	jid := load.Str("jid")
	if jid == "" {
		jid = salt.NewJID(time.Now())
	} else if !salt.ValidJID(jid) {
		return value.DictOf("error", value.DictOf("name", "SaltInvocationError", "message", fmt.Sprintf("%q is not a job id", jid)))
	}
	load.Set("jid", jid)
	if load.Delete(revisionKey); m.revisions.current() != "" {
		load.Set(revisionKey, m.revisions.current())
	}
	expires := m.expiry(load, time.Now())
	if err := m.recordJob(load, jid, minions, expires); err != nil {
		// It is sent all the same: an operator whose master's disk is full
		// needs to command it, and minions keep returns that are not stored.
		m.log.Error("cannot record a job; it is sent, but cannot be looked up later", "jid", jid, "err", err)
	}
	m.announce(load, jid, minions, missing)
	job := jobMap(load, jid, m.cfg.MasterID)
	m.queue.add(job, jid, minions, m.absent(minions, expires), expires)
	m.handToPeers(job, jid, minions, expires)
	if err := m.publish.Publish(job, receivers(typ, load.At("tgt"), minions)); err != nil {
		m.log.Error("cannot publish a job", "jid", jid, "err", err)
		return value.DictOf("error", value.DictOf("name", "SaltMasterError", "message", err.Error()))
	}
	m.log.Debug("published", "jid", jid, "fun", value.Str(load.At("fun")), "minions", len(minions))
	reply := value.DictOf("jid", jid, "minions", minions, "missing", missing)
	if others := m.standings.elsewhere(minions); others.Len() > 0 && m.cluster == nil { // a cluster commands all
		reply.Set("elsewhere", others)
	}
	return clearReply(reply)
}

func clearReply(load *value.Dict) *value.Dict {
	return value.DictOf("enc", "clear", "load", load)
}

func (m *Master) recordJob(load *value.Dict, jid string, minions []string, expires time.Time) error {
	if strings.HasSuffix(jid, "nocache") {
		return nil
	}
	if overseers[load.Str("fun")] {
		expires = time.Time{} // nobody will ask what became of it
	}
	if err := m.jobs.NewJobUntil(load, minions, expires); err != nil {
		return err
	}
	m.sendLoad(load, jid, minions)
	m.writeForStock(load, jid, minions)
	return nil
}

// writeForStock writes a job where Salt's own programs look for it.
func (m *Master) writeForStock(load *value.Dict, jid string, minions []string) {
	if !m.options().JobCacheForStock || m.sharesFolder() {
		return // in a shared folder it is there already
	}
	if err := m.stockJobs.WriteLoad(jid, load, minions); err != nil {
		m.log.Warn("cannot write a job for Salt's own command line", "jid", jid, "err", err)
	}
}

// announce fires the events of a new job.
func (m *Master) announce(load *value.Dict, jid string, minions, missing []string) {
	m.bus.Fire(jid, value.DictOf("minions", minions))
	d := value.DictOf("jid", jid, "tgt_type", load.At("tgt_type"), "tgt", load.At("tgt"), "user", load.At("user"),
		"fun", load.At("fun"), "arg", load.At("arg"), "minions", minions, "missing", missing)
	if md, ok := load.Dict("kwargs").Get("metadata"); ok {
		d.Set("metadata", md)
	}
	m.bus.Fire(salt.Tag("job", jid, "new"), d)
	m.bus.Fire(salt.Tag("job", jid, "publish"), jobMap(load, jid, m.cfg.MasterID))
}

// jobMap builds what minions receive, in the order in which Salt's master
// builds it.
func jobMap(load *value.Dict, jid, masterID string) *value.Dict {
	kwargs := load.Dict("kwargs")
	job := value.DictOf("fun", load.At("fun"), "arg", load.At("arg"), "tgt", load.At("tgt"), "jid", jid, "ret", load.Str("ret"))
	if job.At("arg") == nil {
		job.Set("arg", &value.List{})
	}
	if id, ok := kwargs.Get("master_id"); ok {
		job.Set("master_id", id)
	} else if masterID != "" {
		job.Set("master_id", masterID)
	}
	if d := kwargs.Str("delimiter"); d != "" && d != target.DefaultDelimiter {
		job.Set("delimiter", d)
	}
	for _, k := range []string{"id", "tgt_type", "to"} {
		if v, ok := load.Get(k); ok {
			job.Set(k, v)
		}
	}
	for _, k := range []string{"ret_config", "metadata", "module_executors", "executor_opts", "ret_kwargs"} {
		if v, ok := kwargs.Get(k); ok {
			job.Set(k, v)
		}
	}
	if u, ok := load.Get("user"); ok {
		job.Set("user", u)
	}
	return job
}

// receivers are the minions that a transport with topics sends to, or nil for
// everyone: only for targets that name ids can it be told beforehand.
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

// resolve returns the accepted minions that a job for a target should be
// answered by, and the ids that it lists without there being such a minion. A
// minion whose data is not known counts, because it may match.
func (m *Master) resolve(typ string, tgt any, delimiter string) (minions, missing []string, err error) {
	return m.resolveWithin(target.NewBudget(target.DefaultBudget), typ, tgt, delimiter)
}

// minionTargetTime is what the backtracking patterns of one request of a
// minion may take. They run in the master, and any accepted minion sends them.
const minionTargetTime = 100 * time.Millisecond

// resolveWithin is resolve for a target whose patterns share a budget.
func (m *Master) resolveWithin(budget *target.Budget, typ string, tgt any, delimiter string) (minions, missing []string, err error) {
	t, err := m.nodegroups().ParseWithin(budget, typ, tgt, delimiter)
	if err != nil {
		return nil, nil, err
	}
	ids, err := m.keys.Accepted()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list the accepted minions: %w", err)
	}
	minions, missing = t.Expected(ids, m.minionData)
	return minions, missing, nil
}

// matching returns the accepted minions that surely match, as questions of
// permission need it.
func (m *Master) matching(typ string, tgt any, delimiter string) ([]string, error) {
	return m.matchingWithin(target.NewBudget(target.DefaultBudget), typ, tgt, delimiter)
}

// matchingWithin is matching for a target whose patterns share a budget.
func (m *Master) matchingWithin(budget *target.Budget, typ string, tgt any, delimiter string) ([]string, error) {
	t, err := m.nodegroups().ParseWithin(budget, typ, tgt, delimiter)
	if err != nil {
		return nil, err
	}
	ids, err := m.keys.Accepted()
	if err != nil {
		return nil, fmt.Errorf("cannot list the accepted minions: %w", err)
	}
	out := make([]string, 0, len(ids))
	for _, id := range ids {
		if t.Match(m.subject(id)) {
			out = append(out, id)
		}
	}
	return out, nil
}

// subject is a minion as the master knows it.
func (m *Master) subject(id string) target.Subject { return &cached{m: m, id: id} }

// cached reads a minion's data from the cache when a target asks for it.
type cached struct {
	m      *Master
	id     string
	loaded bool
	grains *value.Dict
	pillar *value.Dict
}

func (c *cached) load() {
	if c.loaded {
		return
	}
	c.loaded = true
	c.grains, c.pillar = c.m.minionData(c.id)
}

func (c *cached) ID() string          { return c.id }
func (c *cached) Grains() *value.Dict { c.load(); return c.grains }
func (c *cached) Pillar() *value.Dict { c.load(); return c.pillar }
