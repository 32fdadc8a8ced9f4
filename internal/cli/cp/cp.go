// Package cp is salt-cp: it copies files from this machine to minions by the functions cp.recv and
// cp.recv_chunked, which stock minions also have.
//
// Without -C all files are sent as strings in one job, which suits small configuration files. With
// -C files of any kind and size are sent in chunks, one job per chunk, and directories recursively.
// A minion that fails a chunk, or does not return, gets no further chunks of that file.
package cp

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/call/client"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

var command = frame.Command{
	Name: "salt-cp", Usage: "[options] '<target>' SOURCE... DEST",
	Doc: "salt-cp copies files to minions. Without -C it is for small text files; with -C for files of any size and for directories.",
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "copy files to minions", Run: run}
}

type options struct {
	frame.Config
	frame.Saltfile
	frame.HardCrash
	Timeout       int `flag:"-t --timeout" arg:"SECONDS" doc:"Seconds to wait for returns before asking minions whether they still run the job. Default: as configured, else 5."`
	targeting     `group:"Target Options" doc:"By default the target is a glob of minion ids."`
	Delimiter     string `flag:"--delimiter" arg:"TEXT" default:":" group:"Additional Target Options" doc:"Separator between the levels of a grain target. Default: '%default'."`
	frame.Output  `group:"Output Options"`
	sending       `group:"File Options"`
	frame.Logging `group:"Logging Options"`
}

type sending struct {
	Chunked bool `flag:"-C --chunked" doc:"Send files in chunks: large or binary files, and directories recursively."`
	Plain   bool `flag:"-n --no-compression" doc:"Do not compress chunks."`
}

type targeting struct {
	Hosts     bool `flag:"-H --hosts" dest:"list_hosts" doc:"The target is a list of hosts of the roster, which is for salt-ssh."`
	PCRE      bool `flag:"-E --pcre" doc:"The target is a regular expression for minion ids."`
	List      bool `flag:"-L --list" doc:"The target is a list of minion ids with commas or spaces."`
	Grain     bool `flag:"-G --grain" doc:"The target is a grain and a glob for its value: 'os:Debian'."`
	GrainPCRE bool `flag:"-P --grain-pcre" doc:"The target is a grain and a regular expression: 'os:(Debian|Ubuntu)'."`
	Nodegroup bool `flag:"-N --nodegroup" doc:"The target is the name of a nodegroup of the master's configuration."`
	Range     bool `flag:"-R --range" doc:"The target is an expression for a range server."`
}

// chosen returns the target type, and the options that set it.
func (t *targeting) chosen() (typ string, flags []string) {
	typ = "glob"
	for _, c := range []struct {
		on        bool
		typ, flag string
	}{
		{t.Hosts, "list_hosts", "--hosts"}, {t.PCRE, "pcre", "--pcre"}, {t.List, "list", "--list"}, {t.Grain, "grain", "--grain"},
		{t.GrainPCRE, "grain_pcre", "--grain-pcre"}, {t.Nodegroup, "nodegroup", "--nodegroup"}, {t.Range, "range", "--range"},
	} {
		if c.on {
			typ, flags = c.typ, append(flags, c.flag)
		}
	}
	return typ, flags
}

// check returns an error message for the options, or "".
func (o *options) check() string {
	_, flags := o.chosen()
	switch {
	case len(flags) > 1:
		return "The options " + strings.Join(flags, "/") + " are mutually exclusive. Please only choose one of them"
	case o.Hosts:
		return "--hosts is for salt-ssh: name minions with -L"
	case o.StateOutput != "" || o.StateVerbose != nil:
		return "the options --state-output and --state-verbose are not supported here: salt-cp shows no states"
	}
	return ""
}

// settings are options of the master's configuration that only salt-cp uses.
type settings struct {
	ChunkSize int `salt:"salt_cp_chunk_size" default:"98304" doc:"size in bytes of the chunks of salt-cp -C"`
}

// Check implements config.Checker.
func (s *settings) Check() error {
	if s.ChunkSize < 1 || s.ChunkSize > maxChunk {
		return config.Wrong("salt_cp_chunk_size", "expected 1 to %d bytes, got %d", maxChunk, s.ChunkSize)
	}
	return nil
}

// maxChunk bounds salt_cp_chunk_size. A chunk is one message, and masters and minions bound the
// size of messages.
const maxChunk = 32 << 20

// program is one run of salt-cp.
type program struct {
	*session.Session
	opts    options
	set     struct{ CP settings }
	target  any
	typ     string
	sources []string
	dest    string
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
	if len(inv.Args) <= 1 {
		command.Parse(env, &options{}, []string{"--help"})
		return command.Fail(env, "Insufficient arguments")
	}
	p.typ, _ = p.opts.chosen()
	p.target = parseTarget(p.typ, inv.Args[0])
	p.dest = inv.Args[len(inv.Args)-1]
	for _, s := range inv.Args[1 : len(inv.Args)-1] {
		p.sources = append(p.sources, realPath(s))
	}
	o := &session.Options{Config: p.opts.Config, Saltfile: p.opts.Saltfile, HardCrash: p.opts.HardCrash, Logging: p.opts.Logging, Output: p.opts.Output}
	var err error
	if p.Session, err = session.Open(env, inv, o, nil); err != nil {
		return session.Fail(env, &command, err)
	}
	defer p.Close()
	if err := config.Decode(p.Tree, &p.set); err != nil {
		return session.Fail(env, &command, err)
	}
	return p.exitCode(p.do(ctx))
}

// parseTarget parses the target of the command line.
func parseTarget(typ, text string) any {
	switch {
	case typ != "list":
		return text
	case strings.Contains(text, ","):
		return value.Strings(strings.Split(text, ","))
	}
	return value.Strings(strings.Fields(text))
}

// realPath resolves symbolic links, since the copy is named after the file itself. A path that does
// not exist is returned unchanged.
func realPath(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real
	}
	return abs
}

func (p *program) do(ctx context.Context) error {
	var all *value.Dict
	var err error
	if p.opts.Chunked {
		all, err = p.chunked(ctx)
	} else {
		all, err = p.whole(ctx)
	}
	if err != nil {
		return err
	}
	return p.Show.Show(all, "", output.Call{})
}

// job returns the part that all jobs of a copy share.
func (p *program) job(fun string, args ...any) client.Job {
	return client.Job{
		Target: p.target, Type: p.typ, Fun: fun, Arg: value.ListOf(args...),
		Kwargs: value.DictOf("delimiter", p.opts.Delimiter), Timeout: time.Duration(p.opts.Timeout) * time.Second,
	}
}

// exit is an error with an exit code, and a message for stderr.
type exit struct {
	code int
	text string
}

func (e exit) Error() string { return e.text }

// exitCode reports an error and maps it to the exit code.
func (p *program) exitCode(err error) int {
	var e exit
	switch {
	case err == nil:
		return frame.ExitOK
	case errors.As(err, &e):
		p.Env.Errorf("%s", e.text)
		return e.code
	case errors.Is(err, client.ErrNoMatch):
		fmt.Fprintln(p.Env.Stdout, err)
		return frame.ExitOK
	case errors.Is(err, context.Canceled):
		p.Env.Errorf("\nExiting gracefully on Ctrl-c")
		if p.opts.HardCrash.HardCrash {
			return frame.ExitFailure
		}
		return frame.ExitOK
	}
	p.Env.Errorf("ERROR: %s", err)
	return frame.ExitFailure
}
