// Package witness is the program `brine witness`: a voter for the lease of a
// cluster of masters, on a machine that is not a master.
package witness

import (
	"context"
	"os"
	"path/filepath"

	"brine/internal/base/log"
	"brine/internal/base/metrics"
	"brine/internal/cli/frame"
	"brine/internal/cli/notify"
	"brine/internal/daemons/config"
	"brine/internal/ha/cluster/witness"
)

var command = frame.Command{
	Name: "witness",
	Doc: "A voter for the lease by which one master of a cluster without a shared directory runs the tasks that run once: with two masters, the " +
		"third. It has no keys and no data. " +
		"It reads the file witness in the configuration directory: id, cluster_id, cluster_witness_secret, cluster_voters, and optionally interface, " +
		"cluster_pool_port, cachedir and metrics_address; all as on the masters.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "a voter for the lease of a cluster of masters", Run: execute}
}

type options struct {
	frame.Config
}

// Settings are the options in the configuration file.
type Settings struct {
	Witness        witness.Options
	Metrics        metrics.Options
	Level          string `salt:"log_level" default:"info" doc:"log level on stderr: debug, info, warning or error" change:"restart"`
	DefaultInclude any    `salt:"default_include" default:"witness.d/*.conf" doc:"further files, relative to this one; later ones take precedence" change:"restart"`
	Include        any    `salt:"include" default:"null" doc:"path, pattern or list of further files, which take precedence over all others" change:"restart"`
}

func execute(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return command.Fail(env, "witness takes no arguments")
	}
	s := &Settings{}
	var held log.Held // until the log level is known
	t, err := config.Load(config.Path(config.WitnessKind, o.Resolve(env), env.Getenv), config.WitnessKind, held.Logger())
	if err == nil {
		t.WarnUnknown(s)
		err = config.Decode(t, s)
	}
	if err != nil {
		env.Errorf("witness: %v", err)
		return config.ExitCode(err)
	}
	logger, err := log.Open(log.Options{Level: s.Level, Format: log.ConsoleFormat}, env.Stderr)
	if err != nil {
		env.Errorf("witness: %v", err)
		return frame.ExitFailure
	}
	defer logger.Close()
	frame.NameProcess("brine-witness")
	held.Release(logger.Handler())
	defer frame.DumpOnSignal(env, logger.Logger)()
	record := frame.ResumeTime(filepath.Join(s.Witness.Dir, "clock"), logger.Logger)
	w, err := witness.New(s.Witness, logger.Logger)
	if err != nil {
		env.Errorf("witness: %v", err)
		return config.ExitCode(err)
	}
	defer metrics.Serve(s.Metrics.Address, "brine-witness", w, logger.Logger)()
	m := notify.FromEnvironment()
	m.Tell("READY=1")
	watched, unwatch := context.WithCancel(context.WithoutCancel(ctx))
	defer unwatch()
	go m.Watch(watched, w, logger.Logger)
	go record(ctx)
	logger.Info("witness started", "pid", os.Getpid(), "address", w.Addr().String())
	err = w.Run(ctx)
	m.Tell("STOPPING=1")
	if err != nil {
		env.Errorf("witness: %v", err)
		return frame.ExitFailure
	}
	return frame.ExitOK
}
