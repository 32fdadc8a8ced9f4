// Package frame is the code that all programs of Brine share: their environment (Env), the
// declaration of options (Command), common groups of options, exit codes, usage errors and
// versions.
//
// A program is an Applet. It declares its options once, as the tagged fields of a struct, and
// parses with Command.Parse; the help and the error messages are generated from the same tags:
//
//	type options struct {
//		frame.Config
//		frame.Output `group:"Output Options"`
//
//		Static bool   `flag:"-s --static" doc:"Show all returns at once at the end."`
//		Batch  string `flag:"-b --batch --batch-size" arg:"N or N%" doc:"Run on so many minions at a time."`
//	}
//
//	func Applet() frame.Applet { return frame.Applet{Name: "salt", Summary: "…", Run: run} }
//
//	func run(ctx context.Context, env *frame.Env, args []string) int {
//		o := options{}
//		inv, code, ok := command.Parse(env, &o, args)
//		if !ok {
//			return code
//		}
//		…
//	}
//
// The package reads no daemon configuration and starts nothing.
package frame

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Exit codes, the same as those of Salt's programs.
const (
	ExitOK          = 0
	ExitFailure     = 1   // something failed, here or on a minion
	ExitNoReturn    = 2   // no minion returned, or the program could not start
	ExitIncomplete  = 42  // target or function missing
	ExitUsage       = 64  // the command line is wrong
	ExitNoUser      = 67  // the user to run as does not exist
	ExitUnavailable = 69  // a required file, service or program is missing
	ExitNoPerm      = 77  // the user lacks the permission
	ExitInterrupted = 130 // Ctrl-C, with --strict-exit
	ExitUnknownFunc = 255 // salt-call: unknown function
)

// Applet is one program, started as `salt-key` or `brine key`.
type Applet struct {
	Name    string // as users type it, "salt-key"
	Summary string // one line, without a full stop
	Hidden  bool   // only run by other programs
	// Run does the work and returns the exit code. It returns soon after ctx is cancelled, which is
	// how it learns of signals.
	Run func(ctx context.Context, env *Env, args []string) int
}

// Env is the environment of a program. Tests can replace it.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Getenv returns an environment variable, "" if it is not set.
	Getenv func(string) string
	// IsTerminal reports whether one of the three streams is a terminal.
	IsTerminal func(stream any) bool

	// describe, if set, receives the declarations, and nothing is parsed.
	describe func(Description)
}

// Description is what a program declares. Its help, manual page and shell completion are generated
// from it.
type Description struct {
	Command
	// Groups are all options, first those that every program has.
	Groups []Group
}

// Describe returns what the program declares, without running it.
func (a *Applet) Describe() Description {
	var d Description
	env := &Env{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Getenv: func(string) string { return "" }, IsTerminal: func(any) bool { return false }}
	env.describe = func(x Description) { d = x }
	a.Run(context.Background(), env, nil)
	return d
}

// OSEnv returns the environment of this process.
func OSEnv() *Env {
	return &Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		IsTerminal: func(stream any) bool {
			f, ok := stream.(interface{ Fd() uintptr })
			return ok && term.IsTerminal(int(f.Fd()))
		},
	}
}

// Width returns the number of columns for help.
func (e *Env) Width() int {
	if f, ok := e.Stdout.(interface{ Fd() uintptr }); ok && e.IsTerminal(e.Stdout) {
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w >= 40 {
			return min(w, 100)
		}
	}
	return 80
}

// Errorf writes a line to stderr.
func (e *Env) Errorf(format string, args ...any) {
	fmt.Fprintf(e.Stderr, format+"\n", args...)
}
