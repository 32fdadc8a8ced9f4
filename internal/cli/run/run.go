// Package run is salt-run: it makes the master run one of its own functions, a
// runner, and shows the result. The runner runs in the master, and this program
// only waits. While no master runs, runners that only read data on disk run in
// this program.
package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/textedit"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue/runners"
	"brine/internal/cli/daemon"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

var command = frame.Command{
	Name: "salt-run", Usage: "[options] <function> [arguments]",
	Doc: "salt-run makes the master run one of its own functions. Without a function it shows the documentation of all.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "run functions on the master", Run: run}
}

type options struct {
	session.Options
	Timeout    int    `flag:"-t --timeout" arg:"SECONDS" doc:"Seconds for functions with an argument timeout, which is set to this unless it is given."`
	Doc        bool   `flag:"-d --doc --documentation" doc:"Show the documentation of a runner or function, or of all."`
	Async      bool   `flag:"--async" doc:"Start the function and do not wait for it."`
	Quiet      bool   `flag:"--quiet" doc:"Do not show the result."`
	SkipGrains bool   `flag:"--skip-grains" doc:"Do not collect the master's grains."`
	Cluster    bool   `flag:"--cluster" doc:"Run it once in the whole cluster, on the master that holds the lease (cluster_voters), and wait for the result."`
	Repeatable bool   `flag:"--repeatable" doc:"With --cluster: running it twice is harmless, so another master runs it again if the first one dies."`
	JID        string `flag:"--jid" arg:"JID" doc:"Use this job id instead of a new one."`
	ShowJID    bool   `flag:"--show-jid" hidden:"yes" doc:"Show the job id."`
	Profiling  bool   `flag:"--enable-profiling" dest:"profiling_enabled" hidden:"yes" doc:"Profile the function."`
	ProfileDir string `flag:"--profiling-path" arg:"DIR" hidden:"yes" doc:"Directory for the profile."`
}

// check returns an error message for the options, or "".
func (o *options) check() string {
	switch {
	case o.JID != "" && !salt.ValidJID(o.JID):
		return "'" + o.JID + "' is not a valid JID"
	case o.Repeatable && !o.Cluster:
		return "--repeatable is for --cluster"
	case o.Profiling, o.ProfileDir != "":
		return "Salt's options --enable-profiling and --profiling-path are not supported: the function runs in the master; set its option " +
			"profiling_address to get profiles"
	}
	return ""
}

// program is one run of salt-run.
type program struct {
	*session.Session
	opts options
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	p := &program{}
	inv, code, ok := command.Parse(env, &p.opts, args)
	if !ok {
		return code
	}
	if text := p.opts.check(); text != "" {
		return command.Fail(env, text)
	}
	if p.opts.Doc && len(inv.Args) > 1 {
		return command.Fail(env, "You can only get documentation for one method at one time")
	}
	var err error
	if p.Session, err = session.Open(env, inv, &p.opts.Options, nil); err != nil {
		return session.Fail(env, &command, err)
	}
	defer p.Close()
	p.UseOutputters(daemon.Become)
	return p.exitCode(p.do(ctx, inv.Args))
}

// exit is an error with an exit code.
type exit int

func (exit) Error() string { return "" }

func (p *program) exitCode(err error) int {
	var (
		e       exit
		refused *client.Refused
	)
	switch {
	case err == nil:
		return frame.ExitOK
	case errors.As(err, &e):
		return int(e)
	case errors.Is(err, context.Canceled):
		return p.interrupted("")
	case errors.Is(err, session.ErrAuthentication):
		p.Log.Error("Authentication failed")
		return p.opts.Strict(frame.ExitNoPerm)
	case errors.As(err, &refused):
		if !p.opts.Quiet {
			p.Show.Show(err.Error(), "nested", output.Call{})
		}
		code := frame.ExitFailure
		if salt.KindOf(err) == salt.Denied {
			code = frame.ExitNoPerm
		}
		if p.opts.Cluster { // not an option of Salt, so Salt has no exit code for it
			return code
		}
		return p.opts.Strict(code)
	}
	p.Env.Errorf("%s", err)
	if errors.As(err, new(*client.NoAccess)) {
		return frame.ExitNoPerm
	}
	return frame.ExitFailure
}

// interrupted reports Ctrl-C.
func (p *program) interrupted(jid string) int {
	text := "\nExiting gracefully on Ctrl-c"
	if jid != "" {
		text += "\nThe master continues the function. Its result will be the event salt/run/" + jid + "/ret"
	}
	p.Env.Errorf("%s", text)
	if p.opts.HardCrash.HardCrash {
		return frame.ExitFailure
	}
	return p.opts.Strict(frame.ExitInterrupted)
}

func (p *program) do(ctx context.Context, args []string) error {
	if p.opts.Doc || len(args) == 0 {
		return p.docs(args)
	}
	if err := p.Authenticate(ctx); err != nil {
		return err
	}
	raw := map[string]bool{}
	for _, n := range p.opts.Names() {
		raw[n] = true
	}
	pos, kwargs := fn.ParseWords(args[1:], raw)
	r := client.Runner{Fun: args[0], Args: fn.Wire(pos, nil), Kwargs: p.timed(args[0], len(pos), kwargs), JID: p.opts.JID, SkipGrains: p.opts.SkipGrains,
		Cluster: p.opts.Cluster, Repeatable: p.opts.Repeatable, Prints: !p.opts.Async}
	switch {
	case p.opts.Async:
		return p.async(ctx, r)
	case r.Fun == "state.event":
		return p.watch(ctx, r)
	}
	return p.execute(ctx, r)
}

// timed adds the option --timeout to the arguments of a function that has an
// argument of that name, unless it is given.
func (p *program) timed(fun string, given int, kwargs *value.Dict) *value.Dict {
	if p.opts.Timeout == 0 || kwargs.Has("timeout") {
		return kwargs
	}
	all, err := fn.NewRegistry(nil, runners.New(runners.Deps{})...)
	if err != nil {
		return kwargs
	}
	f, err := all.Lookup(fun)
	if err != nil {
		return kwargs
	}
	at := slices.IndexFunc(f.Params(), func(a fn.Param) bool { return a.Name == "timeout" })
	if at < 0 || at < given {
		return kwargs
	}
	if kwargs == nil {
		kwargs = value.NewDict(1)
	}
	kwargs.Set("timeout", p.opts.Timeout)
	return kwargs
}

func (p *program) async(ctx context.Context, r client.Runner) error {
	_, tag, err := p.Client.RunAsync(ctx, r)
	if err != nil {
		return err
	}
	p.Log.Warn("Running in asynchronous mode. Results of this execution may be collected by attaching to the master event bus " +
		"or by examining the master job cache, if configured. This execution is running under tag " + tag)
	return nil
}

// execute runs a function and shows its progress and result.
func (p *program) execute(ctx context.Context, r client.Runner) error {
	jid := ""
	started := func(id string) {
		if jid = id; p.opts.ShowJID {
			fmt.Fprintf(p.Env.Stdout, "jid: %s\n", id)
		}
	}
	var (
		broken error
		line   *frame.Line
	)
	if !p.opts.Quiet && p.Show.Wanted() != "quiet" {
		line = p.Env.Live()
	}
	begun := time.Now()
	stop := line.Every(time.Second, func() string {
		return fmt.Sprintf("%s runs on the master, %s", r.Fun, time.Since(begun).Truncate(time.Second))
	})
	defer stop()
	data, err := p.call(ctx, r, started, func(e client.RunnerEvent) {
		if e.Name == wire.EventPrint {
			broken = errors.Join(broken, line.Aside(func() error { return p.printed(e.Data) }))
			return
		}
		if !p.opts.Quiet && broken == nil {
			broken = line.Aside(func() error {
				return p.Show.Show(value.DictOf("suffix", e.Name, "event", e.Data), outputterOf(e.Data), output.Call{})
			})
		}
	})
	stop()
	if errors.Is(err, context.Canceled) {
		return exit(p.interrupted(jid))
	}
	if err != nil {
		return err
	}
	shown, out := result(data)
	if !p.opts.Quiet {
		show := func() error { return p.Show.Show(shown, out, output.Call{}) }
		if text, ok := shown.(string); ok && data.At("success") == false && p.Show.Wanted() == "table" {
			// The outputter table prints nothing for a string, so print the error here.
			show = func() error { _, err := fmt.Fprintln(p.Show.Writer(), text); return err }
		}
		if err := errors.Join(broken, show()); err != nil {
			return err
		}
	}
	if text, ok := shown.(string); ok && data.At("success") == false && strings.HasPrefix(text, "'"+r.Fun+"' is not available") {
		p.suggest(r.Fun)
	}
	if code := exitOf(data); code != 0 {
		return exit(code)
	}
	return p.strict(r.Fun, data.At("success") == false, shown)
}

// printed shows what a function in Python has printed, also with --quiet, as Salt's program, which
// runs it itself.
func (p *program) printed(data *value.Dict) error {
	var in wire.Printed
	wire.View(data, &in)
	to := p.Env.Stdout
	if in.Stream == "stderr" {
		to = p.Env.Stderr
	}
	_, err := io.WriteString(to, in.Text)
	return err
}

// suggest prints similar names of runners if there is none of this name.
func (p *program) suggest(fun string) {
	var names []string
	for _, m := range runners.New(runners.Deps{}) {
		for i := range m.Funcs {
			names = append(names, m.Name+"."+m.Funcs[i].Name())
		}
	}
	if near := textedit.Nearest(fun, names); len(near) > 0 && near[0] != fun {
		p.Env.Errorf("There is no runner %s. Did you mean %s?", fun, strings.Join(near, " or "))
	}
}

// strict is the error of a runner that failed although Salt's program would
// exit with 0.
func (p *program) strict(fun string, failed bool, ret any) error {
	code := frame.ExitOK
	text, _ := ret.(string)
	switch {
	case failed && strings.HasPrefix(text, "'"+fun+"' is not available"):
		code = frame.ExitUnknownFunc
	case failed, ret == false:
		code = frame.ExitFailure
	}
	if code = p.opts.Strict(code); code != 0 {
		return exit(code)
	}
	return nil
}

// outputterOf returns the outputter that an event requests, or "".
func outputterOf(data *value.Dict) string {
	if out := data.Str("outputter"); out != "" {
		return out
	}
	return data.Dict("return").Str("outputter")
}

// result returns the data of the last event and its outputter. A runner that
// wants a certain outputter returns a map of outputter and data.
func result(data *value.Dict) (shown any, out string) {
	out = outputterOf(data)
	ret := data.At("return")
	if d, ok := ret.(*value.Dict); ok && d.Len() == 2 && d.Has("data") && d.Has("outputter") {
		return d.At("data"), value.Str(d.At("outputter"))
	}
	return ret, out
}

// exitOf returns the exit code of the event, or the one that the runner put
// into its result.
func exitOf(data *value.Dict) int {
	for _, d := range []*value.Dict{data, data.Dict("return"), data.Dict("return").Dict("data")} {
		if d.Has("retcode") {
			return int(d.Int("retcode"))
		}
	}
	return 0
}

// docs shows the documentation of the selected functions: one function, a module, or a pattern. It
// needs no master: this program has the same runners, and the user's runners are on this machine.
func (p *program) docs(args []string) error {
	reg, err := fn.NewRegistry(nil, runners.New(runners.Deps{})...)
	if err != nil {
		return err
	}
	done := p.attachOwn(reg)
	defer done()
	all := reg.Docs()
	if !p.opts.Doc {
		return p.Show.Show(all, "", output.Call{})
	}
	word := ""
	if len(args) > 0 {
		word = args[0]
	}
	var funs []string
	for k := range all.All() {
		if name := value.Str(k); means(word, name) {
			funs = append(funs, name)
		}
	}
	slices.Sort(funs)
	for _, name := range funs {
		if err := p.Show.Show(name+":", "txt", output.Call{}); err != nil {
			return err
		}
		fmt.Fprintln(p.Env.Stdout, value.Str(all.At(name)))
	}
	return nil
}
