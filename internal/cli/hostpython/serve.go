package hostpython

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"brine/internal/base/log"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// serve answers the program at the other end of the standard input and output.
func serve(ctx context.Context, env *frame.Env, file string) error {
	frame.NameProcess("brine-python")
	logger, err := log.Open(log.Options{Level: "warning", Format: log.ConsoleFormat}, env.Stderr)
	if err != nil {
		return err
	}
	defer logger.Close()
	e, closeAll, err := environment(env, file, logger.Logger)
	if err == nil {
		defer closeAll()
	} else {
		e = &python.Env{}
	}
	p := python.New(python.Config{Log: logger.Logger})
	return python.Serve(ctx, p, e, os.Stdin, os.Stdout, err)
}

// environment connects to the master that a configuration file is for; "" is the usual file.
func environment(env *frame.Env, file string, log *slog.Logger) (*python.Env, func(), error) {
	if file == "" {
		file = config.Path(config.MasterKind, "", env.Getenv)
	}
	quiet := slog.New(slog.DiscardHandler) // warnings are the daemon's
	tree, err := config.Load(file, config.MasterKind, quiet)
	if err != nil {
		return nil, nil, err
	}
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name } // no DNS lookup
	cfg, err := config.NewMaster(tree, machine, quiet)
	if err != nil {
		return nil, nil, err
	}
	parts, err := cfg.Parts(tree)
	if err != nil {
		return nil, nil, err
	}
	place, err := cfg.Place()
	if err != nil {
		return nil, nil, err
	}
	local, err := client.NewLocal(place, client.Caller(env.Getenv), log)
	if err != nil {
		return nil, nil, err
	}
	c := client.New(cfg.Client, cfg.Files.ConfFile, local, local, log)
	call := (&fn.Call{ID: cfg.Files.ID, Config: fn.Tree{Dict: parts.Opts}, Log: log}).Prepare()
	run := runners(c, log)
	b := &bus{local: local, log: log, events: event.NewBus(0)}
	return &python.Env{
		Call: call, Bus: b, Commander: c, Low: c.Low,
		As:        func(creds *value.Dict) python.Commander { return c.As(creds) },
		Functions: map[string]python.Functions{"runners": run, "wheel": wheel(c, run)},
	}, func() { b.stop(); local.Close() }, nil
}

// onMaster are the master's functions of one kind.
type onMaster struct {
	call func(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error)
	// list returns the names of all of them.
	list func() ([]string, error)
	log  *slog.Logger

	mu    sync.Mutex
	known []string
}

// Has implements python.Functions. Names that are not known are looked for again: the master may
// have fetched modules.
func (f *onMaster) Has(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.known, name) || slices.Contains(f.names(), name)
}

// Names implements python.Functions.
func (f *onMaster) Names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.names()
}

func (f *onMaster) names() []string {
	names, err := f.list()
	if err != nil {
		f.log.Error("cannot read which functions the master has", "err", err)
		return nil
	}
	f.known = names
	return names
}

// Call implements python.Functions.
func (f *onMaster) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.call(ctx, name, args, kwargs)
}

// runners returns the master's runners.
func runners(c *client.Client, log *slog.Logger) *onMaster {
	f := &onMaster{log: log}
	f.call = func(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
		d, err := c.Run(ctx, client.Runner{Fun: name, Args: args, Kwargs: kwargs}, nil, nil)
		if err != nil {
			return nil, python.ClientError(err)
		}
		return d.At("return"), nil
	}
	f.list = func() ([]string, error) { return documented(f, "doc.runner") }
	return f
}

// wheel returns the master's wheel functions.
func wheel(c *client.Client, runners *onMaster) *onMaster {
	f := &onMaster{log: runners.log, list: func() ([]string, error) { return documented(runners, "doc.wheel") }}
	f.call = func(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
		d, err := c.Wheel(ctx, name, args, kwargs)
		if err != nil {
			return nil, python.ClientError(err)
		}
		return d.At("return"), nil
	}
	return f
}

// documented returns the names that a runner of documentation knows.
func documented(runners *onMaster, fun string) ([]string, error) {
	v, err := runners.call(context.Background(), fun, nil, nil)
	d, ok := v.(*value.Dict)
	if err != nil || !ok {
		return nil, err
	}
	return value.Texts(value.ListOf(d.Keys()...)), nil
}

// bus is the master's bus. It connects when the program subscribes first.
type bus struct {
	local  *client.Local
	log    *slog.Logger
	events *event.Bus

	mu  sync.Mutex
	end context.CancelFunc // nil before the first subscription
}

// Fire implements python.Bus.
func (b *bus) Fire(tag string, data *value.Dict) error {
	return python.ClientError(b.local.Fire(context.Background(), tag, data))
}

// Subscribe implements python.Bus.
func (b *bus) Subscribe(size int, prefixes ...string) *event.Subscription {
	sub := b.events.Subscribe(size, prefixes...)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		return sub
	}
	ctx, end := context.WithCancel(context.Background())
	from, err := b.local.Subscribe(ctx, "")
	if err != nil {
		end()
		b.log.Error("cannot receive the master's events", "err", err)
		return sub
	}
	b.end = end
	go b.pass(ctx, from)
	return sub
}

// again is the pause before a connection that has ended is made again, as after a restart of the
// master.
const again = time.Second

// pass passes on the master's events until ctx ends.
func (b *bus) pass(ctx context.Context, from client.Events) {
	for {
		e, err := from.Next(ctx)
		if err == nil {
			_ = b.events.Fire(e.Tag, e.Data) // it has been on a bus already
			continue
		}
		from.Close()
		for err != nil {
			select {
			case <-ctx.Done():
				return
			case <-time.After(again):
			}
			from, err = b.local.Subscribe(ctx, "")
		}
	}
}

func (b *bus) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end != nil {
		b.end()
	}
}
