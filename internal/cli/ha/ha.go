// Package ha is the program `brine ha`. It compares masters that should be equal (doctor, with
// report for masters on other machines), and tests a fleet's high availability (drill).
package ha

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
)

var command = frame.Command{
	Name: "ha", Usage: "doctor|report|drill [options] [MASTER...]",
	Doc: "Compares masters that should be equal, and tests a fleet's high availability.",
	Subs: []frame.Sub{
		{Name: "doctor", Args: "[MASTER...]",
			Doc: "Compares masters that should be equal and says how to fix differences. MASTER is a master's configuration directory, or a " +
				"file that `brine ha report` wrote on another machine (- for standard input); without MASTER, it queries the masters of the minion " +
				"configured here, with that minion's key. The exit code is 1 if they differ, 2 if some could not be read. If the only MASTER is a " +
				"running member of a cluster, or a member and no minion is configured here, it checks that whole cluster instead, and exits with 1 " +
				"if it finds a problem.",
			Example: "ssh m2 brine ha report | brine ha doctor /etc/salt -", Options: []string{"out", "cluster"}},
		{Name: "report", Args: "[DIR]", Doc: "Writes the data of the master configured here for comparison.", Example: "brine ha report > m1.json"},
		{Name: "drill",
			Doc: "Makes a master fail, in a temporary fleet on this machine or, with --harm, in your own, and reports how long the minions took to " +
				"notice and which jobs were lost.", Example: "brine ha drill --minions 4",
			Options: []string{"fault", "minions", "away", "harm", "mend", "target", "cluster", "out"}},
	},
}

// Applet returns the program.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "compare masters, and test what happens when one fails", Run: run}
}

type options struct {
	frame.Config
	Out     string `flag:"--out --output" arg:"FORMAT" default:"text" doc:"Output format: text or json. Default: %default."`
	Cluster bool   `flag:"--cluster" doc:"With doctor: check the cluster of the master configured here, even if a minion is configured, too. With drill: use a temporary cluster of three masters without a shared directory instead of two masters."`
	drillOptions
}

func run(ctx context.Context, env *frame.Env, args []string) int {
	o := &options{}
	inv, code, ok := command.Parse(env, o, args)
	if !ok {
		return code
	}
	if o.Out != "text" && o.Out != "json" {
		return command.Fail(env, "--out takes text or json")
	}
	what := ""
	if len(inv.Args) > 0 {
		what = inv.Args[0]
	}
	if what != "drill" {
		for _, name := range []string{"fault", "minions", "away", "harm", "mend", "target"} {
			if inv.Given(name) {
				return command.Fail(env, "--"+name+" is for drill")
			}
		}
	}
	if what == "report" && o.Cluster {
		return command.Fail(env, "report does not use the option --cluster")
	}
	switch what {
	case "doctor":
		return doctor(ctx, env, o, inv.Args[1:])
	case "report":
		return report(ctx, env, o, inv.Args[1:])
	case "drill":
		return drill(ctx, env, o, inv.Args[1:])
	case "":
		return command.Fail(env, "subcommand missing: doctor, report or drill")
	}
	return command.Fail(env, "unknown subcommand "+what+"; expected doctor, report or drill")
}

// report writes the facts of the master configured here.
func report(ctx context.Context, env *frame.Env, o *options, args []string) int {
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	if len(args) > 1 {
		return command.Fail(env, "report takes at most one directory")
	}
	if len(args) == 1 {
		path = args[0]
	}
	f, err := ofDirectory(ctx, path, o.ConfigDir)
	if err != nil {
		env.Errorf("ha: %v", err)
		return frame.ExitFailure
	}
	return printJSON(env, f)
}

func printJSON(env *frame.Env, v any) int {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		env.Errorf("ha: %v", err)
		return frame.ExitFailure
	}
	fmt.Fprintf(env.Stdout, "%s\n", b)
	return frame.ExitOK
}

// findings are the result of the doctor.
type findings struct {
	Masters     []string            `json:"masters"`
	Differences []difference        `json:"differences"`
	Notes       map[string][]string `json:"notes,omitempty"` // by master: what could not be compared
	Compared    []string            `json:"compared"`        // sections
}

func doctor(ctx context.Context, env *frame.Env, o *options, args []string) int {
	if path := o.ofCluster(env, args); path != "" {
		return clusterDoctor(ctx, env, o, path)
	}
	all, failed := collect(ctx, env, o, args)
	if failed {
		return frame.ExitNoReturn
	}
	if len(all) < 2 {
		return command.Fail(env, "at least two masters are needed for a comparison: run it on a minion that has several; or run `brine ha report >FILE` "+
			"on the other master, and name /etc/salt/master and that file here")
	}
	unique(all)
	fs := findings{Differences: compare(all), Notes: map[string][]string{}}
	for _, f := range all {
		fs.Masters = append(fs.Masters, f.Master)
		if len(f.Notes) > 0 {
			fs.Notes[f.Master] = f.Notes
		}
	}
	fs.Compared = compared(all)
	if o.Out == "json" {
		printJSON(env, fs)
	} else {
		fs.print(env.Stdout)
	}
	switch {
	case len(fs.Differences) > 0:
		return frame.ExitFailure
	case len(fs.Notes) > 0:
		return frame.ExitNoReturn
	}
	return frame.ExitOK
}

// unique makes the names of masters with the same id unique, using their location.
func unique(all []*facts) {
	n := map[string]int{}
	for _, f := range all {
		n[f.Master]++
	}
	for _, f := range all {
		if n[f.Master] > 1 {
			f.Master += " (" + f.From + ")"
		}
	}
}

// compared returns the sections that are known for at least two masters.
func compared(all []*facts) (out []string) {
	n := map[string]int{}
	for _, f := range all {
		for s := range f.Sections {
			n[s]++
		}
	}
	for _, s := range slices.Sorted(maps.Keys(n)) {
		if n[s] > 1 {
			out = append(out, s)
		}
	}
	return out
}

// collect reads all masters and reports those that cannot be read.
func collect(ctx context.Context, env *frame.Env, o *options, args []string) (all []*facts, failed bool) {
	quiet := slog.New(slog.DiscardHandler)
	if len(args) == 0 {
		all, err := ofMinion(ctx, config.Path(config.MinionKind, o.Resolve(env), env.Getenv), quiet)
		if err != nil {
			env.Errorf("ha: %v", err)
		}
		return all, err != nil
	}
	for _, a := range args {
		f, err := one(ctx, env, a, o.Resolve(env))
		if err != nil {
			env.Errorf("ha: %s: %v", a, err)
			failed = true
			continue
		}
		all = append(all, f)
	}
	return all, failed
}

// maxReport bounds the size of a report from another machine.
const maxReport = 256 << 20

func one(ctx context.Context, env *frame.Env, arg, usual string) (*facts, error) {
	in := env.Stdin
	if arg != "-" {
		st, err := os.Stat(arg)
		switch {
		case err != nil:
			return nil,
				fmt.Errorf("neither a directory nor a file; for a master on another machine run `brine ha report > FILE` there and name that file: %w", err)
		case st.IsDir() || filepath.Base(arg) == "master":
			return ofDirectory(ctx, arg, usual)
		}
		file, err := os.Open(arg)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	return readReport(in, arg)
}

// readReport parses the output of report.
func readReport(in io.Reader, from string) (*facts, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return nil, err
	}
	f := &facts{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("not a report: %w", err)
	}
	if f.Master == "" || len(f.Sections) == 0 {
		return nil, errors.New("not a report of `brine ha report`")
	}
	f.From = from
	return f, nil
}

// maxShown bounds the differences shown per section.
const maxShown = 20

func (fs *findings) print(w io.Writer) {
	fmt.Fprintf(w, "Masters: %s\nCompared: %s\n", strings.Join(fs.Masters, ", "), strings.Join(fs.Compared, ", "))
	section, n := "", 0
	for _, d := range fs.Differences {
		if d.Section != section {
			more(w, n)
			fmt.Fprintf(w, "\n%s\n", d.Section)
			section, n = d.Section, 0
		}
		if n++; n > maxShown {
			continue
		}
		fmt.Fprintf(w, "  %s\n", d.Item)
		for _, m := range slices.Sorted(maps.Keys(d.Values)) {
			v := d.Values[m]
			if v == "" {
				v = "(none)"
			}
			fmt.Fprintf(w, "    %s: %.300s\n", m, v)
		}
		fmt.Fprintf(w, "    fix: %s\n", d.Fix)
	}
	more(w, n)
	for _, m := range slices.Sorted(maps.Keys(fs.Notes)) {
		for _, note := range fs.Notes[m] {
			fmt.Fprintf(w, "\nnot compared: %s: %s\n", m, note)
		}
	}
	if len(fs.Differences) == 0 {
		fmt.Fprintln(w, "\nNo differences.")
		return
	}
	fmt.Fprintf(w, "\n%d differences.\n", len(fs.Differences))
}

func more(w io.Writer, n int) {
	if n > maxShown {
		fmt.Fprintf(w, "  … and %d more\n", n-maxShown)
	}
}

// sorted sorts the maps in data by key.
func sorted(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		byText := map[string]any{}
		keys := map[string]any{}
		for k, w := range x.All() {
			byText[value.Repr(k)] = w
			keys[value.Repr(k)] = k
		}
		d := value.NewDict(len(keys))
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			d.Set(keys[k], sorted(byText[k]))
		}
		return d
	case *value.List:
		l := &value.List{Items: make([]any, 0, x.Len())}
		for _, it := range x.Items {
			l.Items = append(l.Items, sorted(it))
		}
		return l
	}
	return v
}
