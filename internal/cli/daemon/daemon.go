// Package daemon is the programs that run as daemons: salt-master, salt-minion and salt-api. They
// read the configuration, build the daemon, and run it until a signal ends it. SIGTERM and SIGINT
// shut it down cleanly. SIGHUP reloads the configuration and reopens the log file.
//
// The process switches to the configured user (option user, or -u) before it binds or reads
// anything, see become. The pid file is locked while the daemon runs. A second minion with the same
// pid file is refused. A second master is not, since only its ports can conflict, which fails with
// a clear error. No daemon restarts itself; that is left to the service manager, for which
// packaging/systemd has units.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"brine/internal/base/log"
	"brine/internal/base/metrics"
	"brine/internal/base/profile"
	"brine/internal/base/salt"
	"brine/internal/cli/frame"
	"brine/internal/cli/notify"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

// Exit codes of daemons only.
const (
	exitPorts = 4 // ports cannot be bound
)

// options are the options of all daemons.
type options struct {
	frame.Config
	frame.Saltfile
	frame.Daemon
	frame.Logging `group:"Logging Options"`
	CheckConfig   bool `flag:"--check-config" doc:"Check the configuration, tell what is wrong with it, and exit."`
}

// service is a built daemon.
type service interface {
	metrics.Daemon
	// Run serves until ctx ends.
	Run(ctx context.Context) error
}

// blueprint is the part of a daemon's start that differs between the daemons.
type blueprint struct {
	command *frame.Command
	kind    config.Kind
	// title is the daemon's name in its last message; class is the name of Salt's class.
	title, class string
	// alone means that the daemon does not start if the pid file is in use.
	alone bool
	// room is the argument of keepMemory.
	room int
	// own maps overridable options to the names that this daemon uses instead.
	own map[string]string
	// load checks the configuration and returns the common part. starting means that the daemon is
	// about to start with it.
	load func(t *config.Tree, starting bool, log *slog.Logger) (*common, error)
}

// common is the part of the configuration that this package uses.
type common struct {
	// files are the files of the configuration.
	files   []string
	log     *log.Options
	pidFile string
	// user is the user to run as, "" for the current one; userOption names its option, "" for user.
	user, userOption string
	// directories are the directories that the daemon writes to.
	directories []string
	// cacheDir has, in brine/, the record of the time.
	cacheDir string
	// refused are configured parts that Brine does not have. The daemon does not start without
	// them.
	refused []error
	// check finds problems that would make a start fail.
	check   func(ctx context.Context, c *checker)
	profile profile.Options
	metrics string // address, "" for none
	// build creates the daemon and binds its ports.
	build func(ctx context.Context, log *slog.Logger) (service, error)
	// reload applies this configuration to a running daemon that was built with another. It may be
	// nil.
	reload func(s service, log *slog.Logger) error
}

func (b *blueprint) run(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := b.command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return b.command.Fail(env, fmt.Sprintf("unexpected argument %q", inv.Args[0]))
	}
	dir := o.Resolve(env)
	early := log.Options{Level: "warning", Format: log.ConsoleFormat}
	if o.LogLevel != "" {
		early.Level = o.LogLevel
	}
	plain, err := log.Open(early, env.Stderr)
	if err != nil {
		env.Errorf("%v", err)
		return frame.ExitFailure
	}
	// Hold messages about the configuration until the log that it configures is open.
	held := &log.Held{}
	load := func(starting bool, logger *slog.Logger) (*common, error) {
		c, err := b.configure(env, inv.Overrides(), dir, starting, logger)
		if err == nil {
			o.Apply(c.log)
			if !o.CheckConfig {
				err = errors.Join(c.refused...)
			}
		}
		return c, err
	}
	c, err := load(!o.CheckConfig, held.Logger())
	if err != nil || o.CheckConfig {
		held.Release(plain.Handler())
	}
	if err != nil {
		env.Errorf("%v", err)
		return config.ExitCode(err)
	}
	if err := absolute(&c.log.File, &c.pidFile); err != nil {
		env.Errorf("%v", err)
		return frame.ExitFailure
	}
	if o.CheckConfig {
		return b.check(ctx, env, c, config.Path(b.kind, dir, env.Getenv))
	}
	if o.Daemon.Daemon && env.Getenv(backgroundEnv) == "" {
		return b.background(env, args)
	}
	if env.Getenv(backgroundEnv) != "" {
		detach()
	}
	return b.serve(ctx, env, c, held, func(logger *slog.Logger) (*common, error) { return load(false, logger) })
}

// configure reads the configuration, overridden by the command line.
func (b *blueprint) configure(env *frame.Env, over *value.Dict, dir string, starting bool, logger *slog.Logger) (*common, error) {
	path := config.Path(b.kind, dir, env.Getenv)
	t, err := config.Load(path, b.kind, logger)
	if err != nil {
		return nil, err
	}
	for k, v := range over.All() {
		name, ok := k.(string)
		if !ok || !overridable[name] {
			continue
		}
		if own, ok := b.own[name]; ok {
			name = own
		}
		t.Set(name, v, "command line")
	}
	if err := config.ResolveSDB(context.Background(), t); err != nil {
		return nil, err
	}
	c, err := b.load(t, starting, logger)
	if err == nil {
		c.files = t.Files
	}
	return c, err
}

// overridable are the options that the command line can override.
var overridable = map[string]bool{"user": true, "pidfile": true, "log_level": true, "log_file": true, "log_level_logfile": true}

// absolute makes paths absolute, because the process may change its directory.
func absolute(paths ...*string) error {
	for _, p := range paths {
		if *p == "" || strings.Contains(*p, "://") {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	return nil
}

// check reports problems that would make a start fail.
func (b *blueprint) check(ctx context.Context, env *frame.Env, c *common, path string) int {
	k := &checker{w: env.Stdout}
	for _, err := range c.refused {
		k.fault("%v", err)
	}
	for _, dir := range c.directories {
		k.directory(dir)
	}
	if c.log.File != "" {
		if err := log.CheckFile(c.log.File); err != nil {
			k.warn("cannot open the log file; continuing without it: %v", err)
		} else {
			k.directory(filepath.Dir(c.log.File))
		}
	}
	if st, err := os.Stat(c.pidFile); err == nil && st.IsDir() {
		k.warn("cannot write the pid file: %s is a directory", c.pidFile)
	}
	if c.user != "" {
		if _, err := user.Lookup(c.user); err != nil {
			k.fault("%s: %v", cmp.Or(c.userOption, "user"), noUserError(c.user))
		}
	}
	running := noted(c.pidFile, b.command.Name)
	own := map[string]string{"salt-api": "api_metrics_address", "salt-syndic": "syndic_metrics_address"}
	k.served(cmp.Or(own[b.command.Name], "metrics_address"), c.metrics, running)
	k.served("profiling_address", c.profile.Address, running)
	c.check(ctx, k)
	where, ok := path, "the configuration in "+path+" is fine"
	if len(c.files) == 0 {
		where, ok = "the defaults", b.command.Name+" would start with the defaults"
		k.warn("there is no %s: all options have their defaults", path)
	}
	if k.faults > 0 {
		fmt.Fprintf(env.Stdout, "%s: %d fault(s) in %s\n", b.command.Name, k.faults, where)
		return frame.ExitFailure
	}
	if n := k.broken.Load(); n > 0 {
		fmt.Fprintf(env.Stdout, "OK: %s would start with %s, but %d of its parts would not work: see the errors.\n", b.command.Name, where, n)
		return frame.ExitOK
	}
	fmt.Fprintf(env.Stdout, "OK: %s.\n", ok)
	return frame.ExitOK
}

func (b *blueprint) serve(ctx context.Context, env *frame.Env, c *common, held *log.Held, load func(*slog.Logger) (*common, error)) int {
	frame.NameProcess(b.command.Name)
	logger, err := log.Open(*c.log, env.Stderr)
	if logger == nil {
		env.Errorf("%v", err)
		started(err)
		return frame.ExitFailure
	}
	defer logger.Close()
	held.Release(logger.Handler())
	defer frame.DumpOnSignal(env, logger.Logger)()
	if err != nil {
		logger.Warn("cannot open the log file; continuing without it", "err", err)
	}
	record := frame.ResumeTime(filepath.Join(c.cacheDir, "brine", "clock."+b.command.Name), logger.Logger)
	pid, s, err := b.start(ctx, c, logger)
	defer pid.remove()
	if err != nil {
		env.Errorf("%s: %v", b.command.Name, err)
		started(err)
		return b.exitCode(err)
	}
	defer serveProfiles(c.profile, logger.Logger)()
	defer metrics.Serve(c.metrics, b.command.Name, s, logger.Logger)()
	go keepMemory(ctx, b.room)
	go record(ctx)
	defer b.onHangup(logger, s, load)()
	m := notify.FromEnvironment()
	started(nil)
	m.Tell("READY=1")
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	go m.Watch(watched, s, logger.Logger)
	logger.Info(b.command.Name+" is up", "pid", os.Getpid(), "version", frame.Version)
	err = s.Run(ctx)
	m.Tell("STOPPING=1")
	if err != nil {
		logger.Error(b.command.Name+" failed", "err", err)
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			return coded.ExitCode()
		}
		return frame.ExitFailure
	}
	b.goodbye(ctx, env, logger)
	return frame.ExitOK
}

// start claims the pid file, switches the user and builds the daemon. It may return a pid file
// together with an error.
func (b *blueprint) start(ctx context.Context, c *common, logger *log.Log) (*pidFile, service, error) {
	var pid *pidFile
	var claim error
	if c.pidFile != "" {
		pid, claim = claimPID(c.pidFile, b.command.Name)
	}
	var running *runningError
	if errors.As(claim, &running) {
		if b.alone {
			return nil, nil, claim
		}
		logger.Warn("not removing the pid file: it is not this process's", "err", claim)
	} else if claim != nil {
		logger.Warn("cannot write the pid file", "err", claim)
	}
	if err := become(c.user, c.directories, []string{c.log.File, c.pidFile}); err != nil {
		return pid, nil, err
	}
	s, err := c.build(ctx, logger.Logger)
	if err != nil && running != nil {
		err = fmt.Errorf("%w (%w)", err, running)
	}
	return pid, s, err
}

// goodbye prints Salt's message about why the daemon ends.
func (b *blueprint) goodbye(ctx context.Context, env *frame.Env, logger *log.Log) {
	text := "The " + b.title + " is shutdown."
	if cause, ok := errors.AsType[frame.SignalError](context.Cause(ctx)); ok {
		name := "SIGTERM"
		if cause.Signal == os.Interrupt {
			name = "SIGINT"
		}
		logger.Warn(b.class + " received a " + name + ". Exiting.")
		text += " " + b.class + " received a " + name + ". Exited."
	}
	env.Errorf("%s", text)
}

// exitCode returns the exit code of a failed start. If another master is running, that is the code
// for ports in use, whatever failed first.
func (b *blueprint) exitCode(err error) int {
	var (
		running  *runningError
		noUser   noUserError
		noSwitch noSwitchError
	)
	switch {
	case errors.As(err, &noUser):
		return frame.ExitNoUser
	case errors.As(err, &noSwitch):
		return frame.ExitNoPerm
	case errors.As(err, &running) && !b.alone:
		return exitPorts
	}
	switch {
	case errors.Is(err, syscall.EADDRINUSE), errors.Is(err, syscall.EADDRNOTAVAIL):
		return exitPorts
	case errors.Is(err, syscall.EACCES) && salt.KindOf(err) == salt.Denied: // a port below 1024
		return exitPorts
	case errors.Is(err, syscall.EACCES): // a file or directory
		return frame.ExitNoPerm
	}
	return config.ExitCode(err)
}

// onHangup handles SIGHUP until stop is called.
func (b *blueprint) onHangup(logger *log.Log, s service, load func(*slog.Logger) (*common, error)) (stop func()) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-hangup:
			}
			if err := logger.Reopen(); err != nil {
				logger.Error("cannot reopen the log file; continuing with the old one", "err", err)
			}
			c, err := load(logger.Logger)
			if err == nil {
				err = logger.SetLevels(*c.log)
			}
			if err == nil && c.reload != nil {
				err = c.reload(s, logger.Logger)
			}
			if err != nil {
				logger.Error("cannot reload the configuration; keeping the old one", "err", err)
				continue
			}
			logger.Info("configuration reloaded; options that need a restart keep their old values")
		}
	}()
	return func() { signal.Stop(hangup); close(done) }
}
