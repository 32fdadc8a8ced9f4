// Package key is salt-key: it lists, accepts, rejects, deletes, shows and generates keys of
// minions.
//
// It works directly on the master's key directory, so that it also works while no master runs; with
// --eauth it calls wheel functions of a running master. A running master learns of changes from the
// directory, from the event salt/key, and from the drop file that requests a new session key.
package key

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"strings"

	"brine/internal/base/log"
	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

var command = frame.Command{
	Name: "salt-key",
	Doc: "salt-key manages the keys of minions. KEYS is a glob or a comma-separated list of ids. " +
		"Without an option it lists all keys.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "manage the keys of minions", Run: run}
}

type options struct {
	frame.Config
	frame.Saltfile
	frame.HardCrash
	frame.User
	actions `group:"Actions"`

	Quiet    bool  `flag:"-q --quiet" doc:"Show no warnings. Results are still shown."`
	Yes      bool  `flag:"-y --yes" doc:"Answer yes to all questions."`
	Rotate   *bool `flag:"--rotate-aes-key" arg:"BOOL" doc:"Whether the master creates a new session key when accepted keys are deleted or rejected. Otherwise these minions can still read what the master publishes. Default: True."`
	Preserve *bool `flag:"--preserve-minions" arg:"BOOL" doc:"Whether to keep the cached data of minions whose keys are deleted. Default: False."`

	generation    `group:"Key Generation Options"`
	frame.Logging `group:"Logging Options"`
	frame.Output  `group:"Output Options"`
	frame.EAuth   `group:"External Authentication"`
}

type actions struct {
	List            string `flag:"-l --list" arg:"ARG" doc:"List keys: pre, un or unaccepted; acc or accepted; rej or rejected; den or denied; all."`
	ListAll         bool   `flag:"-L --list-all" doc:"List all keys."`
	Accept          string `flag:"-a --accept" arg:"KEYS" doc:"Accept unaccepted keys."`
	AcceptAll       bool   `flag:"-A --accept-all" doc:"Accept all unaccepted keys."`
	Reject          string `flag:"-r --reject" arg:"KEYS" doc:"Reject unaccepted keys."`
	RejectAll       bool   `flag:"-R --reject-all" doc:"Reject all unaccepted keys."`
	IncludeAll      bool   `flag:"--include-all" doc:"Accept rejected and reject accepted keys too."`
	IncludeAccepted bool   `flag:"--include-accepted" doc:"Reject accepted keys too."`
	IncludeRejected bool   `flag:"--include-rejected" doc:"Accept rejected keys too."`
	IncludeDenied   bool   `flag:"--include-denied" doc:"Accept or reject denied keys too."`
	Print           string `flag:"-p --print" arg:"KEYS" doc:"Show keys in full."`
	PrintAll        bool   `flag:"-P --print-all" doc:"Show all keys in full."`
	Delete          string `flag:"-d --delete" arg:"KEYS" doc:"Delete keys, in any state."`
	DeleteAll       bool   `flag:"-D --delete-all" doc:"Delete all keys."`
	Finger          string `flag:"-f --finger" arg:"KEYS" doc:"Show the fingerprints of keys."`
	FingerAll       bool   `flag:"-F --finger-all" doc:"Show the fingerprints of all keys."`
}

type generation struct {
	GenKeys       string `flag:"--gen-keys" arg:"NAME" doc:"Generate a key pair, NAME.pem and NAME.pub."`
	GenKeysDir    string `flag:"--gen-keys-dir" arg:"DIR" default:"." doc:"Directory for --gen-keys. Default: the current directory."`
	KeySize       *int   `flag:"--keysize" arg:"BITS" doc:"Size of a new key, 2048 or more. Default: 2048."`
	GenSignature  bool   `flag:"--gen-signature" doc:"Sign the master's public key and write the signature to a file, for minions with verify_master_pubkey_sign."`
	Priv          string `flag:"--priv" arg:"FILE" doc:"Private key to sign with. Default: master_sign.pem."`
	Pub           string `flag:"--pub" arg:"FILE" doc:"Public key to sign. Default: master.pub."`
	SignaturePath string `flag:"--signature-path" arg:"DIR" doc:"Directory for the signature. Default: pki_dir."`
	AutoCreate    bool   `flag:"--auto-create" doc:"Generate a signing key pair if none exists."`
}

// program is one run of salt-key.
type program struct {
	env  *frame.Env
	in   *bufio.Reader
	opts options
	conf *conf
	log  *log.Log
	show *frame.Display
	keys *keystore.Store
	bus  *bus
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	p := &program{env: env, in: bufio.NewReader(env.Stdin)}
	inv, code, ok := command.Parse(env, &p.opts, args)
	if !ok {
		return code
	}
	if text := p.opts.check(); text != "" {
		return command.Fail(env, text)
	}
	if len(inv.Args) > 0 {
		if text := p.opts.surplus(inv.Args[0]); text != "" {
			return command.Fail(env, text)
		}
		if !p.opts.Quiet {
			env.Errorf("WARNING: argument '%s' is ignored. Separate several keys by commas: a,b", inv.Args[0])
		}
	}
	if p.opts.EAuth.EAuth != "" {
		return p.runRemote(ctx, inv)
	}
	err := p.setup(inv)
	if err == nil {
		defer p.close()
		err = p.do(ctx)
	}
	return p.exitCode(err)
}

// usageError is a usage error found only after parsing.
type usageError struct{ error }

// noUser says that the user to run as does not exist. Its message is Salt's.
type noUser string

func (u noUser) Error() string {
	return "Failed to prepare the Salt environment for user " + string(u) + ". The user is not available."
}

// errInterrupted is the answer Ctrl-C to a question.
var errInterrupted = errors.New("\nExiting on CTRL-c")

func (p *program) exitCode(err error) int {
	var usage usageError
	switch {
	case err == nil:
		return frame.ExitOK
	case errors.As(err, &usage):
		return command.Fail(p.env, err.Error())
	case errors.Is(err, errInterrupted):
		p.env.Errorf("%s", err)
		return frame.ExitFailure
	case errors.As(err, new(noUser)):
		p.env.Errorf("%s", err)
		return frame.ExitNoUser
	case errors.Is(err, fs.ErrPermission), salt.KindOf(err) == salt.Denied:
		p.env.Errorf("%s: error: %s", command.Name, err)
		return frame.ExitNoPerm
	}
	p.env.Errorf("%s: error: %s", command.Name, err)
	return frame.ExitFailure
}

// check returns an error message for invalid options, or "".
func (o *options) check() string {
	if o.List != "" {
		if _, ok := listed(o.List); !ok {
			return fmt.Sprintf("'%s' is not a valid argument to '--list'", o.List)
		}
	}
	switch {
	case o.KeySize != nil && *o.KeySize < 2048:
		return "The minimum value for keysize is 2048"
	case o.KeySize != nil && *o.KeySize > 32768:
		return "The maximum value for keysize is 32768"
	case o.StateOutput != "" || o.StateVerbose != nil:
		return "the options --state-output and --state-verbose are not supported: salt-key shows no states"
	}
	if text := o.checkRemote(); text != "" {
		return text
	}
	return o.several()
}

// surplus returns why an argument without an option is refused, or "". Commands that change keys
// refuse it: -D web1 probably means -d web1.
func (o *options) surplus(arg string) string {
	a := &o.actions
	switch {
	case o.GenKeys != "" || o.GenSignature:
		return fmt.Sprintf("unexpected argument %q", arg)
	case a.DeleteAll:
		return "Delete all takes no arguments. Use -d to delete specified keys"
	case a.AcceptAll:
		return "Accept all takes no arguments. Use -a to accept specified keys"
	case a.RejectAll:
		return "Reject all takes no arguments. Use -r to reject specified keys"
	case a.Accept != "" || a.Reject != "" || a.Delete != "":
		return fmt.Sprintf("unexpected argument %q: separate several keys by commas (a,b) and quote globs", arg)
	}
	return ""
}

// several returns an error message if options for different changes are combined, because only one
// would run, or "".
func (a *actions) several() string {
	var given []string
	for _, c := range []struct {
		on   bool
		name string
	}{
		{a.Accept != "" || a.AcceptAll, "accept"}, {a.Reject != "" || a.RejectAll, "reject"}, {a.Delete != "" || a.DeleteAll, "delete"},
	} {
		if c.on {
			given = append(given, c.name)
		}
	}
	if len(given) < 2 {
		return ""
	}
	return "cannot " + strings.Join(given, " and ") + " keys in one command"
}

// setup reads the configuration and opens the key store.
func (p *program) setup(inv *frame.Invocation) error {
	o := &p.opts
	// Generating keys needs no configuration: do not warn that it is missing.
	dir := o.ConfigDir
	if st, err := os.Stat(dir); o.GenKeys == "" || err == nil && st.IsDir() {
		dir = o.Resolve(p.env)
	}
	if !inv.Given("config_dir") {
		dir = "" // let the configuration decide, which reads more than one variable
	}
	if o.User.User != "" {
		if _, err := user.Lookup(o.User.User); err != nil {
			return noUser(o.User.User)
		}
	}
	var err error
	if p.conf, err = loadConf(config.Path(config.MasterKind, dir, p.env.Getenv), o); err != nil {
		return err
	}
	lo := p.conf.Log
	lo.File, lo.Chosen = p.conf.logFile, p.conf.logFile != ""
	if o.Quiet {
		lo.Level = "quiet"
	}
	if p.log, err = o.Logging.Open(p.env, lo, &o.Output); err != nil {
		return usageError{err}
	}
	p.log.Debug("configuration read", "path", p.conf.Files.ConfFile, "keys", p.conf.keyDir())
	if p.show, err = o.Output.Open(p.env, p.conf.Output, p.log.Logger); err != nil {
		return usageError{err}
	}
	return nil
}

func (p *program) close() {
	p.bus.close()
	p.show.Close()
	p.log.Close()
}

// do runs the requested action. Of several, the first in this order runs, as in Salt.
func (p *program) do(ctx context.Context) error {
	o := &p.opts
	switch {
	case o.GenKeys != "":
		return p.genKeys()
	case o.GenSignature:
		return p.genSignature()
	}
	var err error
	if p.keys, err = keystore.Open(p.conf.keyDir(), p.log.Logger); err != nil {
		return err
	}
	if p.conf.Cluster.Isolated {
		p.keys = p.keys.As(keystore.NoteBeside(p.conf.Files.CacheDir, p.log.Logger), client.Caller(p.env.Getenv), command.Name)
	}
	p.bus = &bus{at: p.conf.Events.Sockets(), max: p.conf.Events.MaxEventSize, log: p.log.Logger}
	all := func(one string, all bool) (string, bool) {
		if one == "" && all {
			one = "*"
		}
		return one, one != ""
	}
	if o.List != "" {
		return p.list(o.List)
	}
	if o.ListAll {
		return p.list("all")
	}
	for _, a := range []struct {
		one string
		all bool
		do  func(match string) error
	}{
		{o.Print, o.PrintAll, p.print},
		{o.Accept, o.AcceptAll, func(m string) error { return p.change(ctx, accepting(o), m) }},
		{o.Reject, o.RejectAll, func(m string) error { return p.change(ctx, rejecting(o), m) }},
		{o.Delete, o.DeleteAll, func(m string) error { return p.change(ctx, deleting(o), m) }},
		{o.Finger, o.FingerAll, p.finger},
	} {
		if match, ok := all(a.one, a.all); ok {
			return a.do(match)
		}
	}
	return p.list("all")
}

// display shows data with the outputter for keys, unless the user chose another.
func (p *program) display(data any) error {
	return p.show.Show(data, "key", output.Call{})
}

func (p *program) say(format string, args ...any) {
	fmt.Fprintf(p.env.Stdout, format, args...)
}

// ask asks a question and returns the first letter of the answer in lower case, or the default for
// an empty line.
func (p *program) ask(ctx context.Context, question, byDefault string) (string, error) {
	p.say("%s", question)
	type answer struct {
		line string
		err  error
	}
	got := make(chan answer, 1)
	go func() { // may block until the process ends: a read cannot be cancelled
		line, err := p.in.ReadString('\n')
		got <- answer{line, err}
	}()
	select {
	case <-ctx.Done():
		return "", errInterrupted
	case a := <-got:
		if a.err != nil && (a.line == "" || !errors.Is(a.err, io.EOF)) {
			return "", fmt.Errorf("cannot read the answer: %w; use -y to answer yes to all questions", a.err)
		}
		line := strings.ToLower(strings.TrimRight(a.line, "\r\n"))
		if line == "" {
			return byDefault, nil
		}
		return line[:1], nil
	}
}

// single returns data under the heading for results that are not keys.
func single(v any) *value.Dict { return value.DictOf("return", v) }
