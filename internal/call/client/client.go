// Package client commands a master: it publishes jobs, collects the returns of minions, and runs
// runners. It uses the protocol of Salt's own command line, so the master may be Brine or stock
// Salt.
//
// A Client has no sockets of its own. It sends requests to a Master and reads the events of a Bus.
// Local provides both for a master on this machine; a master that runs runners provides its own.
// The client decides which minions must return, when to ask whether a job still runs, and when to
// stop, by Salt's rules:
//
//   - wait Timeout for returns, then ask all that are missing whether they
//     still run the job (saltutil.find_job);
//   - wait GatherJobTimeout for answers. A minion that runs the job gets
//     another Timeout, and a further round of questions follows;
//   - stop when all have returned, or when no minion answered that it runs the job
//     and the time of every missing minion is over.
//
// A master with syndics (OrderMasters) learns late which minions are targeted, so that even a
// complete set of returns ends the wait only after SyndicWait.
package client

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// Options are the settings of a master that concern its clients.
type Options struct {
	Timeout          time.Duration `salt:"timeout" default:"5" doc:"seconds that commands wait for minions" change:"live"`
	GatherJobTimeout time.Duration `salt:"gather_job_timeout" default:"10" doc:"seconds that commands wait for the answer whether a job is still running" change:"live"`
	GatherJobGrace   time.Duration `salt:"gather_job_grace" default:"1" least:"0" doc:"seconds that commands wait for returns under way after every missing minion has answered that it does not run the job; 0 waits for the whole gather_job_timeout, as Salt does (Brine only)" change:"live"`
	SyndicWait       time.Duration `salt:"syndic_wait" default:"5" doc:"seconds that commands wait for syndics to report their minions" change:"live"`
	OrderMasters     bool          `salt:"order_masters" default:"false" doc:"this master has syndics below it" change:"restart"`
	ExtJobCache      string        `salt:"ext_job_cache" default:"" doc:"returner to which minions also send every return" change:"live"`
	Nodegroups       *value.Dict   `salt:"nodegroups" default:"null" doc:"named targets" change:"live"`
}

// Master answers unencrypted requests. The reply is passed on as received, usually a dict.
type Master interface {
	// Request sends one request. If the load has "key" and "user", they are set to the caller's.
	Request(ctx context.Context, load *value.Dict) (any, error)
}

// Events is an open subscription.
type Events interface {
	// Next returns the next event. It fails with the error of ctx, after which it may be called
	// again, or because the events have ended permanently.
	Next(ctx context.Context) (*event.Event, error)
	Close() error
}

// Bus is the event bus of a master.
type Bus interface {
	// Subscribe returns the events fired after it returns whose tags begin with one of the prefixes.
	Subscribe(ctx context.Context, prefixes ...string) (Events, error)
}

// Client commands one master. It is safe for concurrent use.
type Client struct {
	o      Options
	conf   string // configuration file to name when a nodegroup is missing
	master Master
	bus    Bus
	creds  *value.Dict // of an external authentication, or nil
	log    *slog.Logger
}

// New returns a client. confFile is the configuration file to name in errors.
func New(o Options, confFile string, m Master, b Bus, log *slog.Logger) *Client {
	return &Client{o: o, conf: confFile, master: m, bus: b, log: log.With("component", "client")}
}

// As returns a client that sends these credentials: eauth with username and password, or token.
func (c *Client) As(creds *value.Dict) *Client {
	other := *c
	other.creds = creds
	return &other
}

// Options returns the options of the client.
func (c *Client) Options() Options { return c.o }

// Job is a job for minions. Zero fields mean Salt's defaults.
type Job struct {
	// Target is a string, or a list for the type list.
	Target any
	// Type is the target's type; "" means glob.
	Type string
	// Fun is the function's name, or a list of names with Arg a list of lists.
	Fun any
	Arg *value.List
	// Ret names returners for the minions, separated by commas.
	Ret string
	// JID is the job id to use; "" lets the master choose.
	JID string
	// Kwargs are additional keys for the master and the minions: delimiter, metadata, ret_config,
	// show_timeout and the like. May be nil.
	Kwargs *value.Dict
	// Timeout and GatherTimeout replace those of the Options unless 0.
	Timeout, GatherTimeout time.Duration
	// StillRunning, if set, is called for a minion that answers that it still runs the job.
	StillRunning func(id string)
	// StateChanged, if set, is called when the state of the job on a minion changes to Delivered or
	// Started. Stock masters do not report this.
	StateChanged func(jid, id, state string)
	// LeaveAway makes the client not wait for minions that are not connected.
	LeaveAway bool
}

// Published is a job that has been sent.
type Published struct {
	JID string
	// Minions are those expected to return, Missing those that were named but are unknown to the master.
	Minions, Missing []string
	// Elsewhere has the minions that another master commands at present, by the name of that master
	// in the minion's configuration. The client does not wait for them.
	Elsewhere map[string]string
	// Away has the minions that are not connected to the master, by the time since when. The client
	// waits for them unless the job says LeaveAway. The job is kept for them until Expires.
	Away    map[string]time.Time
	Expires time.Time
	// Sites has the state of the job at each site of a federation. Those whose state is waiting get
	// it when they are connected again.
	Sites map[string]Site
}

// Site is the state of a job at a site.
type Site struct {
	State, Reason string
	Minions       int64
}

// Publish sends a job and does not wait for it. Errors are those of Start.
func (c *Client) Publish(ctx context.Context, j Job) (Published, error) {
	load, err := c.load(&j)
	if err != nil {
		return Published{}, err
	}
	reply, err := c.request(ctx, load, c.timeout(&j))
	if err != nil {
		return Published{}, err
	}
	return c.published(reply)
}

// Start subscribes to events, sends a job and returns a Running that collects its returns; Close
// must be called. It fails with ErrNoMatch, *Refused, or an error of kind Unavailable, Timeout or
// Invalid.
func (c *Client) Start(ctx context.Context, j Job) (*Running, error) {
	events, err := c.jobEvents(ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.startOn(ctx, events, j)
	if err != nil {
		events.Close()
	}
	return r, err
}

// startOn sends a job whose events arrive on the given subscription.
func (c *Client) startOn(ctx context.Context, events Events, j Job) (*Running, error) {
	p, err := c.Publish(ctx, j)
	if err != nil {
		return nil, err
	}
	return &Running{Published: p, c: c, job: j, events: events, wait: c.newWait(p, &j, time.Now())}, nil
}

// jobEvents subscribes to all events of jobs.
func (c *Client) jobEvents(ctx context.Context) (Events, error) {
	prefixes := []string{"salt/job/"}
	if c.o.OrderMasters {
		prefixes = append(prefixes, "syndic/")
	}
	return c.subscribe(ctx, prefixes...)
}

// Call starts a job and returns all results, including those of absent minions.
func (c *Client) Call(ctx context.Context, j Job) (Published, []Result, error) {
	run, err := c.Start(ctx, j)
	if err != nil {
		return Published{}, nil, err
	}
	defer run.Close()
	results := make([]Result, 0, len(run.Minions))
	for r, err := range run.Results(ctx) {
		if err != nil {
			return run.Published, results, err
		}
		results = append(results, r)
	}
	return run.Published, results, nil
}

func (c *Client) subscribe(ctx context.Context, prefixes ...string) (Events, error) {
	events, err := c.bus.Subscribe(ctx, prefixes...)
	if err == nil || ctx.Err() != nil {
		return events, err
	}
	if errors.As(err, new(*NoAccess)) {
		return nil, &salt.Error{Kind: salt.Unavailable, Err: err}
	}
	c.log.Debug("cannot subscribe to events", "err", err)
	return nil, &salt.Error{Kind: salt.Unavailable, Err: unreachable{err}}
}

// request sends a load with a timeout that is a multiple of timeout: the master may be busy with
// other commands.
func (c *Client) request(ctx context.Context, load *value.Dict, timeout time.Duration) (any, error) {
	limited, cancel := context.WithTimeout(ctx, max(3*timeout, minRequest))
	defer cancel()
	reply, err := c.master.Request(limited, load)
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, &salt.Error{Kind: salt.Timeout, Err: timedOut{err}}
	case errors.As(err, new(keyError)):
		return nil, err
	}
	c.log.Debug("request failed", "cmd", load.At("cmd"), "err", err)
	return nil, &salt.Error{Kind: salt.Unavailable, Err: unreachable{err}}
}

// minRequest is the minimum timeout of a request.
const minRequest = 15 * time.Second

func (c *Client) timeout(j *Job) time.Duration {
	if j.Timeout > 0 {
		return j.Timeout
	}
	return c.o.Timeout
}

// load builds the publish request.
func (c *Client) load(j *Job) (*value.Dict, error) {
	typ, tgt, err := c.expandTarget(j.Type, j.Target)
	if err != nil {
		return nil, err
	}
	ret := j.Ret
	if ext := c.o.ExtJobCache; ext != "" {
		if ret != "" {
			ret += ","
		}
		ret += ext
	}
	out := wire.Publish{Cmd: "publish", Tgt: tgt, Fun: j.Fun, Arg: j.Arg, Key: "", TgtType: typ, Ret: ret, JID: j.JID, Kwargs: j.Kwargs, User: ""}
	if j.Arg == nil {
		out.Arg = &value.List{}
	}
	if c.creds != nil {
		out.Kwargs = j.Kwargs.Clone()
		out.Kwargs.Update(c.creds)
		var creds wire.Credentials
		wire.View(c.creds, &creds)
		name, _ := creds.Username.(string)
		out.Key, out.User = nil, name // with credentials the master checks only these
	}
	if c.o.OrderMasters {
		out.To = int64(c.timeout(j) / time.Second)
	}
	return wire.Encode(out), nil
}

// unixTime converts seconds since 1970, as the master sends them.
func unixTime(v any) (time.Time, bool) {
	f, ok := v.(float64)
	if !(ok && f > 0 && f < 1e11) {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(f * 1000)), true
}

// published parses the reply to a publish request.
func (c *Client) published(reply any) (Published, error) {
	d, err := checkReply(reply)
	if err != nil {
		return Published{}, err
	}
	var outer wire.ClearReply
	var in wire.Published
	if err = wire.Decode(d, &outer); err == nil {
		err = wire.Decode(outer.Load, &in)
	}
	if err != nil {
		return Published{}, unreadable(err)
	}
	jid, _ := in.JID.(string)
	p := Published{JID: jid, Minions: value.OnlyTexts(in.Minions), Missing: value.OnlyTexts(in.Missing), Elsewhere: map[string]string{}}
	for id, master := range in.Elsewhere.All() {
		p.Elsewhere[value.Str(id)] = value.Str(master)
	}
	for id, since := range in.Away.All() {
		if t, ok := unixTime(since); ok {
			if p.Away == nil {
				p.Away = map[string]time.Time{}
			}
			p.Away[value.Str(id)] = t
		}
	}
	p.Expires, _ = unixTime(in.Expires)
	for name, v := range in.Sites.All() {
		var site wire.PublishedSite
		d, _ := v.(*value.Dict)
		wire.View(d, &site)
		if p.Sites == nil {
			p.Sites = map[string]Site{}
		}
		p.Sites[value.Str(name)] = Site{site.State, site.Reason, site.Minions}
	}
	if p.JID == "" || len(p.Minions) == 0 && !c.o.OrderMasters && !p.pending() {
		c.log.Debug("no minions matched", "reason", in.Error)
		return Published{}, ErrNoMatch
	}
	if !salt.ValidJID(p.JID) {
		return Published{}, salt.Errorf(salt.Internal, "the master answered with %s, which is not a job id", value.Repr(in.JID))
	}
	return p, nil
}

// pending reports whether a site may still name minions, or refused the job.
func (p *Published) pending() bool {
	for _, s := range p.Sites {
		if s.State != "stored" {
			return true
		}
	}
	return false
}

// listOf returns a list or tuple as a list.
func listOf(v any) (l *value.List, ok bool) {
	switch x := v.(type) {
	case *value.List:
		return x, true
	case value.Tuple:
		return &value.List{Items: x}, true
	}
	return nil, false
}

func isList(v any) bool {
	_, ok := listOf(v)
	return ok
}
