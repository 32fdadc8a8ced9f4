package files

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/augeas"
	"brine/internal/host"
	"brine/internal/host/proc"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	tool := augeas.Tool{M: &host.Machine{}}
	when := func(g fn.Reader) (string, bool) {
		_, ok := tool.Usable(g)
		return "augeas module could not be loaded", ok
	}
	units.Declare("augeas", func() state.Module {
		return state.Module{Name: "augeas", When: when, Doc: `Keep values in configuration files.`, Funcs: []state.Func{
			state.Of("change", func(_ context.Context, e *state.Env, a augeasArgs) (state.Plan, error) { return a.plan(tool, e) },
				`Change a file by commands of augeas.`),
		}}
	})
}

type augeasArgs struct {
	Name     string    `salt:"name" doc:"what the changes are called in the SLS"`
	Context  string    `salt:"context" doc:"path that paths of the changes are below, as /files/etc/hosts" default:"null"`
	Changes  any       `salt:"changes" doc:"list of commands: set, setm, mv, ins and rm" default:"null"`
	Lens     string    `salt:"lens" doc:"lens for the file of the context, as Hosts.lns; null: all lenses for their files" default:"null"`
	LoadPath any       `salt:"load_path" doc:"list of directories with more lenses" default:"null"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// ofFiles matches what a path in the tree has besides the path of the file.
var ofFiles = regexp.MustCompile("^/files|/$")

func (a augeasArgs) plan(tool augeas.Tool, e *state.Env) (state.Plan, error) {
	changes, ok := a.Changes.(*value.List)
	if !ok || changes.Len() == 0 {
		return state.Plan{}, state.Errorf("'changes' must be specified as a list")
	}
	dirs, ok := a.LoadPath.(*value.List)
	if !ok && a.LoadPath != nil {
		return state.Plan{}, state.Errorf("'load_path' must be specified as a list")
	}
	would := "Executing commands"
	file := ofFiles.ReplaceAllString(a.Context, "")
	if a.Context == "" {
		var err error
		if file, err = changedFile(value.Texts(changes)); err != nil {
			return state.Plan{}, state.Errorf("Error: %w", err)
		}
	} else {
		would += ` in file "` + a.Context + "\":\n"
	}
	would += strings.Join(value.Texts(changes), "\n")
	run := augeas.ExecuteArgs{Context: a.Context, Lens: a.Lens, Commands: changes}
	if dirs != nil {
		run.LoadPath = strings.Join(value.Texts(dirs), ":")
	}
	// As in Salt, a test predicts no change: only augtool knows what the commands do.
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		if test {
			return state.Result{Verdict: state.Succeeded, Comment: would}
		}
		old := linesOf(file)
		done, err := tool.Execute(ctx, e.Call, run)
		switch {
		case err != nil:
			return state.Result{Verdict: state.Failed, Comment: "Error: " + err.Error()}
		case !done.Bool("retval"):
			return state.Result{Verdict: state.Failed, Comment: "Error: " + done.Str("error")}
		case !isFile(file):
			return state.Result{Verdict: state.Succeeded, Comment: "Changes have been saved", Changes: value.DictOf("updates", changes)}
		}
		diff := strings.Join(textedit.DiffAround(old, linesOf(file), "", "", 0), "")
		if diff == "" {
			return state.Result{Verdict: state.Succeeded, Comment: "No changes made"}
		}
		return state.Result{Verdict: state.Succeeded, Comment: "Changes have been saved", Changes: value.DictOf("diff", diff)}
	}}, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return path != "" && err == nil && st.Mode().IsRegular()
}

// linesOf returns the lines of a file with their ends, none if it cannot be
// read.
func linesOf(path string) []string {
	if !isFile(path) {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return value.SplitLines(string(b), true)
}

// changedFile returns the file that all commands change: "" if it does not
// exist.
func changedFile(commands []string) (string, error) {
	file := ""
	for _, c := range commands {
		name, rest, ok := strings.Cut(c, " ")
		of, known := augeas.Commands[name]
		words, err := proc.Split(rest)
		switch {
		case ok && !known:
			return "", fn.Errorf("Command %s is not supported (yet)", name)
		case !ok || err != nil || len(words) == 0 || of.Name == "insert" && len(words) != 3:
			return "", fn.Errorf("Invalid formatted command, see debug log for details: %s", c)
		}
		path := words[0]
		if of.Name == "insert" {
			path = words[2]
		}
		if !strings.HasPrefix(path, "/files") {
			return "", fn.Errorf("Changes should be prefixed with /files if no context is provided, change: %s", c)
		}
		path = ofFiles.ReplaceAllString(path, "")
		for path != "/" && path != "." && !isFile(path) {
			path = filepath.Dir(path)
		}
		if file != "" && file != path {
			return "", fn.Errorf("Changes should be made to one file at a time, detected changes to %s and %s", file, path)
		}
		file = path
	}
	if !isFile(file) {
		return "", nil
	}
	return file, nil
}
