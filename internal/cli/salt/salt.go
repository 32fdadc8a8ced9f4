// Package salt is the salt program: it runs functions on minions and shows each return as it arrives.
package salt

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/base/textedit"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/daemon"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/store/keystore"
)

var command = frame.Command{
	Name: "salt", Usage: "[options] '<target>' <function> [arguments]",
	Doc: "salt runs a function on all minions that match a target, in parallel, and shows what each returns.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "run functions on minions", Run: run}
}

type options struct {
	session.Options
	Executors    string `flag:"--module-executors" arg:"LIST" doc:"Executors to use instead of those in the minions' configuration."`
	ExecutorOpts string `flag:"--executor-opts" arg:"OPTS" doc:"Options of the executors."`
	Timeout      int    `flag:"-t --timeout" arg:"SECONDS" doc:"Seconds to wait for returns before asking minions whether they still run the job. Default: as configured, else 5."`
	Expire       string `flag:"--expire" arg:"TIME" doc:"How long the master stores the job for unreachable minions, in seconds or as 10m, 2h, 1d; 0 disables it. Default: as long as this program waits for returns."`
	Static       bool   `flag:"-s --static" doc:"Show all returns together at the end, without minions that did not return."`
	Progress     bool   `flag:"-p --progress" doc:"Show on a terminal how many minions have returned."`
	Failhard     bool   `flag:"--failhard" doc:"Stop a batch at the first failure."`
	Async        bool   `flag:"--async" doc:"Send the job and do not wait for returns."`
	Subset       int    `flag:"--subset" arg:"N" doc:"Run on at most N minions of the target, chosen at random from those that have the function."`
	Verbose      bool   `flag:"-v --verbose" doc:"Show the job id, and which minions still run the job."`
	HideTimeout  bool   `flag:"--hide-timeout" doc:"Do not mention minions that do not return."`
	ShowTimeout  bool   `flag:"--show-timeout" doc:"Mention minions that do not return. This is the default unless the configuration or the Saltfile has show_timeout: False."`
	ShowJID      bool   `flag:"--show-jid" doc:"Show the job id."`
	batching
	Return       string `flag:"--return" arg:"RETURNER" doc:"Returners to which minions also send their results, separated by commas."`
	ReturnConfig string `flag:"--return_config" arg:"NAME" doc:"Alternative configuration of the returner."`
	ReturnKwargs string `flag:"--return_kwargs" arg:"MAP" doc:"Options for the returner."`
	Doc          bool   `flag:"-d --doc --documentation" doc:"Show the documentation of a module or function, or of all."`
	Separator    string `flag:"--args-separator" arg:"TEXT" default:"," doc:"Separator between the arguments of several functions. Default: %default."`
	SiteSummary  bool   `flag:"--site-summary" doc:"Show a summary of each site of a federation, and no returns."`
	Summary      bool   `flag:"--summary" dest:"cli_summary" doc:"Show at the end how many minions returned and failed."`
	Metadata     string `flag:"--metadata" arg:"DATA" doc:"Data to store with the job, for finding it later."`
	OutputDiff   bool   `flag:"--output-diff" dest:"state_output_diff" doc:"Show only states that made changes or failed."`
	ConfigDump   bool   `flag:"--config-dump" doc:"Show the configuration of the master and exit."`
	Preview      bool   `flag:"--preview-target" doc:"Show which minions are expected to match and exit."`
	targeting    `group:"Target Options" doc:"By default the target is a glob of minion ids."`
	Delimiter    string `flag:"--delimiter" arg:"TEXT" default:":" group:"Additional Target Options" doc:"Separator between the levels of a grain or pillar target. Default: '%default'."`
}

type batching struct {
	Batch     string  `flag:"-b --batch --batch-size" arg:"N or N%" doc:"Run on at most N minions at a time."`
	BatchWait float64 `flag:"--batch-wait" arg:"SECONDS" doc:"Seconds to wait after each return before starting the next minion."`
	SafeLimit int     `flag:"--batch-safe-limit" arg:"N" doc:"Run in batches if N or more minions are targeted."`
	SafeSize  string  `flag:"--batch-safe-size" arg:"N or N%" default:"8" doc:"Size of the batches of --batch-safe-limit. Default: %default."`
}

// program is one run of salt.
type program struct {
	session *session.Session
	opts    options
	cmd     *call

	live  *progress           // of the running job, or nil
	peers map[netip.Addr]bool // addresses connected to the master; nil before the first check
	// elsewhere maps minions that another master commands to that master.
	elsewhere map[string]string
	// away maps minions that are not connected to the time since when; the job is kept for them until
	// keptUntil.
	away      map[string]time.Time
	keptUntil time.Time
	// keys are the ids by the state of their keys; nil before the first look.
	keys map[keystore.State][]string
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	return new(program).run(ctx, env, args)
}

func (p *program) run(ctx context.Context, env *frame.Env, args []string) int {
	inv, code, ok := command.Parse(env, &p.opts, args)
	if !ok {
		return code
	}
	if text := p.opts.check(); text != "" {
		return command.Fail(env, text)
	}
	var err error
	if !p.opts.ConfigDump {
		if p.cmd, err = p.opts.parse(inv.Args); err != nil {
			return incomplete(env, err)
		}
	}
	if p.session, err = session.Open(env, inv, &p.opts.Options, p.tune); err != nil {
		return session.Fail(env, &command, err)
	}
	defer p.session.Close()
	p.session.UseOutputters(daemon.Become)
	if v, ok := p.session.Tree.Values.Get("show_timeout"); inv.Given("show_timeout") {
		p.opts.HideTimeout = p.opts.HideTimeout || !p.opts.ShowTimeout // may come from the Saltfile
	} else if ok && !value.Truth(v) {
		p.opts.HideTimeout = true
	}
	if err := configured(p, inv); err != nil {
		return session.Fail(env, &command, err)
	}
	return p.exitCode(p.do(ctx))
}

// configured applies those options that the master's configuration has, unless the command line has
// them.
func configured(p *program, inv *frame.Invocation) error {
	from := func(dest string) any {
		if inv.Given(dest) {
			return nil
		}
		return p.session.Tree.Values.At(dest)
	}
	switch n := from("batch_safe_limit").(type) {
	case nil:
	case int64:
		p.opts.SafeLimit = int(n)
	default:
		return salt.Errorf(salt.Invalid, "batch_safe_limit: expected a number, got %s; correct it in %s", value.Repr(n), p.session.Tree.Path)
	}
	if v := from("batch_safe_size"); v != nil {
		p.opts.SafeSize = value.Str(v)
	}
	if v := from("return"); value.Truth(v) {
		p.opts.Return = strings.Join(value.Texts(v), ",")
	}
	for dest, to := range map[string]*bool{"show_jid": &p.opts.ShowJID, "cli_summary": &p.opts.Summary} {
		if v := from(dest); v != nil {
			*to = value.Truth(v)
		}
	}
	return nil
}

// do runs what the command line requests. Its error determines the exit code.
func (p *program) do(ctx context.Context) error {
	o := &p.opts
	switch {
	case o.ConfigDump:
		return p.configDump()
	case o.Preview:
		return p.preview()
	}
	if err := malformed(p); err != nil {
		return err
	}
	if err := p.session.Authenticate(ctx); err != nil {
		return err
	}
	if o.SafeLimit > 1 && o.Batch == "" && !o.Static {
		ids, err := p.targeted()
		if err != nil {
			return err
		}
		if len(ids) >= o.SafeLimit {
			p.say("\nNOTICE: Too many minions targeted, switching to batch execution.\n")
			o.Batch = o.SafeSize
		}
	}
	switch {
	case o.Async:
		return p.async(ctx)
	case o.SiteSummary:
		return p.siteSummary(ctx)
	case o.Batch != "" && o.Static:
		return p.staticBatch(ctx)
	case o.Batch != "":
		return p.batch(ctx)
	case o.Static:
		return p.static(ctx)
	}
	return p.execute(ctx)
}

// exit is an error with an exit code, and a last line for stderr unless it is empty.
type exit struct {
	code int
	text string
}

func (e exit) Error() string { return e.text }

// Last lines of stderr.
const (
	textFailed   = "ERROR: Minions returned with non-zero exit code"
	textNoReturn = "ERROR: No return received"
)

// exitCode reports an error and maps it to the exit code. A refusal by the master counts as output
// and as success, as in Salt.
func (p *program) exitCode(err error) int {
	var (
		e       exit
		refused *client.Refused
		lost    *client.Lost
		circle  *target.CircularError
	)
	switch {
	case err == nil:
		return frame.ExitOK
	case errors.As(err, &e):
		if e.text != "" {
			p.session.Env.Errorf("%s", e.text)
		}
		return e.code
	case errors.Is(err, context.Canceled):
		return p.interrupted("")
	case errors.Is(err, session.ErrAuthentication):
		p.session.Env.Errorf("%s", err)
		return frame.ExitNoReturn
	case errors.As(err, new(*client.NoAccess)):
		p.session.Env.Errorf("ERROR: %s", err)
		return frame.ExitNoPerm
	case errors.As(err, &circle):
		p.session.Log.Error(err.Error())
		return p.exitCode(client.ErrNoMatch)
	case errors.Is(err, client.ErrNoMatch):
		p.say("%s\n", err)
		if err := p.printNothing(); err != nil {
			p.session.Env.Errorf("ERROR: %s", err)
		}
		if hint := pendingHint(p); hint != "" {
			p.session.Env.Errorf("%s", hint)
		}
		p.session.Env.Errorf(textNoReturn)
		return frame.ExitNoReturn
	case errors.Is(err, client.ErrNoReply):
		p.session.Env.Errorf(textNoReturn)
		return frame.ExitNoReturn
	case errors.As(err, &lost):
		p.session.Env.Errorf("ERROR: %s", err)
		return frame.ExitFailure
	case errors.As(err, &refused) && refused.Name == "SaltMasterError": // an error of Brine's master, unknown to scripts for Salt
		p.session.Env.Errorf("ERROR: %s", err)
		return frame.ExitFailure
	case errors.As(err, &refused), salt.KindOf(err) == salt.Unavailable, salt.KindOf(err) == salt.Timeout, salt.KindOf(err) == salt.Invalid:
		if err := p.session.Show.Show(err.Error(), "", output.Call{Retcode: 1}); err != nil {
			p.session.Env.Errorf("ERROR: %s", err)
			return frame.ExitFailure
		}
		if hint := refusalHint(p, err); hint != "" {
			p.session.Env.Errorf("%s", hint)
		}
		return p.opts.Strict(refusal(err))
	}
	p.session.Env.Errorf("ERROR: %s", err)
	return frame.ExitFailure
}

// refusalHint says what to do about an error that Salt's message leaves open, "" for other errors.
func refusalHint(p *program, err error) string {
	if errors.As(err, new(*client.UnknownNodegroup)) {
		var names []string
		for k := range p.session.Conf.Options.Nodegroups.All() {
			names = append(names, value.Str(k))
		}
		if near := textedit.Nearest(value.Str(p.cmd.target), names); len(near) > 0 {
			return "Did you mean " + strings.Join(near, " or ") + "?"
		}
		return ""
	}
	file := p.session.Conf.Files.ConfFile
	if !client.NotRunning(err) || isFile(file) || !isFile(filepath.Join(filepath.Dir(file), "minion")) {
		return ""
	}
	return "This machine has the configuration of a minion, and no " + file + ": run salt on the master, or salt-call here."
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// refusal returns the exit code for a job that could not be sent.
func refusal(err error) int {
	switch salt.KindOf(err) {
	case salt.Denied:
		return frame.ExitNoPerm
	case salt.Unavailable, salt.Timeout:
		return frame.ExitUnavailable
	}
	return frame.ExitFailure
}

// lookupHint says how to see the returns of a job later.
const lookupHint = "The minions may not have all finished running and any remaining minions will return upon completion. " +
	"To look up the return data for this job later, run the following command:\n\nsalt-run jobs.lookup_jid %s"

// interrupted reports Ctrl-C. jid is the id of the running job, or "".
func (p *program) interrupted(jid string) int {
	text := "\nExiting gracefully on Ctrl-c"
	if jid != "" {
		text += fmt.Sprintf("\nThis job's jid is: %s\n"+lookupHint, jid, jid)
	}
	p.session.Env.Errorf("%s", text)
	if p.opts.HardCrash.HardCrash {
		return frame.ExitFailure
	}
	return p.opts.Strict(frame.ExitInterrupted)
}

// stopped converts the end of a wait by Ctrl-C into the exit code; other errors are unchanged.
func (p *program) stopped(err error, jid string) error {
	if errors.Is(err, context.Canceled) {
		return exit{code: p.interrupted(jid)}
	}
	return err
}

func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.session.Env.Stdout, format, args...)
}

func (p *program) configDump() error {
	all, err := config.Dump(p.session.Tree, p.session.Conf)
	if err != nil {
		return err
	}
	p.say("%s", yaml.Dump(all))
	return nil
}

// tune applies this program's options to the output options.
func (p *program) tune(o *output.Options) {
	if p.opts.OutputDiff {
		o.StateDiff = true
	}
	if p.cmd == nil {
		return
	}
	kwargs := p.cmd.kwargs()
	if v, ok := kwargs.Get("exclude"); ok {
		o.StateExclude = words(v)
	}
	if v, ok := kwargs.Get("terse"); ok {
		o.StateTerse = words(v)
	}
}

// words returns the items of a list, or of a comma-separated string.
func words(v any) []string {
	var out []string
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			out = append(out, value.Str(it))
		}
	case string:
		out = splitComma(x)
	}
	return out
}
