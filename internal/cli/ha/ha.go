// Package ha is the program `brine ha`: it compares masters that should be
// alike (doctor, with report for those on other machines), and puts a fleet's
// high availability to the test (drill).
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
	Doc: "doctor compares masters that should be alike and says how to make them so. MASTER is the folder of a master's configuration, or a file that " +
		"`brine ha report` wrote on another machine (- for standard input); without any, the masters of the minion that is configured here are asked as that minion. " +
		"It ends with 1 if they differ, with 2 if not all could be looked at. " +
		"Where the only MASTER is one of a cluster and runs, or one is configured here and no minion is, it looks at that whole cluster in place of that, and ends with 1 if something is wrong. " +
		"report writes what there is to compare of the master that is configured here. " +
		"drill has a master of a temporary fleet on this machine fail, or one named with --master-dir and --pid, and reports how long that took to be noticed and what was lost.",
}

// Applet is the entry in the table of programs.
func Applet() frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "compare masters, and test what happens when one fails", Run: run}
}

type options struct {
	frame.Config
	Out     string `flag:"--out --output" arg:"FORMAT" default:"text" doc:"text, or json for programs. Default: %default."`
	Cluster bool   `flag:"--cluster" doc:"With doctor: look at the cluster of the master that is configured here, also where a minion is. With drill: make a temporary cluster of three masters without a shared folder in place of two masters."`
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
		return command.Fail(env, "say what to do: doctor, report or drill")
	}
	return command.Fail(env, "there is no "+what+"; there are doctor, report and drill")
}

// report writes the facts of the master that is configured here.
func report(ctx context.Context, env *frame.Env, o *options, args []string) int {
	path := config.Path(config.MasterKind, o.Resolve(env), env.Getenv)
	if len(args) > 1 {
		return command.Fail(env, "report takes one folder at most")
	}
	if len(args) == 1 {
		path = args[0]
	}
	f, err := ofFolder(ctx, path, o.ConfigDir)
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

// findings are what the doctor has to say.
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
		return command.Fail(env, "there must be two masters at least to compare")
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

// unique names masters of one id by where they are.
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

// compared are the sections that are known of two masters at least.
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

// collect looks at all masters; what cannot be looked at is said.
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

// maxReport bounds the report of another machine.
const maxReport = 256 << 20

func one(ctx context.Context, env *frame.Env, arg, usual string) (*facts, error) {
	in := env.Stdin
	if arg != "-" {
		st, err := os.Stat(arg)
		switch {
		case err != nil:
			return nil, fmt.Errorf("it is neither a folder nor a file: on that machine run `brine ha report > FILE`, and give me the file: %w", err)
		case st.IsDir() || filepath.Base(arg) == "master":
			return ofFolder(ctx, arg, usual)
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

// readReport reads what report wrote.
func readReport(in io.Reader, from string) (*facts, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxReport))
	if err != nil {
		return nil, err
	}
	f := &facts{}
	if err := json.Unmarshal(b, f); err != nil {
		return nil, fmt.Errorf("it is no report: %w", err)
	}
	if f.Master == "" || len(f.Sections) == 0 {
		return nil, errors.New("it is no report of `brine ha report`")
	}
	f.From = from
	return f, nil
}

// maxShown bounds the differences of one section that are shown one by one.
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

// sorted puts the maps in data in the order of their keys.
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
