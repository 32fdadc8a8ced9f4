package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/daemons/minion/calls"
	"brine/internal/daemons/minion/grains"
	"brine/internal/daemons/minion/jobs"
	"brine/internal/daemons/minion/link"
	"brine/internal/daemons/minion/returners"
	"brine/internal/daemons/minion/runner"
	"brine/internal/daemons/usermodules"
	"brine/internal/py/value"
)

// Caller runs functions without the daemon, as salt-call does: with the
// minion's identity, its grains and, unless it is local, one master's pillar.
type Caller struct {
	// Metadata is stored with the job that Return sends, unless it is nil.
	Metadata any
	// Executors and ExecutorOpts are those of the call; nil means the configured
	// ones.
	Executors, ExecutorOpts any

	cfg       *Config
	log       *slog.Logger
	links     *link.Set
	inUse     []string // masters that the daemon uses
	funcs     *fn.Registry
	grains    *grains.Store
	calls     *calls.Factory
	runner    *runner.Runner
	notes     *jobs.Notes
	returners *returners.Returners
	wait      func() // waits for background work
	user      *usermodules.Modules
	userFiles *usermodules.Files
	stock     *usermodules.Stock

	conn *link.Link // nil if local
	jid  string
}

// NewCaller prepares a caller. Unless local, it signs in to the first reachable
// master of the list; pending and rejected keys are errors.
func NewCaller(ctx context.Context, cfg Config, local bool, log *slog.Logger) (*Caller, error) {
	at, err := cfg.Events.Sockets(cfg.ID, cfg.Handshake.HashType)
	if err != nil {
		return nil, err
	}
	cfg.daemonBus = &at
	cfg.Events.SockDir = "" // the event bus is the daemon's
	if local {
		cfg.Options.MasterType = "disable"
	}
	m, err := New(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	c := m.caller()
	if local {
		return c, nil
	}
	return c, c.connect(ctx)
}

// caller builds the services that salt-call needs, of a minion that does not
// run.
func (m *Minion) caller() *Caller {
	return &Caller{cfg: &m.cfg, log: m.log, links: m.links, inUse: m.cfg.inUse(), funcs: m.funcs, grains: m.grains, calls: m.calls, runner: m.runner,
		notes: m.notes, returners: m.returners, wait: m.background.Wait, user: m.user, userFiles: m.userFiles, stock: m.stock, jid: salt.NewJID(time.Now())}
}

// connect tries each master once per round, first those that the daemon uses, so that
// retries of an unreachable master do not delay the others.
func (c *Caller) connect(ctx context.Context) error {
	o := &c.cfg.Options
	used := c.inUse
	rank := func(conn *link.Link) int {
		if i := slices.Index(used, conn.Addr.Text); i >= 0 {
			return i
		}
		return len(used)
	}
	conns := slices.Clone(c.links.All())
	slices.SortStableFunc(conns, func(a, b *link.Link) int { return rank(a) - rank(b) })
	rounds := max(o.MasterTries, 1)
	if len(conns) == 1 {
		rounds = max(rounds, o.AuthTries)
	}
	for round := 1; ; round++ {
		final, err := c.anyOf(ctx, conns)
		if err == nil || final || round >= rounds || ctx.Err() != nil {
			return err
		}
	}
}

// anyOf tries each master once. final reports that an immediate retry is pointless.
func (c *Caller) anyOf(ctx context.Context, conns []*link.Link) (final bool, err error) {
	var faults []error
	final = true
	for _, conn := range conns {
		err := c.signIn(ctx, conn)
		if err == nil {
			c.conn, c.links.Direct = conn, conn
			return true, nil
		}
		final = final && salt.KindOf(err) != salt.Timeout
		faults = append(faults, fmt.Errorf("%s: %w", conn.Addr.Text, err))
		c.log.Debug("cannot use a master", "master", conn.Addr.Text, "err", err)
	}
	return final, salt.Errorf(salt.Unavailable, "%w", errors.Join(faults...))
}

func (c *Caller) signIn(ctx context.Context, conn *link.Link) error {
	if err := conn.SignIn(ctx); err != nil {
		return err
	}
	if err := conn.FetchPillar(ctx, false); err != nil {
		c.log.Error("cannot fetch the pillar", "err", err)
	}
	return nil
}

// Functions returns the callable functions.
func (c *Caller) Functions() *fn.Registry { return c.funcs }

// Grains returns the minion's grains.
func (c *Caller) Grains() *value.Dict { return c.grains.Grains() }

// JID returns the job id of the call.
func (c *Caller) JID() string { return c.jid }

// ID returns the minion's id.
func (c *Caller) ID() string { return c.cfg.ID }

// Call runs a function and records it as running meanwhile.
func (c *Caller) Call(ctx context.Context, fun string, args []any) fn.Outcome {
	load := value.DictOf("fun", fun, "jid", c.jid, "tgt", "salt-call", "arg", &value.List{Items: args})
	if c.Executors != nil {
		load.Set("module_executors", c.Executors)
	}
	if c.ExecutorOpts != nil {
		load.Set("executor_opts", c.ExecutorOpts)
	}
	j := jobs.NewJob(load)
	forget := c.notes.Record(j)
	defer forget()
	// Publication keys for functions that accept arbitrary keywords, with Salt's names.
	pub := value.DictOf("fun", fun, "pid", os.Getpid(), "jid", c.jid, "tgt", "salt-call")
	if c.Metadata != nil {
		pub.Set("metadata", c.Metadata)
	}
	return c.runner.Through(ctx, j, c.calls.New(c.conn, c.jid), fn.Job{Fun: fun, Arg: args, Pub: pub, Reported: true})
}

// Return sends the result to the master, which stores it as a job.
func (c *Caller) Return(ctx context.Context, fun string, args []any, o fn.Outcome) error {
	if c.conn == nil {
		return nil
	}
	load := value.DictOf("cmd", "_return", "id", c.cfg.ID, "jid", "req", "return", o.Return, "retcode", o.Retcode,
		"fun", fun, "fun_args", &value.List{Items: args})
	if c.conn.Client.Peer().Brine {
		load.Set("call_jid", c.jid) // so that a return that is sent again does not become a second job
	}
	if o.Out != "" {
		load.Set("out", o.Out)
	}
	if c.Metadata != nil {
		load.Set("metadata", c.Metadata)
	}
	_, err := c.conn.Client.Request(ctx, load)
	return err
}

// Outputters returns the user's outputters. They are usable until Close.
func (c *Caller) Outputters() *usermodules.Outputters {
	return &usermodules.Outputters{Modules: func() (*usermodules.Modules, error) { return c.user, nil }}
}

// Close ends the connection and waits for background work.
func (c *Caller) Close() {
	c.wait()
	c.user.Close()
	c.userFiles.Close()
	c.stock.Close()
	c.returners.Close()
	if c.conn != nil {
		c.conn.Client.Close()
	}
}

// Ask sends one request to the master that the caller is signed in to.
func (c *Caller) Ask(ctx context.Context, load *value.Dict) (any, error) {
	if c.conn == nil {
		return nil, errors.New("the caller has no master")
	}
	load.Set("id", c.cfg.ID)
	return c.conn.Client.Request(ctx, load)
}

// Pillar returns the pillar from the connected master, or nil.
func (c *Caller) Pillar() *value.Dict {
	if c.conn == nil {
		return nil
	}
	return c.conn.Pillar()
}

// Returners splits list at commas; if it is empty, it returns the names in the
// option return. The master's own returner is omitted.
func (c *Caller) Returners(list string) []string { return c.returners.Names(list) }

// Deliver sends the result to the server of a returner, and waits at most twice the option
// returner_timeout. If the server is unreachable, it leaves the result to the daemon, and
// the error says so.
func (c *Caller) Deliver(ctx context.Context, name, fun string, args []any, o fn.Outcome) error {
	ret := value.DictOf("id", c.cfg.ID, "jid", c.jid, "fun", fun, "fun_args", &value.List{Items: args}, "return", o.Return, "retcode", o.Retcode, "success", true)
	if o.Out != "" {
		ret.Set("out", o.Out)
	}
	if c.Metadata != nil {
		ret.Set("metadata", c.Metadata)
	}
	var pillar *value.Dict
	if p := c.calls.New(c.conn, c.jid).Pillar; p != nil {
		pillar = p.All()
	}
	return c.returners.Deliver(ctx, name, c.jid, pillar, ret)
}
