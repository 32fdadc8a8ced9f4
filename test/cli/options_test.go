package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/call/client/clienttest"
	"brine/internal/cli"
	"brine/internal/cli/frame"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// effect shows that an option works: a command line, and the expected result with the option. Every
// expectation must hold with each spelling of the option, and at least one must fail without it.
type effect struct {
	// line is a command line in shell syntax; @ stands for the option.
	line string
	// value is the value of the option, "" if it takes none.
	value string
	stdin string
	tty   bool // the streams are terminals
	// out and err are regular expressions for standard output and error, "" for any.
	out, err string
	code     int
	// file is a file that the command writes, and holds a regular expression for its content.
	file, holds string
	// cut is the output after which the user types Ctrl-C.
	cut string
	// before, if set, prepares one run.
	before func(t *testing.T, r *ran)
	// check, if set, checks the result in addition to the expressions, or instead of a line if
	// there is none. opt is nil for the run without the option. It returns the error.
	check func(t *testing.T, f *field, opt []string) error
	// not is an expression that standard output must not match, unless it is "". nofile is a file
	// that must not exist.
	not, nofile string
	// daemon means that the program is a daemon, which is stopped when it has started.
	daemon bool
	// elsewhere is the package whose tests show the effect, for programs that start their own
	// fleets.
	elsewhere string
	// always is the reason why the option changes nothing: its effect is the default.
	always string
}

// refused is an option of Salt that Brine lacks: a usage error that says so.
func refused(line, value string) effect {
	return effect{line: line, value: value, code: 64, err: `not supported|is for salt-ssh`}
}

// field has the daemons and directories with which the programs run.
type field struct {
	master, alpha *daemontest.Node
	fake          *clienttest.Master
}

// ran is one run of a program.
type ran struct {
	dir, home      string
	code           int
	stdout, stderr bytes.Buffer
}

// watched is a stream that ends the program once it contains a text.
type watched struct {
	*bytes.Buffer
	text string
	end  context.CancelFunc
	tty  bool
}

func (w watched) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if w.text != "" && strings.Contains(w.Buffer.String(), w.text) {
		w.end()
	}
	return n, err
}

// words splits a line like a shell, with single quotes.
func words(line string) []string {
	var out []string
	var word strings.Builder
	quoted, begun := false, false
	for _, c := range line {
		switch {
		case c == '\'':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	if begun {
		out = append(out, word.String())
	}
	return out
}

// run runs a program in this process. opt replaces @ in the line.
func (f *field) run(t *testing.T, program string, e *effect, opt []string) *ran {
	t.Helper()
	r := &ran{dir: daemontest.ShortDir(t), home: t.TempDir()}
	if e.before != nil {
		e.before(t, r)
	}
	if e.daemon {
		r.daemon(t, program, e, opt)
		return r
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fill := strings.NewReplacer("DIR", r.dir, "MASTER", f.master.Dir, "FAKE", f.fake.Dir)
	conf := f.master.Dir
	if program == "salt-call" {
		conf = f.alpha.Dir
	}
	env := &frame.Env{
		Stdin: strings.NewReader(fill.Replace(e.stdin)), Stdout: watched{&r.stdout, e.cut, cancel, e.tty}, Stderr: watched{&r.stderr, e.cut, cancel, e.tty},
		Getenv:     func(name string) string { return map[string]string{"SALT_CONFIG_DIR": conf, "HOME": r.home}[name] },
		IsTerminal: func(any) bool { return e.tty },
	}
	r.code = cli.Main(ctx, env, cli.Applets(), append([]string{"brine", program}, e.args(fill, opt)...))
	return r
}

// args returns the arguments of the line, with opt in place of @.
func (e *effect) args(fill *strings.Replacer, opt []string) []string {
	var args []string
	for _, w := range words(e.line) {
		if w != "@" {
			args = append(args, fill.Replace(w))
			continue
		}
		for _, o := range opt {
			args = append(args, fill.Replace(o))
		}
	}
	return args
}

// daemon runs a daemon until it has started or ended, and stops it.
func (r *ran) daemon(t *testing.T, program string, e *effect, opt []string) {
	t.Helper()
	c := daemontest.Brine.Command(t.Context(), t, program, e.args(strings.NewReplacer("DIR", r.dir), opt)...)
	c.Stdout, c.Stderr = &r.stdout, &r.stderr
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	where := "no file"
	done := make(chan struct{})
	go func() { c.Wait(); close(done) }()
	eventually.Nil(t, 2*time.Minute, program+" is up", func() error {
		select {
		case <-done:
			return nil
		default:
		}
		for _, path := range []string{"var/run/" + program + ".pid", "my.pid"} {
			if b, _ := os.ReadFile(filepath.Join(r.dir, path)); string(b) == strconv.Itoa(c.Process.Pid) {
				where = path
				return nil
			}
		}
		return errors.New("no process id")
	})
	c.Process.Signal(syscall.SIGTERM)
	<-done
	r.code = c.ProcessState.ExitCode()
	fmt.Fprintf(&r.stdout, "its process id is in %s", where)
}

// wrong returns which expectation of the effect does not hold.
func (e *effect) wrong(r *ran) string {
	var faults []string
	if r.code != e.code {
		faults = append(faults, fmt.Sprintf("code %d, want %d", r.code, e.code))
	}
	for _, c := range []struct{ what, want, got string }{{"stdout", e.out, r.stdout.String()}, {"stderr", e.err, r.stderr.String()}} {
		if !regexp.MustCompile(`(?s)` + c.want).MatchString(strings.ReplaceAll(c.got, r.dir, "DIR")) {
			faults = append(faults, fmt.Sprintf("%s %q, want %q", c.what, c.got, c.want))
		}
	}
	if e.not != "" && regexp.MustCompile(`(?s)`+e.not).MatchString(r.stdout.String()) {
		faults = append(faults, fmt.Sprintf("stdout %q, which has %q", &r.stdout, e.not))
	}
	if _, err := os.Stat(filepath.Join(r.dir, e.nofile)); e.nofile != "" && err == nil {
		faults = append(faults, "there is a file "+e.nofile)
	}
	if e.file != "" {
		b, err := os.ReadFile(filepath.Join(r.dir, e.file))
		if err != nil || !regexp.MustCompile(`(?s)`+e.holds).Match(b) {
			faults = append(faults, fmt.Sprintf("the file %s holds %q, %v, want %q", e.file, b, err, e.holds))
		}
	}
	return strings.Join(faults, "; ")
}

// spelled returns all ways to write an option with its value.
func spelled(o *frame.Option, value string) [][]string {
	var out [][]string
	if o.Short != "" {
		out = append(out, []string{"-" + o.Short})
		if o.Arg != "" {
			out[0] = append(out[0], value)
		}
	}
	for _, l := range o.Long {
		if o.Arg != "" {
			l += "=" + value
		}
		out = append(out, []string{"--" + l})
	}
	return out
}

func (f *field) prove(t *testing.T, program string, o *frame.Option, e effect) {
	if e.line != "" && !strings.Contains(" "+e.line+" ", " @ ") {
		t.Fatal("the line has no place for the option")
	}
	see := func(opt []string) error {
		if e.check != nil {
			if err := e.check(t, f, opt); err != nil || e.line == "" {
				return err
			}
		}
		r := f.run(t, program, &e, opt)
		if w := e.wrong(r); w != "" {
			return fmt.Errorf("%s %s: %s\nstdout %s\nstderr %s", program, e.line, w, &r.stdout, &r.stderr)
		}
		return nil
	}
	for _, opt := range spelled(o, e.value) {
		if err := see(opt); err != nil {
			t.Errorf("with %v: %v", opt, err)
		}
	}
	if e.always == "" && see(nil) == nil {
		t.Errorf("%s without --%s %s: the same is to be seen", program, o.Long[0], e.line)
	}
}

// TestEveryOption requires a visible effect of every option of every program, so that none is
// ignored.
func TestEveryOption(t *testing.T) {
	f := &field{}
	f.master, f.alpha = fleet(t, daemontest.Brine, daemontest.Brine)
	f.prepare(t)
	effects := allEffects()
	known := map[string]bool{}
	for _, a := range cli.Applets() {
		if a.Hidden {
			continue
		}
		d := a.Describe()
		for _, g := range d.Groups {
			for _, o := range g.Options {
				name := a.Name + " --" + o.Long[0]
				known[name] = true
				e, ok := effects[name]
				if !ok {
					t.Errorf("no effect of %s is shown", name)
					continue
				}
				if e.elsewhere != "" {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f.prove(t, a.Name, &o, e)
				})
			}
		}
	}
	for name := range effects {
		if !known[name] {
			t.Errorf("an effect of %s, which there is not", name)
		}
	}
}

// TestStockOptions: each option that Salt's programs declare is an option of ours, or is refused
// with a specific message.
func TestStockOptions(t *testing.T) {
	daemontest.StockTree(t)
	for _, a := range cli.Applets() {
		if !strings.HasPrefix(a.Name, "salt") {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			t.Parallel()
			help, err := daemontest.Stock.Command(t.Context(), t, a.Name, "--help").Output()
			if err != nil {
				t.Fatal(err)
			}
			var ours []string
			d := a.Describe()
			for _, g := range d.Groups {
				for _, o := range g.Options {
					ours = append(ours, "-"+o.Short)
					for _, l := range o.Long {
						ours = append(ours, "--"+l)
					}
				}
			}
			n := 0
			for _, m := range regexp.MustCompile(`(?m)^ {1,6}(-.*)`).FindAllSubmatch(help, -1) {
				list, _, _ := strings.Cut(string(m[1]), "  ")
				for _, o := range regexp.MustCompile(`--?[a-zA-Z][\w-]*`).FindAllString(list, -1) {
					n++
					if !slices.Contains(ours, o) {
						t.Errorf("Salt's %s has %s", a.Name, o)
					}
				}
			}
			if n < 10 {
				t.Errorf("only %d options found in %s", n, help)
			}
		})
	}
}
