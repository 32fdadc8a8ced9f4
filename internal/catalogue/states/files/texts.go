package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{
			state.Of("append", f.append, `Append texts to a file that does not have them.`),
			state.Of("prepend", f.prepend, `Put texts that a file does not have before what it has.`),
		}
	})
}

// textsArgs are the arguments of states that read texts from files.
type textsArgs struct {
	Source       any         `salt:"source" doc:"file that holds the text" default:"null"`
	SourceHash   any         `salt:"source_hash" doc:"its hash, for http, https and ftp" default:"null"`
	Template     string      `salt:"template" doc:"template engine that makes the text" default:"jinja"`
	Sources      *value.List `salt:"sources" doc:"files that hold texts" default:"null"`
	SourceHashes *value.List `salt:"source_hashes" doc:"their hashes" default:"null"`
	Defaults     *value.Dict `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
	Context      *value.Dict `salt:"context" doc:"variables of the template" default:"null"`
}

// texts returns the texts of the named files.
func (f file) texts(ctx context.Context, e *state.Env, name string, a textsArgs) ([]string, error) {
	if given(a.Source) && a.Sources.Len() > 0 {
		return nil, fn.Errorf("source and sources are mutually exclusive")
	}
	if given(a.SourceHash) && a.SourceHashes.Len() > 0 {
		return nil, fn.Errorf("source_hash and source_hashes are mutually exclusive")
	}
	list := []sources.Source{}
	if given(a.Source) {
		hash := ""
		if given(a.SourceHash) {
			hash = value.Str(a.SourceHash)
		}
		list = append(list, sources.Source{URL: value.Str(a.Source), Hash: hash, Env: e.Saltenv})
	}
	if a.Sources != nil {
		for i, s := range a.Sources.Items {
			hash := ""
			if a.SourceHashes.Len() > i {
				hash = value.Str(a.SourceHashes.Items[i])
			}
			list = append(list, sources.Source{URL: value.Str(s), Hash: hash, Env: e.Saltenv})
		}
	}
	var out []string
	for _, s := range list {
		text, err := f.text(ctx, e, name, s, a)
		if err != nil {
			return nil, err
		}
		out = append(out, text)
	}
	return out, nil
}

func (f file) text(ctx context.Context, e *state.Env, name string, s sources.Source, a textsArgs) (string, error) {
	c, err := sources.Fetch(ctx, e.Files, s, sources.How{Name: name, SkipVerify: true}, "")
	var absent *sources.AbsentError
	switch {
	case errors.As(err, &absent):
		return "", fn.Errorf("Failed to load template file %s", s.URL)
	case err != nil:
		return "", err
	}
	b, err := os.ReadFile(c.Path)
	if err != nil || a.Template == "" {
		return string(b), err
	}
	vars := value.NewDict(4)
	for _, d := range []*value.Dict{a.Defaults, a.Context} {
		if d != nil {
			vars.Update(d)
		}
	}
	if e.Template == nil {
		return "", fn.Errorf("Specified template format %s is not supported", a.Template)
	}
	return e.Template(ctx, state.Template{Engine: a.Template, Source: string(b), Name: s.URL, Saltenv: s.Env, Context: vars})
}

type appendArgs struct {
	Name     string `salt:"name" doc:"path of the file"`
	Text     any    `salt:"text" doc:"text, or list of texts" default:"null"`
	Makedirs bool   `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	textsArgs
	IgnoreWhitespace bool `salt:"ignore_whitespace" doc:"take texts that differ in white space for the same" default:"true"`
}

type prependArgs struct {
	Name     string `salt:"name" doc:"path of the file"`
	Text     any    `salt:"text" doc:"text, or list of texts" default:"null"`
	Makedirs bool   `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	textsArgs
	Header bool `salt:"header" doc:"the texts must be the first lines, not only somewhere" default:"null"`
}

// chunks returns the texts that the arguments give.
func (f file) chunks(ctx context.Context, e *state.Env, name string, text any, a textsArgs) ([]string, error) {
	if given(a.Source) || a.Sources.Len() > 0 {
		return f.texts(ctx, e, name, a)
	}
	switch t := text.(type) {
	case nil:
		return []string{"None"}, nil // as in Salt: without a source, text is required
	case *value.List:
		var out []string
		for _, it := range t.Items {
			out = append(out, value.Str(it))
		}
		return out, nil
	}
	return []string{value.Str(text)}, nil
}

// texted is a file and the texts that it must contain.
type texted struct {
	name   string
	old    string // present content
	fresh  bool   // the file does not exist
	chunks []string
}

// texted reads the file and texts of append or prepend; function names it in
// errors.
func (f file) texted(ctx context.Context, e *state.Env, function, name string, text any, a textsArgs) (texted, error) {
	t := texted{name: filesys.ExpandUser(name)}
	if t.name == "" {
		return texted{}, fn.Errorf("Must provide name to %s", function)
	}
	var err error
	if t.old, t.fresh, err = opened(t.name); err != nil {
		return texted{}, err
	}
	t.chunks, err = f.chunks(ctx, e, t.name, text, a)
	return t, err
}

// lines returns the lines of all texts.
func (t texted) lines() []string {
	var out []string
	for _, c := range t.chunks {
		out = append(out, value.SplitLines(c, false)...)
	}
	return out
}

// missing returns the lines of the texts that the file lacks.
func (t texted) missing(ignoreSpace bool) ([]string, error) {
	var out []string
	for _, c := range t.chunks {
		there, err := has(t.old, c, ignoreSpace)
		if err != nil {
			return nil, err
		}
		if !there {
			out = append(out, value.SplitLines(c, false)...)
		}
	}
	return out, nil
}

// opened reads the file. A missing file counts as empty.
func opened(name string) (text string, fresh bool, err error) {
	switch {
	case !filepath.IsAbs(name):
		return "", false, fn.Errorf("Specified file %s is not an absolute path", name)
	case filesys.Exists(name, true):
		text, err = load(name)
		return text, false, err
	}
	return "", true, nil
}

// spaced returns a regular expression that finds a text as whole lines, with any
// white space.
func spaced(text string) string {
	var lns []string
	for _, line := range value.SplitLines(text, false) {
		var words []string
		for _, w := range shellWords(line) {
			words = append(words, pyre.Escape(w))
		}
		if len(words) > 0 {
			lns = append(lns, strings.Join(words, `\s*`))
		}
	}
	return `(?m)^\s*` + strings.Join(lns, `\s*`) + `\s*$`
}

// shellWords splits a line at white space. If the line has both kinds of quotes,
// a part that begins with a double quote ends with the next one and may contain
// white space, like in Salt's use of shlex.
func shellWords(line string) []string {
	quoting := strings.Contains(line, "'") && strings.Contains(line, `"`) && !strings.Contains(line, `'\"`)
	var words []string
	for {
		line = strings.TrimLeft(line, " \t\r\n")
		if line == "" {
			return words
		}
		end := strings.IndexAny(line, " \t\r\n")
		if quoting && line[0] == '"' {
			if i := strings.IndexByte(line[1:], '"'); i >= 0 {
				end = i + 2
			}
		}
		if end < 0 {
			end = len(line)
		}
		words = append(words, line[:end])
		line = line[end:]
	}
}

// has reports whether a file contains a text.
func has(text, chunk string, ignoreSpace bool) (bool, error) {
	if ignoreSpace {
		chunk = spaced(chunk)
	}
	return found(text, chunk)
}

func (f file) append(ctx context.Context, e *state.Env, a appendArgs) (state.Plan, error) {
	t, err := f.texted(ctx, e, "file.append", a.Name, a.Text, a.textsArgs)
	if err != nil {
		return state.Plan{}, err
	}
	more, err := t.missing(a.IgnoreWhitespace)
	if err != nil {
		return state.Plan{}, err
	}
	changed := t.old
	if changed != "" && !strings.HasSuffix(changed, "\n") && len(more) > 0 {
		changed += "\n"
	}
	for _, l := range more {
		changed += l + "\n"
	}
	diff := ""
	if t.old != changed {
		diff = joinedDiff(t.old, changed)
	}
	return f.texting(editing{name: t.name, old: t.old, new: changed}, t.fresh, a.Makedirs, diff, fmt.Sprintf("Appended %d lines", len(more))), nil
}

// joinedDiff returns the diff of lines without their line ends, with a line end
// after each, as Salt shows appended lines.
func joinedDiff(old, new string) string {
	return strings.Join(textedit.DiffItems(value.SplitLines(old, false), value.SplitLines(new, false), "", ""), "\n")
}

func (f file) prepend(ctx context.Context, e *state.Env, a prependArgs) (state.Plan, error) {
	t, err := f.texted(ctx, e, "file.prepend", a.Name, a.Text, a.textsArgs)
	if err != nil {
		return state.Plan{}, err
	}
	var more []string
	if a.Header {
		if more = t.lines(); startsWith(value.SplitLines(t.old, false), more) {
			more = nil
		}
	} else if more, err = t.missing(true); err != nil {
		return state.Plan{}, err
	}
	changed := t.old
	if len(more) > 0 {
		changed = strings.Join(more, "\n") + "\n" + t.old
	}
	diff := ""
	if t.old != changed {
		diff = textedit.Diff(t.old, changed, "", "")
	}
	return f.texting(editing{name: t.name, old: t.old, new: changed}, t.fresh, a.Makedirs, diff, fmt.Sprintf("Prepended %d lines", len(more))), nil
}

func startsWith(all, first []string) bool {
	if len(all) < len(first) {
		return false
	}
	for i := range first {
		if all[i] != first[i] {
			return false
		}
	}
	return true
}

// texting returns the plan of append and prepend.
func (f file) texting(w editing, fresh, makedirs bool, diff, done string) state.Plan {
	changes := value.NewDict(1)
	if diff != "" {
		if !filesys.IsText([]byte(w.new[:min(len(w.new), 512)])) {
			diff = "Replace binary file"
		}
		changes.Set("diff", diff)
	}
	right := "File " + w.name + " is in correct state"
	if w.old == w.new && !fresh {
		return state.Plan{Comment: right}
	}
	step := state.Step{
		Change: state.Change{Diff: changes, Comment: "File " + w.name + " is set to be updated"},
		Do: func(context.Context) (state.Change, error) {
			if fresh {
				if !makedirs && !filesys.IsDir(filepath.Dir(w.name)) {
					return state.Change{}, fn.Errorf("%s: file not found", w.name)
				}
				if err := parent(w.name, makedirs, -1, -1, -1); err != nil {
					return state.Change{}, err
				}
			}
			if err := w.write(); err != nil {
				return state.Change{}, err
			}
			if w.old == w.new {
				return state.Change{Comment: right}, nil
			}
			return state.Change{Diff: changes, Comment: done}, nil
		},
	}
	if fresh {
		step.Change = state.Change{Diff: value.DictOf("new", w.name), Comment: "File " + w.name + " is set to be created"}
	}
	return state.Plan{Steps: []state.Step{step}}
}
