package migrate

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/output"
	"brine/internal/cli/frame"
	"brine/internal/cli/migrate/compat"
	"brine/internal/daemons/config"
)

var checkCommand = frame.Command{
	Name: "migrate check", Usage: "[options]",
	Doc: "Reads a Salt installation and reports what Brine does not have of what it uses: options, states, functions, arguments, renderers, returners, " +
		"beacons, pillar sources and modules in Python, with file and line, and intended differences that concern it. With --minions it also renders the SLS " +
		"and pillar files for the minions in the master's cache, and with --stock it compares the lowstates with those of stock Salt. It changes nothing, runs " +
		"no state, and calls no function that looks at a machine. The exit code is 1 if something will be missing.",
}

type checkOptions struct {
	Config  string   `flag:"-c --config --config-dir" arg:"DIR" default:"/etc/salt" doc:"Directory of Salt's configuration. Default: %default."`
	Tree    []string `flag:"--tree" arg:"DIR" doc:"Directory of SLS files; may be given more than once. Default: the file_roots of the master."`
	Pillar  []string `flag:"--pillar" arg:"DIR" doc:"Directory of pillar; may be given more than once. Default: the pillar_roots of the master."`
	Minions bool     `flag:"--minions" doc:"Also render the SLS files of the top file for the minions whose grains and pillar the master's cache has."`
	Stock   string   `flag:"--stock" arg:"PYTHON" doc:"With --minions, compare the lowstates with those that this Python's stock Salt compiles; installed: that of the installed stock Salt. Templates can make stock Salt run programs as this user: name it only for trees that you trust. Default: none."`
	Out     string   `flag:"--out --output" arg:"NAME" doc:"Output format: json, yaml and others, as for salt. Default: a text for people."`
}

func runCheck(ctx context.Context, env *frame.Env, args []string) int {
	o := &checkOptions{}
	inv, code, ok := checkCommand.Parse(env, o, args)
	if !ok {
		return code
	}
	if len(inv.Args) > 0 {
		return checkCommand.Fail(env, "unexpected argument "+inv.Args[0])
	}
	dir := o.Config
	if len(o.Tree)+len(o.Pillar) > 0 && !inv.Given("config") {
		dir = "" // check only the given trees
	}
	line := env.Live()
	report, err := compat.Check(ctx, compat.Config{
		ConfigDir: dir, Trees: o.Tree, Pillars: o.Pillar, Minions: o.Minions, Stock: stockPython(o, env), Progress: progress(line), Getenv: env.Getenv,
		Log: slog.New(slog.DiscardHandler),
	})
	line.Clear()
	if err != nil {
		env.Errorf("migrate check: %v", err)
		if salt.KindOf(err) == salt.Invalid {
			return config.ExitCode(err)
		}
		return frame.ExitFailure
	}
	if err := show(env, o, report); err != nil {
		env.Errorf("migrate check: %v", err)
		return frame.ExitFailure
	}
	if report.Missing() {
		return frame.ExitFailure
	}
	return frame.ExitOK
}

// onedir is the Python interpreter in Salt's packages.
const onedir = "/opt/saltstack/salt/bin/python3"

// stockPython returns the Python that runs stock Salt, "" for none. It must be requested
// explicitly, because a hostile template can run programs through stock Salt.
func stockPython(o *checkOptions, env *frame.Env) string {
	switch {
	case !o.Minions || o.Stock == "" || o.Stock == "none":
		return ""
	case o.Stock != "installed":
		return o.Stock
	}
	for dir := range strings.SplitSeq(env.Getenv("PATH"), ":") {
		if python := interpreter(filepath.Join(dir, "salt-call")); python != "" {
			return python
		}
	}
	if st, err := os.Stat(onedir); err == nil && st.Mode().IsRegular() {
		return onedir
	}
	return ""
}

// interpreter returns the Python in the first line of a program, or "".
func interpreter(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	first, err := bufio.NewReaderSize(f, 256).ReadString('\n')
	words := strings.Fields(strings.TrimPrefix(first, "#!"))
	if err != nil || !strings.HasPrefix(first, "#!") || len(words) == 0 || !strings.HasPrefix(filepath.Base(words[0]), "python") {
		return ""
	}
	return words[0]
}

// show prints the report.
func show(env *frame.Env, o *checkOptions, report *compat.Report) error {
	if o.Out == "" {
		_, err := env.Stdout.Write([]byte(report.Text()))
		return err
	}
	display, err := (&frame.Output{Out: o.Out}).Open(env, output.Options{}, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer display.Close()
	return display.Show(report.Data(), o.Out, output.Call{})
}
