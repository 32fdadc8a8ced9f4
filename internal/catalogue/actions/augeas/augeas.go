// Package augeas implements the execution module and the state augeas: it reads
// and changes configuration files by augtool(1), where Salt uses the library of
// that program.
package augeas

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// Tool runs augtool.
type Tool struct{ M *host.Machine }

// Usable reports whether the machine has augtool, or else why it is needed.
func (t Tool) Usable(fn.Reader) (string, bool) {
	return "Cannot load augeas_cfg module: augtool is not installed", t.M.Which("augtool") != ""
}

// session is a run of augtool: its commands, and its options.
type session struct {
	commands []string
	options  []string
}

// add adds a command with arguments.
func (s *session) add(command string, args ...string) {
	for _, a := range args {
		command += " " + quote(a)
	}
	s.commands = append(s.commands, command)
}

// quote returns an argument as augtool reads it.
func quote(arg string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`).Replace(arg) + `"`
}

// run runs augtool. It continues after a command that fails, and failed has its
// messages then.
func (t Tool) run(ctx context.Context, s session) (lines []string, failed string, err error) {
	out, err := t.M.Command(ctx, host.Cmd{Program: "augtool", Args: s.options, Stdin: strings.Join(s.commands, "\n") + "\n"})
	if err != nil {
		return nil, "", fn.Errorf("cannot run augtool: %w", err)
	}
	if out.Exit != 0 {
		failed = strings.TrimPrefix(out.Message(), "error: Failed to execute command\n")
	}
	return strings.Split(out.Stdout, "\n"), failed, nil
}

// include returns the options of augtool for additional directories of lenses:
// paths that do not exist are ignored, as in Salt.
func include(loadPath string) (options []string) {
	for dir := range strings.SplitSeq(loadPath, ":") {
		if st, err := os.Stat(dir); filepath.IsAbs(dir) && err == nil && st.IsDir() {
			options = append(options, "-I", dir)
		}
	}
	return options
}

// Commands has the commands that files are changed by: their numbers of
// arguments, and Salt's name of each.
var Commands = map[string]struct {
	Name string
	Args []int
}{
	"set": {"set", []int{1, 2}}, "setm": {"setm", []int{2, 3}}, "mv": {"move", []int{2}}, "move": {"move", []int{2}}, "ins": {"insert", []int{3}},
	"insert": {"insert", []int{3}}, "rm": {"remove", []int{1}}, "remove": {"remove", []int{1}},
}

// ExecuteArgs are the arguments of Execute.
type ExecuteArgs struct {
	Context  string `salt:"context" doc:"path that paths of the commands are below, as /files/etc/hosts" default:"null"`
	Lens     string `salt:"lens" doc:"lens for the file of the context, as Hosts.lns; null: all lenses for their files" default:"null"`
	Commands any    `salt:"commands" doc:"list of commands: set, setm, mv, ins and rm" default:"[]"`
	LoadPath string `salt:"load_path" doc:"directories with more lenses, separated by colons" default:"null"`
}

// path returns a path below the context.
func (a ExecuteArgs) path(path string) string {
	rest := strings.TrimLeft(path, "/")
	switch {
	case a.Context == "", rest != "" && strings.HasPrefix(path, a.Context):
		return path
	case rest == "":
		return a.Context
	case strings.HasSuffix(a.Context, "/"):
		return a.Context + rest
	}
	return a.Context + "/" + rest
}

var files = regexp.MustCompile("^/files")

// Execute implements augeas.execute.
func (t Tool) Execute(ctx context.Context, c *fn.Call, a ExecuteArgs) (*value.Dict, error) {
	ret := value.DictOf("retval", false)
	s := session{options: include(a.LoadPath)}
	if a.Lens != "" && a.Context != "" {
		s.options = append(s.options, "-A", "-L")
		s.add("transform", a.Lens, "incl", files.ReplaceAllString(a.Context, ""))
		s.add("load")
	}
	arg := ""
	for _, command := range value.Texts(a.Commands) {
		name, rest, ok := strings.Cut(command, " ")
		if ok {
			arg = rest
		} else if arg == "" {
			arg = command
		}
		of, known := Commands[name]
		if ok && !known {
			ret.Set("error", "Command "+name+" is not supported (yet)")
			return ret, nil
		}
		words, err := proc.Split(rest)
		if !ok || err != nil || !slices.Contains(of.Args, len(words)) || of.Name == "insert" && words[1] != "before" && words[1] != "after" {
			ret.Set("error", "Invalid formatted command, see debug log for details: "+arg)
			return ret, nil
		}
		a.add(&s, of.Name, words)
	}
	if len(s.commands) > 1 {
		// nothing is written if one of several commands fails
		if _, failed, err := t.run(ctx, s); err != nil || failed != "" {
			return nil, orError(err, failed)
		}
	}
	failed, err := t.save(ctx, c, s)
	if err != nil {
		return nil, err
	}
	if failed != "" {
		if a.Lens != "" && !strings.HasSuffix(a.Lens, ".lns") {
			failed += "\nLenses are normally configured as \"name.lns\". Did you mean \"" + a.Lens + ".lns\"?"
		}
		ret.Set("error", failed)
		return ret, nil
	}
	ret.Set("retval", true)
	return ret, nil
}

// add adds a command of Salt's.
func (a ExecuteArgs) add(s *session, name string, words []string) {
	switch {
	case name == "set" && len(words) == 1:
		s.add("clear", a.path(words[0]))
	case name == "setm" && len(words) == 2:
		s.add("clearm", a.path(words[0]), words[1])
	case name == "insert":
		s.add("ins", words[0], words[1], a.path(words[2]))
	default:
		words[0] = a.path(words[0])
		s.add(map[string]string{"set": "set", "setm": "setm", "move": "mv", "remove": "rm"}[name], words...)
	}
}

func orError(err error, failed string) error {
	if err == nil && failed != "" {
		err = fn.Errorf("%s", failed)
	}
	return err
}

// notSaved is the message of the library that Salt uses.
const notSaved = "Unable to save to file!"

// save runs the commands and saves the files. failed is what went wrong; the
// log has the details.
func (t Tool) save(ctx context.Context, c *fn.Call, s session) (failed string, err error) {
	s.add("save")
	s.add("errors")
	lines, failed, err := t.run(ctx, s)
	if err != nil || failed == "" {
		return "", err
	}
	if !strings.Contains(failed, "saving failed") {
		return "", fn.Errorf("%s", failed)
	}
	for _, line := range lines {
		// what follows may be a password in the file
		if strings.HasPrefix(line, "Error in ") {
			c.Log.WarnContext(ctx, "augtool cannot save a file", "err", line)
		}
	}
	return notSaved, nil
}

// GetArgs are the arguments of Get and Match.
type GetArgs struct {
	Path     string `salt:"path" doc:"path expression"`
	Value    string `salt:"value" doc:"label below the path, or wanted value" default:""`
	LoadPath string `salt:"load_path" doc:"directories with more lenses, separated by colons" default:"null"`
}

// node is a node of the tree, whose value may be nil.
type node struct {
	path  string
	value any
}

// match returns the nodes that path expressions find.
func (t Tool) match(ctx context.Context, loadPath string, paths ...string) (found []node, failed string, err error) {
	s := session{options: include(loadPath)}
	for _, p := range paths {
		s.add("match", p)
	}
	lines, failed, err := t.run(ctx, s)
	for _, line := range lines {
		path, v, ok := strings.Cut(line, " = ")
		switch {
		case strings.HasPrefix(line, "/") && ok && v == "(none)":
			found = append(found, node{path, nil})
		case strings.HasPrefix(line, "/") && ok:
			found = append(found, node{path, v})
		case len(found) > 0 && line != "" && strings.TrimSpace(line) != "(no matches)": // a value of several lines
			if text, ok := found[len(found)-1].value.(string); ok {
				found[len(found)-1].value = text + "\n" + line
			}
		}
	}
	return found, failed, err
}

// Get implements augeas.get.
func (t Tool) Get(ctx context.Context, _ *fn.Call, a GetArgs) (*value.Dict, error) {
	path := strings.TrimRight(a.Path, "/")
	if a.Value != "" {
		path += "/" + strings.Trim(a.Value, "/")
	}
	found, failed, err := t.match(ctx, a.LoadPath, path)
	switch {
	case err != nil:
		return nil, err
	case failed != "":
		return value.DictOf("error", failed), nil
	case len(found) == 0:
		return value.DictOf(path, ""), nil
	case len(found) > 1:
		return nil, fn.Errorf("path specified had too many matches!")
	}
	return value.DictOf(path, found[0].value), nil
}

// Match implements augeas.match.
func (t Tool) Match(ctx context.Context, _ *fn.Call, a GetArgs) (*value.Dict, error) {
	found, _, err := t.match(ctx, a.LoadPath, a.Path)
	ret := value.NewDict(len(found))
	for _, n := range found {
		if a.Value == "" || n.value == any(a.Value) {
			ret.Set(n.path, n.value)
		}
	}
	return ret, err
}

// SetArgs are the arguments of Set.
type SetArgs struct {
	Args fn.Args `salt:"args" doc:"paths and values in turn; also prefix=PATH and load_path=DIRECTORIES"`
}

// Set implements augeas.setvalue.
func (t Tool) Set(ctx context.Context, c *fn.Call, a SetArgs) (*value.Dict, error) {
	options := map[string]*string{"prefix": nil, "load_path": nil}
	var words []string
	for _, arg := range a.Args {
		word := value.Str(arg)
		name, v, _ := strings.Cut(word, "=")
		old, special := options[name]
		switch {
		case special && strings.Contains(word, "=") && old != nil:
			return nil, fn.Invalidf("Only one '%s=' value is permitted", name)
		case special && strings.Contains(word, "="):
			options[name] = &v
		default:
			words = append(words, word)
		}
	}
	if len(words)%2 != 0 {
		return nil, fn.Invalidf("Uneven number of path/value arguments")
	}
	s := session{}
	if p := options["load_path"]; p != nil {
		s.options = include(*p)
	}
	for pair := range slices.Chunk(words, 2) {
		path := pair[0]
		if p := options["prefix"]; p != nil && *p != "" {
			path = strings.TrimRight(*p, "/") + "/" + strings.TrimLeft(path, "/")
		}
		s.add("set", path, pair[1])
	}
	failed, err := t.save(ctx, c, s)
	if err != nil {
		return value.DictOf("retval", true, "error", "Multiple values: "+err.Error()), nil
	}
	if failed != "" {
		return value.DictOf("retval", false, "error", failed), nil
	}
	return value.DictOf("retval", true), nil
}

// PathArgs are the arguments of Remove, List and Tree.
type PathArgs struct {
	Path     string `salt:"path" doc:"path expression"`
	LoadPath string `salt:"load_path" doc:"directories with more lenses, separated by colons" default:"null"`
}

// Remove implements augeas.remove.
func (t Tool) Remove(ctx context.Context, _ *fn.Call, a PathArgs) (*value.Dict, error) {
	s := session{options: include(a.LoadPath)}
	s.add("rm", a.Path)
	s.add("save")
	s.add("errors")
	lines, failed, err := t.run(ctx, s)
	if err != nil {
		return nil, err
	}
	ret, count := value.DictOf("retval", false), int64(-1)
	if n, ok := strings.CutPrefix(lines[0], "rm : "+a.Path+" "); ok {
		count, _ = strconv.ParseInt(n, 10, 64)
	}
	switch {
	case count < 0:
		ret.Set("error", "Invalid node")
	case failed != "":
		ret.Set("error", notSaved)
	default:
		ret.Set("retval", true)
	}
	ret.Set("count", count)
	return ret, nil
}

// List implements augeas.ls.
func (t Tool) List(ctx context.Context, _ *fn.Call, a PathArgs) (*value.Dict, error) {
	path := strings.TrimRight(a.Path, "/") + "/"
	found, _, err := t.match(ctx, a.LoadPath, path+"*")
	ret := value.NewDict(len(found))
	if err != nil || len(found) == 0 {
		return ret, err
	}
	var below []string
	for _, n := range found {
		below = append(below, n.path+"/*")
	}
	children, _, err := t.match(ctx, a.LoadPath, below...)
	for _, n := range found {
		name := strings.TrimPrefix(n.path, path)
		if slices.ContainsFunc(children, func(c node) bool { return strings.HasPrefix(c.path, n.path+"/") }) {
			name += "/"
		}
		ret.Set(name, n.value)
	}
	return ret, err
}

// Tree implements augeas.tree.
func (t Tool) Tree(ctx context.Context, _ *fn.Call, a PathArgs) (*value.Dict, error) {
	s := session{options: include(a.LoadPath)}
	path := strings.TrimRight(a.Path, "/*")
	s.add("print", path)
	lines, _, err := t.run(ctx, s)
	ret := value.DictOf(path, nil)
	for _, line := range lines {
		path, text, ok := strings.Cut(line, " = ")
		if !strings.HasPrefix(path, "/") {
			continue
		}
		var v any
		if ok {
			if v, err = strconv.Unquote(text); err != nil {
				v = strings.Trim(text, `"`)
			}
		}
		ret.Set(path, v)
	}
	return ret, err
}
