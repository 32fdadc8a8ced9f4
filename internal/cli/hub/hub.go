// Package hub is the program brine-hub, the bus of a federation. It is a binary of its own, so that
// no other program contains the server of NATS.
package hub

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"brine/internal/base/log"
	"brine/internal/base/metrics"
	"brine/internal/cli/frame"
	"brine/internal/cli/man"
	"brine/internal/cli/notify"
	"brine/internal/daemons/config"
	"brine/internal/daemons/hub"
	"brine/internal/daemons/hub/server"
)

var command = frame.Command{
	Name: "brine-hub",
	Doc: "The bus of a federation: sites and the masters that command them connect to it. It reads the file hub in the configuration directory, " +
		"of which listen, data_dir and masters are enough for one node.",
}

type options struct {
	frame.Config
	Man         bool `flag:"--man" doc:"Print the manual page, to be read with man -l -, and exit."`
	CheckConfig bool `flag:"--check-config" doc:"Check the configuration, print what is wrong with it, and exit."`
}

// Main runs the program and returns its exit code.
func Main(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return command.Fail(env, "brine-hub takes no arguments")
	}
	if o.Man {
		fmt.Fprint(env.Stdout, man.Page(frame.Applet{Name: command.Name, Summary: "the bus of a federation of sites", Run: Main}))
		return frame.ExitOK
	}
	s := &hub.Settings{}
	var held log.Held // until the log level is known
	t, err := config.Load(config.Path(config.HubKind, o.Resolve(env), env.Getenv), config.HubKind, held.Logger())
	if err == nil {
		t.WarnUnknown(s)
		err = config.Decode(t, s)
	}
	if err != nil {
		env.Errorf("brine-hub: %v", err)
		return config.ExitCode(err)
	}
	if s.Hub.ID == "" {
		if s.Hub.ID, err = os.Hostname(); err != nil {
			env.Errorf("brine-hub: cannot read the host name: %v; set id", err)
			return frame.ExitFailure
		}
	}
	logger, err := log.Open(log.Options{Level: s.Level, Format: log.ConsoleFormat}, env.Stderr)
	if err != nil {
		env.Errorf("brine-hub: %v", err)
		return frame.ExitFailure
	}
	defer logger.Close()
	held.Release(logger.Handler())
	if o.CheckConfig {
		fmt.Fprintln(env.Stdout, "The configuration is valid.")
		return frame.ExitOK
	}
	defer frame.DumpOnSignal(env, logger.Logger)()
	record := frame.ResumeTime(filepath.Join(s.Hub.DataDir, "clock"), logger.Logger)
	n, err := server.New(s.Hub, logger.Logger)
	if err != nil {
		env.Errorf("brine-hub: %v", err)
		return config.ExitCode(err)
	}
	defer metrics.Serve(s.Metrics.Address, "brine-hub", n, logger.Logger)()
	logger.Info("hub started", "pid", os.Getpid(), "address", s.Hub.Listen)
	m := notify.FromEnvironment()
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	go m.Watch(watched, n, logger.Logger)
	go record(ctx)
	err = n.Run(ctx, func() { m.Tell("READY=1") })
	m.Tell("STOPPING=1")
	if err != nil {
		env.Errorf("brine-hub: %v", err)
		return frame.ExitFailure
	}
	return frame.ExitOK
}
