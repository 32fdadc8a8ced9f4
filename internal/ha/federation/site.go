package federation

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/steady"
	"brine/internal/base/target"
	"brine/internal/base/wait"
	"brine/internal/net/sealed"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// SiteHost is the master in which a Site runs.
type SiteHost interface {
	// Publish starts the job of a command. An error of the kind Denied or Invalid means that the
	// site refuses it, any other that it may succeed later.
	Publish(c *wire.SiteCommand) (minions, missing []string, err error)
	// Job returns the minions of a job, if it was published here.
	Job(jid string) (minions []string, known bool, err error)
	// Returns reads the stored returns of a job, by minion.
	Returns(jid string) (map[string]*value.Dict, error)
	// Leads reports whether this master publishes commands for its site, and Shared whether other
	// masters of the site may do so instead.
	Leads() bool
	Shared() bool
	// Claim reports whether this master is the first to publish a command.
	Claim(ctx context.Context, jid string) (bool, error)
	// Presence returns the numbers of accepted and of connected minions.
	Presence() (accepted, connected int)
}

// SiteConfig is the configuration of a Site.
type SiteConfig struct {
	Name string
	// Master and Version are those of this master, for the hub to show.
	Master, Version string
	// Path is the file of the book.
	Path string
	Bus  BusOptions
	Key  *sealed.Sealer
	// Trusts reports whether a fingerprint is that of a hub's master.
	Trusts func(fingerprint string) bool
	// Keep is how long jobs are remembered that some minions have not returned.
	Keep time.Duration
	// AllReturns sends the returns of jobs that ask for a summary, too.
	AllReturns bool
	// Events are patterns of tags of events that are sent to the hub.
	Events []string
	Host   SiteHost
	// Now is time.Now, unless a test sets it.
	Now func() time.Time
	Log *slog.Logger
}

// The stages of a job at a site.
const (
	stageKept      = "kept"
	stagePublished = "published"
	stageRefused   = "refused"
)

// siteJob is a command that a site has received.
type siteJob struct {
	cmd      wire.SiteCommand
	sealed   []byte // the message in which it came, for a hub that forgets it
	stage    string
	minions  []string
	missing  []string
	refused  string
	received time.Time

	busy      bool // being published
	tended    bool // deliver has looked at it
	fresh     map[string]*value.Dict
	confirmed map[string]bool
	sent      map[string]time.Time // when returns were sent
	tally     *tally
	version   int64 // of the last summary that was sent
	counted   int   // returns in it
	final     bool  // whether it was final
	settled   bool  // the hub confirmed it
	summedAt  time.Time
	tryAt     time.Time
	pause     time.Duration
}

// Site connects a master to a hub.
type Site struct {
	cfg     SiteConfig
	log     *slog.Logger
	limited *ratelimit.Log
	// Messages that the bus causes do not count for limited.
	refusals *ratelimit.Log
	book     *book
	conn     *nats.Conn
	opener   *sealed.Opener
	events   []target.Glob
	wake     wait.Wakeup
	present  wait.Wakeup
	slots    chan struct{}
	work     sync.WaitGroup
	ctx      context.Context // of Run
	clock    *clock

	mu      sync.Mutex
	jobs    map[string]*siteJob
	touched map[string]bool  // jobs about which something has happened since the last round
	all     bool             // all jobs are due
	done    map[string]int64 // when commands expire whose jobs have ended, in Unix milliseconds
}

const (
	// presenceEvery is the time between reports of a site, and retryFirst and retryMost those
	// between repetitions of what the other end has not confirmed.
	presenceEvery = 5 * time.Second
	retryFirst    = time.Second
	retryMost     = 30 * time.Second
	// resendAfter is how long the hub may take to store a return before it is sent again. What a
	// connection may have lost is sent again at once.
	resendAfter = 30 * time.Second
	// summaryPause is the least time between two summaries of a job.
	summaryPause = time.Second
	// summaryGrace is how long after the expiry of a command the summary counts as final.
	summaryGrace = 30 * time.Second
	// maxJobs bounds the jobs that are open at a site.
	maxJobs = 20_000
	// maxPublishing bounds the commands that are published at once.
	maxPublishing = 32
	// maxFresh bounds the returns of a job that wait in memory; the others are read from the disk.
	maxFresh = 1000
	// maxBatch bounds the returns of one message in bytes.
	maxBatch = 512 << 10
)

// NewSite opens the book of a site, and connects in the background.
func NewSite(cfg SiteConfig) (*Site, error) {
	if err := sealed.CheckName(cfg.Name); err != nil {
		return nil, err
	}
	s := &Site{
		cfg: cfg, log: cfg.Log.With("site", cfg.Name), limited: ratelimit.NewLog(cfg.Log, 3, time.Minute), wake: wait.NewWakeup(), present: wait.NewWakeup(),
		refusals: ratelimit.NewLog(cfg.Log, 3, time.Minute),
		slots:    make(chan struct{}, maxPublishing), jobs: map[string]*siteJob{}, touched: map[string]bool{}, done: map[string]int64{}, ctx: context.Background(),
	}
	s.clock = newClock(cfg.Now)
	cfg.Key.Follow(s.clock.now)
	s.opener = sealed.NewOpener(func(id *sealed.Identity) error {
		if id.Role != sealed.Hub || !cfg.Trusts(id.Fingerprint) {
			return salt.Errorf(salt.Denied, "the key %s is not in federation_finger", id.Fingerprint)
		}
		return nil
	})
	s.opener.Follow(s.clock.now)
	for _, e := range cfg.Events {
		s.events = append(s.events, target.ParseGlob(e))
	}
	var err error
	if s.book, err = openBook(cfg.Path, cfg.Log); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		s.book.close()
		return nil, err
	}
	return s, nil
}

// load reads the jobs of before the last restart.
func (s *Site) load() error {
	err := s.book.each(overBucket, "", func(jid string, d *value.Dict) { s.done[jid], _ = d.At("expires").(int64) })
	if err != nil {
		return err
	}
	return s.book.each(jobsBucket, "", func(jid string, d *value.Dict) {
		j := &siteJob{confirmed: map[string]bool{}, fresh: map[string]*value.Dict{}, tally: newTally()}
		cmd, _ := d.At("cmd").(*value.Dict)
		if wire.Decode(cmd, &j.cmd) != nil || !salt.ValidJID(jid) {
			return
		}
		j.stage = value.Str(d.At("stage"))
		j.minions, j.missing = value.OnlyTexts(d.At("minions")), value.OnlyTexts(d.At("missing"))
		j.refused, _ = d.At("refused").(string)
		j.sealed, _ = d.At("sealed").([]byte)
		at, _ := d.At("received").(int64)
		j.received = time.UnixMilli(at)
		j.version, _ = d.At("version").(int64)
		j.counted = -1 // a summary may not have arrived
		s.jobs[jid] = j
	})
}

// record returns the record of a job in the book.
func (j *siteJob) record() *value.Dict {
	return value.DictOf("cmd", wire.Encode(j.cmd), "stage", j.stage, "minions", value.Strings(j.minions), "missing", value.Strings(j.missing),
		"refused", j.refused, "received", j.received.UnixMilli(), "version", j.version, "sealed", j.sealed)
}

// Run serves until ctx ends.
func (s *Site) Run(ctx context.Context) error {
	s.ctx = ctx
	conn, err := dial(s.cfg.Bus, s.cfg.Name, s.cfg.Key, func() { s.clock.ask(); s.present.Wake(); s.retryNow() }, s.log)
	if err != nil {
		s.book.close()
		return err
	}
	s.conn = conn
	for _, subject := range []string{subjectCommand + s.cfg.Name, subjectKept + s.cfg.Name, subjectDown + s.cfg.Name, subjectAll} {
		if _, err := conn.Subscribe(subject, s.take); err != nil {
			conn.Close()
			s.book.close()
			return err
		}
	}
	if _, err := conn.Subscribe(clockSubject(sealed.Fingerprint(s.cfg.Key.Pub())), s.time); err != nil {
		conn.Close()
		s.book.close()
		return err
	}
	s.retryNow()
	s.work.Go(func() { s.report(ctx) })
	s.work.Go(func() { s.deliver(ctx) })
	<-ctx.Done()
	conn.Close()
	s.work.Wait()
	return s.book.close()
}

// Connected reports whether the site is connected to the bus.
func (s *Site) Connected() bool { return s.conn != nil && s.conn.IsConnected() }

// Open returns how many jobs the hub has not confirmed completely.
func (s *Site) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

// take handles a message of the hub.
func (s *Site) take(m *nats.Msg) {
	msg, err := s.opener.Open(m.Data)
	if err == nil && msg.To != s.cfg.Name && msg.To != "" {
		err = salt.Errorf(salt.Denied, "it is for the site %.64s", msg.To)
	}
	if err != nil {
		acknowledge(s.conn, m)
		s.refusals.Log(slog.LevelWarn, "refused a message of the hub", "subject", m.Subject, "err", err)
		return
	}
	switch msg.Kind {
	case kindCommand:
		var c wire.SiteCommand
		if err = msg.Read(&c); err != nil {
			break
		}
		if msg.To != s.cfg.Name {
			err = salt.Errorf(salt.Denied, "a command names no site")
			break
		}
		s.slots <- struct{}{}
		s.work.Go(func() {
			defer func() { <-s.slots }()
			if s.command(c, m.Data) {
				acknowledge(s.conn, m)
			}
		})
		return
	case kindConfirmed:
		var c wire.SiteConfirmed
		if err = msg.Read(&c); err == nil {
			s.confirmed(&c)
		}
	case kindAsk:
		var c wire.SiteAsk
		if err = msg.Read(&c); err == nil {
			s.work.Go(func() { s.asked(c.JID) })
		}
	case kindForgotten:
		var c wire.SiteAsk
		if err = msg.Read(&c); err == nil {
			s.forgotten(c.JID)
		}
	case kindHello:
		s.present.Wake()
		s.retryNow()
	}
	acknowledge(s.conn, m)
	if err != nil {
		s.refusals.Log(slog.LevelWarn, "refused a message of the hub", "subject", m.Subject, "err", err)
	}
}

// command handles a command. It reports whether the command need not be delivered again.
func (s *Site) command(c wire.SiteCommand, sealed []byte) bool {
	if !salt.ValidJID(c.JID) {
		s.refusals.Log(slog.LevelWarn, "refused a command: invalid job id", "jid", c.JID)
		return true
	}
	s.mu.Lock()
	j := s.jobs[c.JID]
	if j != nil && (j.busy || j.stage == stageKept && !s.cfg.Host.Leads()) {
		s.mu.Unlock()
		return true
	}
	if j != nil && j.stage != stageKept {
		// The hub lacks the final summary.
		j.settled, j.pause, j.tryAt, j.sent = false, 0, time.Time{}, nil
		s.mu.Unlock()
		if c.Passing {
			s.stored(j)
		}
		s.touch(c.JID)
		return true
	}
	if j == nil {
		if len(s.jobs) >= maxJobs {
			s.mu.Unlock()
			s.limited.Log(slog.LevelError, "cannot take a command of the hub: too many jobs are open", "jid", c.JID, "open", maxJobs)
			return false
		}
		j = &siteJob{cmd: c, sealed: sealed, stage: stageKept, received: time.Now(), confirmed: map[string]bool{}, fresh: map[string]*value.Dict{}, tally: newTally()}
		s.jobs[c.JID] = j
	}
	j.busy = true
	s.mu.Unlock()
	err := s.publish(j)
	s.mu.Lock()
	j.busy = false
	if err != nil && c.Passing {
		delete(s.jobs, c.JID)
	}
	s.mu.Unlock()
	s.touch(c.JID)
	if err != nil {
		s.limited.Log(slog.LevelWarn, "cannot take a command of the hub now; retrying", "jid", c.JID, "err", err)
		return false
	}
	return true
}

// publish publishes a job at the site, if this master leads. An error means that it has to be tried
// again.
func (s *Site) publish(j *siteJob) error {
	if err := s.start(j); err != nil || !s.cfg.Host.Leads() {
		return err
	}
	s.stored(j)
	return nil
}

// start publishes a job and records it.
func (s *Site) start(j *siteJob) (err error) {
	jid := j.cmd.JID
	if !s.cfg.Host.Leads() {
		if j.cmd.Passing {
			s.forget(jid)
			return nil
		}
		return s.book.put(jobsBucket, jid, j.record())
	}
	minions, known, err := s.cfg.Host.Job(jid)
	if err != nil {
		return err
	}
	stage, refused := stagePublished, ""
	var missing []string
	switch {
	case known:
	case s.isOver(jid):
		stage, refused = stageRefused, "the job has ended, and this site does not keep it any more"
	case s.expired(&j.cmd) && !s.clock.compared():
		return salt.Errorf(salt.Unavailable, "the clock of this site was not compared with that of the master above yet")
	case s.expired(&j.cmd):
		stage, refused = stageRefused, "the command expired before it arrived; if that is wrong, compare the clocks"
	default:
		// The job is on disk before it is published. The book may have it later: if this master restarts
		// before that, the hub gives the command again, and the job is found.
		if s.cfg.Host.Shared() && !j.cmd.Passing {
			first, cerr := s.cfg.Host.Claim(s.ctx, jid)
			if cerr != nil {
				return cerr
			}
			if !first {
				s.log.Warn("another master of this site claimed a command and may not have published it; publishing it with the same id", "jid", jid)
			}
		}
		c := j.cmd
		c.Expires -= s.clock.offset().Milliseconds()
		minions, missing, err = s.cfg.Host.Publish(&c)
		if kind := salt.KindOf(err); kind == salt.Denied || kind == salt.Invalid {
			s.log.Warn("this site refuses a command of the hub", "jid", jid, "fun", value.Str(j.cmd.Fun), "user", j.cmd.User, "err", err)
			stage, refused, err = stageRefused, err.Error(), nil
		}
		if err != nil {
			return err
		}
	}
	s.mu.Lock()
	j.stage, j.refused, j.minions, j.missing = stage, refused, minions, missing
	if stage == stageRefused {
		j.final, j.settled = true, true
	}
	record := j.record()
	s.mu.Unlock()
	if known {
		s.recount(j)
	}
	if !j.cmd.Passing {
		s.book.later(jobsBucket, jid, record)
	}
	return nil
}

func (s *Site) forget(jid string) {
	s.mu.Lock()
	delete(s.jobs, jid)
	s.mu.Unlock()
}

// stored tells the hub that a command is stored here. A long list of minions travels in parts.
func (s *Site) stored(j *siteJob) {
	s.mu.Lock()
	refused, minions, missing := j.refused, j.minions, j.missing
	s.mu.Unlock()
	limit := maxBatch
	if n := int(s.conn.MaxPayload()); n > 0 {
		limit = min(limit, n/4)
	}
	part := func(all []string) (first, rest []string) {
		size := 0
		for i, id := range all {
			if size += len(id) + 3; size > limit && i > 0 {
				return all[:i], all[i:]
			}
		}
		return all, nil
	}
	for more := true; more; {
		m := wire.SiteStored{JID: j.cmd.JID, Refused: refused, Master: s.cfg.Master}
		var now, unknown []string
		now, minions = part(minions)
		unknown, missing = part(missing)
		m.Minions, m.Missing = value.Strings(now), value.Strings(unknown)
		more = len(minions) > 0 || len(missing) > 0
		m.More = more
		s.send(subjectUp, kindStored, m)
	}
}

// send sends a message to the hub. What is lost is repeated.
func (s *Site) send(subject, kind string, data any) {
	b, err := s.cfg.Key.Seal(kind, "", data)
	if err == nil {
		err = s.conn.Publish(subject+s.cfg.Name, b)
	}
	if err != nil && s.ctx.Err() == nil {
		s.limited.Log(slog.LevelDebug, "cannot send to the hub now", "kind", kind, "err", err)
	}
}

// Returned handles a return that the master has stored. It must not block.
func (s *Site) Returned(jid, id string, ret *value.Dict) {
	s.mu.Lock()
	j := s.jobs[jid]
	if j == nil || j.confirmed[id] || j.fresh[id] != nil {
		s.mu.Unlock()
		return
	}
	if !j.tally.add(id, ret) {
		s.mu.Unlock()
		return
	}
	if s.sends(j) && len(j.fresh) < maxFresh {
		j.fresh[id] = ret
	}
	s.mu.Unlock()
	s.touch(jid)
}

// touch lets deliver look at a job.
func (s *Site) touch(jid string) {
	s.mu.Lock()
	s.touched[jid] = true
	s.mu.Unlock()
	s.wake.Wake()
}

// Fired handles an event of the master's bus.
func (s *Site) Fired(tag string, data func() *value.Dict) {
	for _, g := range s.events {
		if g.Match(tag) {
			if s.Connected() {
				s.send(subjectUp, kindEvent, wire.SiteEvent{Tag: tag, Data: data()})
			}
			return
		}
	}
}

// Subscribes reports whether some events go to the hub.
func (s *Site) Subscribes() bool { return len(s.events) > 0 }

// sends reports whether the returns of a job go to the hub.
func (s *Site) sends(j *siteJob) bool { return !j.cmd.Summary || s.cfg.AllReturns }

// recount reads the returns of a job from the disk.
func (s *Site) recount(j *siteJob) {
	rets, err := s.cfg.Host.Returns(j.cmd.JID)
	if err != nil {
		s.limited.Log(slog.LevelWarn, "cannot read the returns of a job for the hub; retrying", "jid", j.cmd.JID, "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, ret := range rets {
		j.tally.add(id, ret)
	}
}

// report reports the presence of the site.
func (s *Site) report(ctx context.Context) {
	first := true
	for ctx.Err() == nil {
		if s.Connected() {
			accepted, connected := s.cfg.Host.Presence()
			m := wire.SitePresence{Master: s.cfg.Master, Version: s.cfg.Version, Accepted: int64(accepted), Connected: int64(connected),
				Leads: s.cfg.Host.Leads(), News: first, Returns: int64(s.waiting(time.Now()).returns)}
			s.send(subjectUp, kindPresence, m)
			s.hello(m)
			first = false
		} else {
			first = true
		}
		s.forgetExpired(steady.Early())
		if wait.Until(ctx, s.present.C(), presenceEvery-wait.Jitter(presenceEvery/10)); ctx.Err() != nil {
			return
		}
	}
}

// hello asks the hub to accept the key of this site, and for the time.
func (s *Site) hello(m wire.SitePresence) {
	m.Nonce = s.clock.question()
	b, err := s.cfg.Key.Seal(kindHello, "", m)
	if err == nil {
		_ = s.conn.Publish(helloSubject(sealed.Fingerprint(s.cfg.Key.Pub())), b)
	}
}

// time applies the time of the hub.
func (s *Site) time(m *nats.Msg) {
	msg, err := s.opener.OpenAnyTime(m.Data)
	if err == nil && (msg.Kind != kindClock || msg.To != s.cfg.Name) {
		err = salt.Errorf(salt.Invalid, "it is a message %.16q for %.64q", msg.Kind, msg.To)
	}
	var before, offset time.Duration
	if err == nil {
		before, offset, err = s.clock.answer(msg)
	}
	if err != nil {
		s.limited.Log(slog.LevelDebug, "refused the time of the hub", "err", err)
		return
	}
	if offset != before {
		s.log.Warn("the clock of this site differs from that of the master above, which counts for its commands: correct the wrong one",
			"difference", offset.Round(time.Second))
		_ = s.conn.ForceReconnect() // with a certificate that is valid; it connects anyway if there is no connection
		return
	}
	s.retryNow()
}

// expires returns when a command expires, by the clock of this machine.
func (s *Site) expires(c *wire.SiteCommand) time.Time {
	return time.UnixMilli(c.Expires).Add(-s.clock.offset())
}

func (s *Site) expired(c *wire.SiteCommand) bool { return s.clock.now().UnixMilli() >= c.Expires }

func (s *Site) retryNow() {
	s.mu.Lock()
	for _, j := range s.jobs {
		j.pause, j.tryAt, j.sent = 0, time.Time{}, nil
	}
	s.all = true
	s.mu.Unlock()
	s.wake.Wake()
}

// deliver sends returns and summaries until the hub has confirmed them.
func (s *Site) deliver(ctx context.Context) {
	for next := time.Now(); ctx.Err() == nil; {
		wait.Until(ctx, s.wake.C(), max(time.Until(next), time.Millisecond))
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		due, all := s.due(!now.Before(next))
		if all {
			next = now.Add(maxRound)
		}
		for _, j := range due {
			if at := now.Add(max(s.tend(j, now), 50*time.Millisecond)); at.Before(next) {
				next = at
			}
		}
	}
}

// maxRound is the longest time between two looks at all jobs.
const maxRound = 5 * time.Second

// due returns all jobs if it is time for them, otherwise those that were touched. Older ones are first.
func (s *Site) due(all bool) (jobs []*siteJob, every bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all = s.all || all; s.all {
		for _, j := range s.jobs {
			jobs = append(jobs, j)
		}
	} else {
		for jid := range s.touched {
			if j := s.jobs[jid]; j != nil {
				jobs = append(jobs, j)
			}
		}
	}
	all, s.all = s.all, false
	clear(s.touched)
	slices.SortFunc(jobs, func(a, b *siteJob) int { return a.received.Compare(b.received) })
	return jobs, all
}

// tend does what is due for a job, and returns the time until more is.
func (s *Site) tend(j *siteJob, now time.Time) time.Duration {
	s.mu.Lock()
	if j.busy {
		s.mu.Unlock()
		return retryFirst
	}
	if j.stage == stageKept {
		s.mu.Unlock()
		if s.cfg.Host.Leads() && s.Connected() {
			s.work.Go(func() { s.command(j.cmd, j.sealed) })
		} else if now.Sub(j.received) > s.cfg.Keep {
			s.end(j)
		}
		return retryFirst
	}
	fresh := j.fresh
	if len(fresh) > 0 {
		j.fresh = map[string]*value.Dict{}
	}
	due := !now.Before(j.tryAt)
	s.mu.Unlock()
	connected := s.Connected()
	if len(fresh) > 0 && connected && j.stage == stagePublished {
		s.sendReturns(j, fresh)
	}
	if s.over(j, now) {
		s.end(j)
		return time.Hour
	}
	if j.cmd.Passing || !connected {
		return retryFirst
	}
	again := false
	if due {
		s.mu.Lock()
		again = j.tended || j.counted < 0
		j.tended = true
		j.pause = min(max(2*j.pause, retryFirst), retryMost)
		j.tryAt = now.Add(j.pause/2 + rand.N(j.pause/2+1))
		s.mu.Unlock()
		if again {
			s.repeat(j)
		}
	}
	s.mu.Lock()
	left := j.tryAt.Sub(now)
	s.mu.Unlock()
	return min(s.summarize(j, now, again), left)
}

// over reports whether nothing is left to do for a job.
func (s *Site) over(j *siteJob, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.cmd.Passing {
		return now.Sub(j.received) > time.Minute
	}
	if now.Sub(j.received) > s.cfg.Keep {
		return true
	}
	// A repeated command of a job that is over is answered from the job store. A refused one has
	// no job, so it is remembered.
	if j.stage == stageRefused {
		return now.After(s.expires(&j.cmd).Add(summaryGrace))
	}
	if !j.settled || !j.final || len(j.tally.returned) < len(j.minions) {
		return false
	}
	return !s.sends(j) || len(j.confirmed) >= len(j.tally.returned)
}

func (s *Site) end(j *siteJob) {
	jid := j.cmd.JID
	s.forget(jid)
	if j.cmd.Passing {
		return
	}
	s.book.remove(jobsBucket, jid)
	if j.stage == stagePublished && !s.expired(&j.cmd) {
		// If the job store forgets the job before the command expires, a copy of it must not run.
		s.mu.Lock()
		s.done[jid] = j.cmd.Expires
		s.mu.Unlock()
		s.book.later(overBucket, jid, value.DictOf("expires", j.cmd.Expires))
	}
}

// isOver reports whether the job of a command that has not expired has ended.
func (s *Site) isOver(jid string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[jid] != 0
}

// forgetExpired forgets jobs that have ended and whose commands have expired.
func (s *Site) forgetExpired(now time.Time) {
	var gone []string
	s.mu.Lock()
	for jid, expires := range s.done {
		if now.Add(s.clock.offset()).UnixMilli() > expires {
			delete(s.done, jid)
			gone = append(gone, jid)
		}
	}
	s.mu.Unlock()
	for _, jid := range gone {
		s.book.remove(overBucket, jid)
	}
}

// repeat sends what the hub has not confirmed, read from the disk: returns may have been stored by
// another master of the site, or before a restart.
func (s *Site) repeat(j *siteJob) {
	s.stored(j)
	s.mu.Lock()
	all := len(j.confirmed) >= len(j.minions) && len(j.tally.returned) >= len(j.minions)
	s.mu.Unlock()
	if all {
		return
	}
	rets, err := s.cfg.Host.Returns(j.cmd.JID)
	if err != nil {
		s.limited.Log(slog.LevelWarn, "cannot read the returns of a job for the hub; retrying", "jid", j.cmd.JID, "err", err)
		return
	}
	now := time.Now()
	s.mu.Lock()
	for id, ret := range rets {
		j.tally.add(id, ret)
		if j.confirmed[id] || now.Sub(j.sent[id]) < resendAfter {
			delete(rets, id)
		}
	}
	s.mu.Unlock()
	if s.sends(j) {
		s.sendReturns(j, rets)
	}
}

// forgotten sends the hub a command that it does not know any more.
func (s *Site) forgotten(jid string) {
	s.mu.Lock()
	var b []byte
	if j := s.jobs[jid]; j != nil && j.stage == stagePublished && !j.cmd.Passing {
		b = j.sealed
	}
	s.mu.Unlock()
	if len(b) > 0 {
		s.send(subjectUp, kindRecall, wire.SiteRecall{Command: b})
	}
}

// asked sends all returns of a job that the hub wants to see.
func (s *Site) asked(jid string) {
	if !salt.ValidJID(jid) {
		return
	}
	s.mu.Lock()
	j := s.jobs[jid]
	s.mu.Unlock()
	if j == nil {
		j = &siteJob{cmd: wire.SiteCommand{JID: jid}}
	}
	rets, err := s.cfg.Host.Returns(jid)
	if err != nil {
		s.limited.Log(slog.LevelWarn, "cannot read the returns of a job for the hub", "jid", jid, "err", err)
		return
	}
	s.sendReturns(j, rets)
}

// sendReturns sends returns in messages of a bounded size.
func (s *Site) sendReturns(j *siteJob, rets map[string]*value.Dict) {
	limit := maxBatch
	if n := int(s.conn.MaxPayload()); n > 0 {
		limit = min(limit, n/2)
	}
	ids := make([]string, 0, len(rets))
	for id := range rets {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	batch, size := value.NewDict(len(rets)), 0
	flush := func() {
		if batch.Len() > 0 {
			s.send(subjectUp, kindReturns, wire.SiteReturns{JID: j.cmd.JID, Returns: batch})
			s.mu.Lock()
			if j.sent == nil {
				j.sent = make(map[string]time.Time, len(ids))
			}
			for id := range batch.All() {
				j.sent[value.Str(id)] = time.Now()
			}
			s.mu.Unlock()
			batch, size = value.NewDict(8), 0
		}
	}
	for _, id := range ids {
		ret := rets[id]
		n := encodedSize(ret)
		if most := int(s.conn.MaxPayload()) - 8<<10; n > most && most > 0 {
			ret = value.DictOf("return", "The return has "+value.Str(int64(n))+" bytes, more than a message of the bus may have. Read it at the site "+s.cfg.Name+
				": salt-run jobs.lookup_jid "+j.cmd.JID, "retcode", ret.At("retcode"), "success", ret.At("success"), "fun", ret.At("fun"))
			n = 512
		}
		if size+n > limit {
			flush()
		}
		batch.Set(id, ret)
		size += n
	}
	flush()
}

func encodedSize(d *value.Dict) int {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return 0
	}
	return len(b)
}

// summarize sends the summary of a job if it has changed, or again is set and the hub has not
// confirmed it.
func (s *Site) summarize(j *siteJob, now time.Time, again bool) time.Duration {
	if !s.cfg.Host.Leads() {
		return retryMost
	}
	s.mu.Lock()
	if j.stage == stageRefused {
		s.mu.Unlock()
		return retryMost
	}
	n := len(j.tally.returned)
	expires := s.expires(&j.cmd).Add(summaryGrace)
	final := n >= len(j.minions) || now.After(expires)
	news := n != j.counted || final && !j.final
	switch {
	case news && !final && now.Sub(j.received) < summaryPause:
		s.mu.Unlock()
		return summaryPause - now.Sub(j.received)
	case news && !final && now.Sub(j.summedAt) < summaryPause:
		s.mu.Unlock()
		return summaryPause - now.Sub(j.summedAt)
	case !news && (j.settled || !again):
		s.mu.Unlock()
		return max(10*time.Millisecond, time.Until(expires))
	}
	if news {
		j.version++
		j.counted, j.final, j.settled, j.summedAt = n, final, false, now
	}
	m := j.tally.summary(j.cmd.JID, j.minions)
	m.Version, m.Final = j.version, j.final
	record := j.record()
	s.mu.Unlock()
	if news {
		s.book.later(jobsBucket, j.cmd.JID, record)
	}
	subject := subjectUp
	if again { // the hub did not confirm it: the stream keeps it
		subject = subjectSummary
	}
	s.send(subject, kindSummary, m)
	return retryFirst
}

// confirmed handles what the hub has stored.
func (s *Site) confirmed(c *wire.SiteConfirmed) {
	s.mu.Lock()
	j := s.jobs[c.JID]
	if j != nil {
		if c.IDs.Len() > 0 && !j.tryAt.IsZero() { // the hub is at work
			j.pause = retryFirst
			j.tryAt = time.Now().Add(j.pause)
		}
		for _, id := range value.OnlyTexts(c.IDs) {
			if len(j.confirmed) < max(len(j.minions), len(j.tally.returned)) {
				j.confirmed[id] = true
			}
		}
		// Masters of a site that share nothing get each other's confirmations, so what counts is
		// what the confirmed summary says.
		if c.Version > 0 && c.Counted >= int64(j.counted) && (c.Final || !j.final) {
			j.settled = true
		}
		j.version = max(j.version, c.Version) // the hub may have one of before a restart
	}
	s.mu.Unlock()
	if j != nil {
		s.touch(c.JID)
	}
}
