// Package call is the program salt-call: it runs an execution function on
// this minion, outside of the daemon, and shows the result under "local".
package call

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"

	"brine/internal/base/log"
	"brine/internal/base/salt"
	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/cli/daemon"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/daemons/minion"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

type options struct {
	frame.Config
	frame.Saltfile
	frame.HardCrash
	frame.StrictExit
	frame.NoParse
	frame.ArgsStdin
	frame.Logging `group:"Logging Options"`
	frame.Output  `group:"Output Options"`

	Grains        bool   `flag:"-g --grains" doc:"Show the grains."`
	Doc           bool   `flag:"-d --doc --documentation" doc:"Show the documentation of a function, a module or all of them."`
	Local         bool   `flag:"--local" doc:"Work without a master."`
	Master        string `flag:"--master" arg:"MASTER" doc:"Use this master instead of the configured ones."`
	ID            string `flag:"--id" arg:"ID" doc:"Use this minion id instead of the configured one."`
	Passthrough   bool   `flag:"--retcode-passthrough" doc:"Exit with the function's exit code."`
	Metadata      bool   `flag:"--metadata" doc:"Show the job's id and exit code along with the result."`
	Return        string `flag:"--return" arg:"NAMES" doc:"Also send the result to the servers of these returners, separated by commas: etcd, mysql, pgjsonb, postgres, postgres_local_cache, redis. Default: as configured (return)."`
	NoReturnEvent bool   `flag:"--no-return-event" doc:"Do not send the result to the master."`
	SkipGrains    bool   `flag:"--skip-grains" doc:"Do not collect grains."`
	RefreshCache  bool   `flag:"--refresh-grains-cache" doc:"Collect the grains again even if they are cached."`
	Timeout       int    `flag:"-t --timeout" arg:"SECONDS" dest:"auth_timeout" doc:"Seconds to wait for a master. Default: as configured (auth_timeout), else 5."`
	OutputDiff    bool   `flag:"--output-diff" dest:"state_output_diff" doc:"Show only states that made changes or failed."`
	SetMetadata   string `flag:"--set-metadata" arg:"DATA" doc:"Data to store with the job, for finding it later."`
	CacheDir      string `flag:"--cachedir" arg:"DIR" doc:"Use this cache directory instead of the configured one."`
	FileRoot      string `flag:"--file-root" arg:"DIR" doc:"Use this directory as the only file root of the environment base."`
	PillarRoot    string `flag:"--pillar-root" arg:"DIR" doc:"Use this directory as the only pillar root of the environment base."`
	Executors     string `flag:"--module-executors" arg:"LIST" doc:"Executors to use instead of the configured ones: direct_call, sudo, modules of your own, or splay before one of them."`
	ExecutorOpts  string `flag:"--executor-opts" arg:"MAP" doc:"Options of the executors, such as {splaytime: 60}."`
	absent
}

// absent are options of Salt's program that Brine does not support. They are an error, not ignored.
type absent struct {
	ProxyID      string   `flag:"--proxyid" hidden:"y" doc:"Id of a proxy minion."`
	StatesDir    string   `flag:"--states-dir" hidden:"y" doc:"Directory of further state modules."`
	ModuleDirs   []string `flag:"-m --module-dirs" hidden:"y" doc:"Directories of further modules."`
	Profiling    bool     `flag:"--enable-profiling" hidden:"y" doc:"Profile the call."`
	ProfilingDir string   `flag:"--profiling-path" hidden:"y" doc:"Directory for the profile."`
}

// refuse returns an error message for the first of these options that was
// given, or "".
func (a *absent) refuse() string {
	for _, o := range []struct {
		given     bool
		name, why string
	}{
		{a.ProxyID != "", "--proxyid", "proxy minions are not supported"},
		{a.StatesDir != "", "--states-dir", "state modules are part of the program, and Python modules cannot be loaded"},
		{len(a.ModuleDirs) > 0, "--module-dirs", "modules are part of the program, and Python modules cannot be loaded"},
		{a.Profiling, "--enable-profiling", "there is no profiler; the debug log shows how long the parts take"},
		{a.ProfilingDir != "", "--profiling-path", "there is no profiler; the debug log shows how long the parts take"},
	} {
		if o.given {
			return "the option " + o.name + " of Salt is not supported: " + o.why
		}
	}
	return ""
}

var command = &frame.Command{
	Name: "salt-call", Usage: "[options] <function> [arguments]",
	Doc: "Runs an execution function on this minion.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: "salt-call", Summary: "run a function on this minion", Run: run}
}

// For runs of states, which may take long, the garbage collector runs more often than by default.
// That needs a quarter less memory and costs some hundredths of a second. The first collection is
// at a heap of 5 MB, which is firstPercent of the runtime's minimum: an earlier one would free too
// little for its cost.
//
// A function that only returns data ends quickly, mostly before the heap reaches 32 MB, where its
// first collection is. That is half of the memory of a Python interpreter. A collection at every MB
// took a third of the time of a state.show_lowstate. After the first one, the collector runs as by
// default.
// state.show_lowstate. After that the collector runs as by default.
const (
	gcPercent     = 30
	firstPercent  = 125
	answerPercent = 100
	answerFirst   = 800
)

// lasts reports whether a function runs states, and so may run so long that its memory matters more
// than the collector's time.
func lasts(fun string) bool {
	return strings.HasPrefix(fun, "state.") && !strings.HasPrefix(fun, "state.show_")
}

// collect sets the garbage collector's percentage to first until its first collection, and to later
// after that.
func collect(first, later int) {
	debug.SetGCPercent(first)
	// The cleanup of the unreachable object runs after the collection.
	garbage := new([64]byte)
	runtime.AddCleanup(garbage, func(int) { debug.SetGCPercent(later) }, 0)
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if text := o.refuse(); text != "" {
		return command.Fail(env, text)
	}
	if len(inv.Args) == 0 && !o.Grains && !o.Doc {
		command.Parse(env, &options{}, []string{"--help"})
		return command.Fail(env, "Requires function, --grains or --doc")
	}
	switch {
	case o.Doc && len(inv.Args) > 1:
		return command.Fail(env, "You can only get documentation for one method at one time")
	case o.Grains && len(inv.Args) > 0:
		env.Errorf("WARNING: --grains shows the grains; '%s' is not run", inv.Args[0])
	}
	switch {
	case env.Getenv("GOGC") != "":
	case len(inv.Args) > 0 && lasts(inv.Args[0]):
		collect(firstPercent, gcPercent)
	default:
		collect(answerFirst, answerPercent)
	}
	var held log.Held // until the log level is known
	cfg, tree, err := configure(env, o, held.Logger())
	if err != nil {
		env.Errorf("%v", err)
		return config.ExitCode(err)
	}
	logger, err := o.Logging.Open(env, cfg.Log, &o.Output)
	if err != nil {
		env.Errorf("%v", err)
		return frame.ExitFailure
	}
	defer logger.Close()
	held.Release(logger.Handler())
	if o.OutputDiff {
		cfg.Output.StateDiff = true
	}
	show, err := o.Output.Open(env, cfg.Output, logger.Logger)
	if err != nil {
		return command.Fail(env, err.Error())
	}
	defer show.Close()
	logger.Debug("configuration read", "path", cfg.Files.ConfFile, "id", cfg.Files.ID)
	r := &runner{env: env, o: o, args: inv.Args, show: show, log: logger.Logger}
	return r.run(ctx, cfg, tree)
}

func configure(env *frame.Env, o *options, early *slog.Logger) (*config.Minion, *config.Tree, error) {
	dir := o.Resolve(env)
	t, err := config.Load(config.Path(config.MinionKind, dir, env.Getenv), config.MinionKind, early)
	if err != nil {
		return nil, nil, err
	}
	for _, set := range []struct {
		name, text string
		v          any
	}{
		{"master", o.Master, o.Master}, {"id", o.ID, o.ID}, {"cachedir", o.CacheDir, o.CacheDir},
		{"file_roots", o.FileRoot, value.DictOf("base", value.ListOf(o.FileRoot))},
		{"pillar_roots", o.PillarRoot, value.DictOf("base", value.ListOf(o.PillarRoot))},
	} {
		if set.text != "" {
			t.Set(set.name, set.v, "command line")
		}
	}
	if o.Local {
		t.Set("file_client", "local", "command line")
	}
	if o.Timeout > 0 {
		t.Set("auth_timeout", o.Timeout, "command line")
	}
	if o.RefreshCache {
		t.Set("grains_cache_expiration", 0, "command line")
	}
	if err := config.ResolveSDB(context.Background(), t); err != nil {
		return nil, nil, err
	}
	cfg, err := config.NewMinion(t, config.ThisMachine(), false, early)
	return cfg, t, err
}

// runner is one call and its dependencies.
type runner struct {
	env  *frame.Env
	o    *options
	args []string
	show *frame.Display
	log  *slog.Logger
	// progress is nil unless output goes to a terminal.
	progress *progress
}

func (r *runner) run(ctx context.Context, cfg *config.Minion, tree *config.Tree) int {
	mc, err := daemon.MinionConfig(cfg, tree, r.log)
	if err != nil {
		r.env.Errorf("%v", err)
		return config.ExitCode(err)
	}
	mc.LateGrains = true
	mc.Opts.Set("__cli", "salt-call")
	mc.Print = func(line string) error {
		_, err := fmt.Fprintln(r.env.Stdout, line)
		return err
	}
	if line := r.env.StderrLine(); line != nil {
		r.progress = &progress{Line: line}
		mc.StateWatch = r.progress
		defer line.Clear()
	}
	if r.o.SkipGrains {
		mc.CollectGrains = func(context.Context) *value.Dict { return value.NewDict(0) }
	}
	alone := mc.Options.FileClient == "local" && !value.Truth(mc.Opts.At("use_master_when_local"))
	c, err := minion.NewCaller(ctx, mc, alone || r.o.Doc || r.o.Grains, r.log)
	if ctx.Err() != nil {
		return r.interrupted()
	}
	if err != nil {
		return r.noMaster(err)
	}
	defer c.Close()
	r.show.Use(c.Outputters())
	switch {
	case r.o.Grains:
		return r.print(c.Grains(), "", 0)
	case r.o.Doc:
		return r.doc(c)
	}
	return r.call(ctx, c)
}

// interrupted reports Ctrl-C.
func (r *runner) interrupted() int {
	r.env.Errorf("\nExiting gracefully on Ctrl-c")
	if r.o.HardCrash.HardCrash {
		return frame.ExitFailure
	}
	return r.o.Strict(frame.ExitInterrupted)
}

// noMaster explains why the master cannot be used.
func (r *runner) noMaster(err error) int {
	var mismatch *handshake.KeyMismatch
	switch {
	case errors.Is(err, handshake.ErrPending):
		r.env.Errorf("Unable to sign_in to master: %v", err)
		return frame.ExitNoReturn
	case errors.Is(err, handshake.ErrFinger):
		r.env.Errorf("Unable to sign_in to master: %v", err)
		return minion.ExitFinger
	case errors.Is(err, handshake.ErrRejected):
		r.env.Errorf("Unable to sign_in to master: %v", err)
		return minion.ExitRejected
	case errors.As(err, &mismatch):
		r.env.Errorf("Unable to sign_in to master: Invalid master key")
		r.env.Errorf("%v", err)
		return frame.ExitFailure
	case salt.KindOf(err) == salt.Unavailable:
		r.env.Errorf("Unable to sign_in to master: Attempt to authenticate with the salt master failed with timeout error")
		r.env.Errorf("%v", err)
		return frame.ExitFailure
	}
	r.env.Errorf("%v", err)
	return config.ExitCode(err)
}

func (r *runner) doc(c *minion.Caller) int {
	names := r.args
	if len(names) == 0 {
		names = []string{"*"}
	}
	for _, n := range names {
		docs := c.Functions().Docs(docPattern(n))
		for _, k := range docs.Keys() {
			fmt.Fprintf(r.show.Writer(), "%s:\n%s\n\n", value.Str(k), value.Str(docs.At(k)))
		}
	}
	return frame.ExitOK
}

// docPattern converts a module's name to a pattern for all of its functions.
func docPattern(name string) string {
	if strings.ContainsAny(name, ".*?[") {
		return name
	}
	return name + ".*"
}

func (r *runner) call(ctx context.Context, c *minion.Caller) int {
	raw := map[string]bool{}
	for _, n := range r.o.Names() {
		raw[n] = true
	}
	words, kwargs := fn.ParseWords(r.args[1:], raw)
	args, fun := fn.Wire(words, kwargs), r.args[0]
	if r.o.SetMetadata != "" {
		c.Metadata = yaml.LoadArg(r.o.SetMetadata)
	}
	if r.o.Executors != "" {
		c.Executors = yaml.LoadArg(r.o.Executors)
	}
	if r.o.ExecutorOpts != "" {
		c.ExecutorOpts = yaml.LoadArg(r.o.ExecutorOpts)
	}
	o := c.Call(ctx, fun, args)
	if r.progress != nil {
		r.progress.Clear() // not every run reports its end
	}
	if ctx.Err() != nil {
		return r.interrupted()
	}
	if code, failed := r.explain(c, fun, o); failed {
		return code
	}
	code := frame.ExitOK
	if o.Retcode != 0 {
		code = frame.ExitFailure
	}
	if r.o.Passthrough {
		code = o.Retcode
	}
	if code == frame.ExitOK && o.Return == false {
		code = r.o.Strict(frame.ExitFailure)
	}
	shown := o.Return
	if r.o.Metadata {
		shown = value.DictOf("fun", fun, "fun_args", &value.List{Items: args}, "id", c.ID(), "jid", c.JID(), "retcode", o.Retcode, "return", o.Return)
	}
	if c := r.print(shown, o.Out, o.Retcode); c != frame.ExitOK {
		return c
	}
	// As in Salt, a failing returner does not change the exit code.
	for _, name := range c.Returners(r.o.Return) {
		if err := c.Deliver(ctx, name, fun, args, o); err != nil {
			r.env.Errorf("cannot send the result to the returner %s: %v", name, err)
		}
	}
	if !r.o.NoReturnEvent {
		if err := c.Return(ctx, fun, args, o); err != nil {
			r.log.Warn("cannot send the result to the master", "err", err)
		}
	}
	return code
}

// explain reports a call that failed before the function ran, with Salt's
// messages.
func (r *runner) explain(c *minion.Caller, fun string, o fn.Outcome) (code int, failed bool) {
	var (
		unknown *fn.UnknownError
		args    *fn.ArgumentError
		command *fn.CommandError
	)
	switch {
	case o.Err == nil:
		return 0, false
	case errors.As(o.Err, &unknown):
		if docs, ok := o.Return.(*value.Dict); ok { // of functions with this prefix
			r.print(docs, o.Out, o.Retcode)
			return frame.ExitFailure, true
		}
		r.env.Errorf("%v", o.Err)
		if near := textedit.Nearest(fun, c.Functions().Names()); len(near) > 0 {
			r.env.Errorf("Did you mean %s?", strings.Join(near, " or "))
		}
		return frame.ExitUnknownFunc, true
	case errors.As(o.Err, &args):
		r.env.Errorf("\nPassed invalid arguments: %v.\n\nUsage:", o.Err)
		if f, err := c.Functions().Lookup(fun); err == nil {
			fmt.Fprintln(r.show.Writer(), f.Doc())
		}
	case errors.As(o.Err, &command):
		r.env.Errorf("Error running '%s': %v", fun, o.Err)
	default:
		r.env.Errorf("%s", value.Str(o.Return))
	}
	return frame.ExitFailure, true
}

func (r *runner) print(data any, out string, retcode int) int {
	err := r.show.Show(value.DictOf("local", data), out, output.Call{Retcode: retcode})
	if err != nil {
		r.env.Errorf("%v", err)
		return frame.ExitFailure
	}
	return frame.ExitOK
}
