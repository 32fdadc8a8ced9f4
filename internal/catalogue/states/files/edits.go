package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{
			state.Of("replace", f.replace, `Replace in a file what a regular expression finds.`),
			state.Of("line", f.line, `Keep one line in a file, or keep it out.`),
			state.Of("blockreplace", f.blockreplace, `Keep the text between two markers in a file.`),
			state.Of("comment", f.comment, `Comment lines of a file out.`),
			state.Of("uncomment", f.uncomment, `Take the comment character off lines of a file.`),
		}
	})
}

// maxEdit bounds the size of a file that is edited, in bytes.
const maxEdit = 256 << 20

// load reads a file to be edited.
func load(name string) (string, error) {
	switch {
	case !filepath.IsAbs(name):
		return "", fn.Errorf("Specified file %s is not an absolute path", name)
	case !filesys.Exists(name, true):
		return "", fn.Errorf("%s: file not found", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return "", fn.Errorf("cannot read %s: %w", name, atomicfile.Cause(err))
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEdit+1))
	switch {
	case err != nil:
		return "", fn.Errorf("cannot read %s: %w", name, atomicfile.Cause(err))
	case len(b) > maxEdit:
		return "", fn.Errorf("%s has more than %d bytes: too many to edit", name, maxEdit)
	}
	return string(b), nil
}

func refuseBinary(name, text string) error {
	if !filesys.IsText([]byte(text[:min(len(text), 512)])) {
		return fn.Errorf("Cannot perform string replacements on a binary file: %s", name)
	}
	return nil
}

// editing is a file with its old and its new text.
type editing struct {
	name, old, new string
	// backup is the suffix for a copy of the old file, "" for none.
	backup string
	// disowned means that the copy belongs to the user of this process instead
	// of the file's owner.
	disowned bool
	// linked means that the backup of a link is a link to that of its target.
	linked bool
	// predicted and done are the comments of a test and of a run.
	predicted, done string
	show            bool
}

// plan returns the plan to write the new text.
func (w editing) plan() state.Plan {
	if w.old == w.new {
		return state.Plan{Comment: "No changes needed to be made"}
	}
	var diff any = textedit.DiffLines(textedit.SplitLines(w.old), textedit.SplitLines(w.new), "", "")
	if !w.show {
		diff = true
	}
	changes := value.DictOf("diff", diff)
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: changes, Comment: w.predicted},
		Do: func(context.Context) (state.Change, error) {
			if err := w.write(); err != nil {
				return state.Change{}, err
			}
			return state.Change{Diff: changes, Comment: w.done}, nil
		},
	}}}
}

func (w editing) write() error {
	if w.linked && w.backup != "" && filesys.IsLink(w.name) {
		if err := w.backLink(); err != nil {
			return fn.Errorf("cannot make the backup %s: %w", w.name+w.backup, atomicfile.Cause(err))
		}
	} else if w.backup != "" {
		if err := filesys.Copy(w.name, w.name+w.backup, true); err != nil {
			return fn.Errorf("cannot make the backup %s: %w", w.name+w.backup, atomicfile.Cause(err))
		}
		if w.disowned {
			if err := os.Lchown(w.name+w.backup, os.Geteuid(), os.Getegid()); err != nil {
				return fn.Errorf("cannot make the backup %s: %w", w.name+w.backup, atomicfile.Cause(err))
			}
		}
	}
	as := atomicfile.As{Mode: -1, UID: -1, GID: -1, Durable: true}
	if err := atomicfile.ReplaceAs(w.name, as, func(to io.Writer) error { _, err := io.WriteString(to, w.new); return err }); err != nil {
		return fn.Errorf("cannot write %s: %w", w.name, atomicfile.Cause(err))
	}
	return nil
}

// backLink makes a backup of the file that a link leads to, and a link to it beside the link.
func (w editing) backLink() error {
	real, err := filepath.EvalSymlinks(w.name)
	if err != nil {
		return err
	}
	if err := filesys.Copy(real, real+w.backup, true); err != nil {
		return err
	}
	to, err := os.Readlink(w.name)
	if err == nil {
		err = os.Remove(w.name + w.backup)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(to+w.backup, w.name+w.backup)
	}
	return err
}

// backupEnd parses the argument backup: a suffix, or a false value.
func backupEnd(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return ""
}

type replaceArgs struct {
	Name            string `salt:"name" doc:"path of the file"`
	Pattern         string `salt:"pattern" doc:"regular expression"`
	Repl            any    `salt:"repl" doc:"the replacement; \\1 stands for the first group"`
	Count           int    `salt:"count" doc:"how many to replace at most, 0 for all" default:"0"`
	Flags           any    `salt:"flags" doc:"flags of the regular expression, such as [IGNORECASE, MULTILINE]" default:"8"`
	Bufsize         any    `salt:"bufsize" ignored:"files are read whole" default:"1"`
	Append          bool   `salt:"append_if_not_found" doc:"append a line if the pattern is not found" default:"false"`
	Prepend         bool   `salt:"prepend_if_not_found" doc:"prepend a line if the pattern is not found" default:"false"`
	NotFoundContent any    `salt:"not_found_content" doc:"that line; by default the replacement" default:"null"`
	Backup          any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
	ShowChanges     bool   `salt:"show_changes" doc:"show how the content changes" default:"true"`
	IgnoreMissing   bool   `salt:"ignore_if_missing" doc:"accept that there is no such file" default:"false"`
	Literal         bool   `salt:"backslash_literal" doc:"take backslashes in the replacement as they are" default:"false"`
}

func (file) replace(_ context.Context, _ *state.Env, a replaceArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.replace")
	}
	if filepath.IsAbs(name) && !filesys.Exists(name, true) && a.IgnoreMissing {
		return state.Plan{Comment: "No changes needed to be made"}, nil
	}
	text, err := load(name)
	if err == nil {
		err = refuseBinary(name, text)
	}
	if err != nil {
		return state.Plan{}, err
	}
	o := textedit.ReplaceOptions{Count: a.Count, Literal: a.Literal, Append: a.Append, Prepend: a.Prepend}
	if o.Flags, err = textedit.Flags(a.Flags); err != nil {
		return state.Plan{}, &fn.CommandError{Err: err}
	}
	if a.NotFoundContent != nil {
		s := value.Str(a.NotFoundContent)
		o.NotFound = &s
	}
	changed, err := textedit.Replace(text, a.Pattern, value.Str(a.Repl), o)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	return editing{
		name: name, old: text, new: changed, backup: backupEnd(a.Backup), disowned: true, linked: true, show: a.ShowChanges,
		predicted: "Changes would have been made",
		done:      "Changes were made",
	}.plan(), nil
}

type lineArgs struct {
	Name        string  `salt:"name" doc:"path of the file"`
	Content     any     `salt:"content" doc:"the line" default:"null"`
	Match       any     `salt:"match" doc:"regular expression, or part, of the line to replace or delete; by default the content" default:"null"`
	Mode        string  `salt:"mode" doc:"ensure, insert, replace or delete" default:"null"`
	Location    string  `salt:"location" doc:"start or end, for insert" default:"null"`
	Before      *string `salt:"before" doc:"regular expression, or part, of the line that follows" default:"null"`
	After       *string `salt:"after" doc:"regular expression, or part, of the line that goes before" default:"null"`
	ShowChanges bool    `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Backup      bool    `salt:"backup" doc:"keep a copy of the old file, with the time in its name" default:"false"`
	Quiet       bool    `salt:"quiet" ignored:"a missing file is an error of the state, as in Salt" default:"false"`
	Indent      bool    `salt:"indent" doc:"indent the line as its neighbour" default:"true"`
	Create      bool    `salt:"create" doc:"make the file if there is none" default:"false"`
	User        any     `salt:"user" doc:"owner of the file" default:"null"`
	Group       any     `salt:"group" doc:"group of the file" default:"null"`
	FileMode    any     `salt:"file_mode" doc:"mode of the file" default:"null"`
}

func (f file) line(ctx context.Context, _ *state.Env, a lineArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.line")
	}
	own, err := f.owner(ctx, a.User, a.Group, filesys.NormalizeMode(a.FileMode))
	if err != nil {
		return state.Plan{}, err
	}
	fresh := a.Create && filepath.IsAbs(name) && !filesys.Exists(name, true)
	text := ""
	if !fresh {
		if text, err = load(name); err != nil {
			return state.Plan{}, err
		}
	}
	k := textedit.Line{Mode: strings.ToLower(a.Mode), Location: a.Location, Before: a.Before, After: a.After, Indent: a.Indent}
	if a.Content != nil {
		s := value.Str(a.Content)
		k.Content = &s
	}
	if a.Match != nil {
		k.Match = value.Str(a.Match)
	}
	if k.Mode != "" && k.Mode != "delete" && k.Content == nil {
		return state.Plan{}, fn.Errorf("Content can only be empty if mode is ['delete']")
	}
	changed, err := k.Apply(text)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	w := editing{name: name, old: text, new: changed, show: a.ShowChanges, predicted: "Changes would be made", done: "Changes were made"}
	if a.Backup {
		w.backup = time.Now().Format(".2006-01-02-15-04-05")
	}
	return f.withOwner(w, own, fresh), nil
}

// withOwner returns the plan to write the file, creating it if it is new, and
// to set its owner and mode.
func (f file) withOwner(w editing, own managed.Owner, fresh bool) state.Plan {
	p := w.plan()
	if own.User == nil && own.Group == nil && own.Mode == "" && !fresh {
		return p
	}
	prepare := func() error {
		if err := own.Available(); err != nil {
			return err
		}
		if fresh {
			as := atomicfile.As{Mode: own.Bits, UID: own.UID, GID: own.GID}
			if err := atomicfile.ReplaceAs(w.name, as, func(io.Writer) error { return nil }); err != nil {
				return fn.Errorf("cannot make %s: %w", w.name, atomicfile.Cause(err))
			}
			return nil
		}
		_, err := own.Apply(f.m, w.name, true)
		return err
	}
	if len(p.Steps) > 0 {
		do := p.Steps[0].Do
		p.Steps[0].Do = func(ctx context.Context) (state.Change, error) {
			if err := prepare(); err != nil {
				return state.Change{}, err
			}
			return do(ctx)
		}
		return p
	}
	now, err := filesys.Look(f.m, w.name, true)
	if err == nil && own.Differs(now).Len() == 0 {
		return p
	}
	changes := own.Differs(now)
	p.Steps = []state.Step{{
		Change: state.Change{Diff: changes, Comment: w.predicted},
		Do: func(context.Context) (state.Change, error) {
			return state.Change{Diff: changes, Comment: w.done}, prepare()
		},
	}}
	return p
}

type blockArgs struct {
	Name        string `salt:"name" doc:"path of the file"`
	MarkerStart string `salt:"marker_start" doc:"what marks the line before the text" default:"#-- start managed zone --"`
	MarkerEnd   string `salt:"marker_end" doc:"what marks the line after the text" default:"#-- end managed zone --"`
	textsArgs
	Content      any    `salt:"content" doc:"the text" default:""`
	Append       bool   `salt:"append_if_not_found" doc:"append markers and text if they are not there" default:"false"`
	Prepend      bool   `salt:"prepend_if_not_found" doc:"prepend markers and text if they are not there" default:"false"`
	Backup       any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
	ShowChanges  bool   `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Newline      *bool  `salt:"append_newline" doc:"put the end marker on a line of its own; by default where the text has no line break at its end" default:"null"`
	InsertBefore string `salt:"insert_before_match" doc:"regular expression of the line before which markers and text go if they are not there" default:"null"`
	InsertAfter  string `salt:"insert_after_match" doc:"regular expression of the line after which they go" default:"null"`
}

func (f file) blockreplace(ctx context.Context, e *state.Env, a blockArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.blockreplace")
	}
	text, err := load(name)
	if err != nil {
		return state.Plan{}, err
	}
	content := gatheredText(e, name, value.Str(a.Content))
	more, err := f.texts(ctx, e, name, a.textsArgs)
	if err != nil {
		return state.Plan{}, err
	}
	content += strings.Join(more, "")
	newline := "auto"
	if a.Newline != nil {
		newline = map[bool]string{true: "yes", false: "no"}[*a.Newline]
	}
	err = refuseBinary(name, text)
	changed := ""
	if err == nil {
		changed, err = textedit.Block{
			Start: a.MarkerStart, End: a.MarkerEnd, Content: content, Newline: newline, Append: a.Append, Prepend: a.Prepend, Before: a.InsertBefore,
			After: a.InsertAfter,
		}.Apply(text)
	}
	if err != nil {
		return state.Plan{}, fn.Errorf("Encountered error managing block: %w. See the log for details.", err)
	}
	return editing{
		name: name, old: text, new: changed, backup: backupEnd(a.Backup), show: a.ShowChanges, predicted: "Changes would be made", done: "Changes were made",
	}.plan(), nil
}

// gatheredText adds the texts of file.accumulated to the text of a block.
func gatheredText(e *state.Env, name, text string) string {
	acc := accumulators(e.Run).meantFor(name, e.Low.Str("__id__"))
	if acc == nil {
		return text
	}
	for _, l := range acc.All() {
		list, _ := l.(*value.List)
		if list == nil {
			continue
		}
		for _, it := range list.Items {
			if text != "" {
				text += "\n"
			}
			text += value.Str(it)
		}
	}
	return text
}

type commentArgs struct {
	Name          string `salt:"name" doc:"path of the file"`
	Regex         string `salt:"regex" doc:"regular expression of the lines, from their beginning"`
	Char          string `salt:"char" doc:"the comment character" default:"#"`
	Backup        any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
	IgnoreMissing bool   `salt:"ignore_missing" doc:"accept that no line is found" default:"false"`
}

type uncommentArgs struct {
	Name   string `salt:"name" doc:"path of the file"`
	Regex  string `salt:"regex" doc:"regular expression of the lines, without the comment character"`
	Char   string `salt:"char" doc:"the comment character" default:"#"`
	Backup any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
}

// anchors removes flags and anchors from a regular expression.
func anchors(regex string) string {
	if strings.HasPrefix(regex, "(?") && len(regex) > 3 && regex[3] == ')' {
		regex = regex[4:]
	}
	return strings.TrimSuffix(strings.TrimPrefix(regex, "^"), "$")
}

func found(text, pattern string) (bool, error) {
	re, err := pyre.Compile(pattern, pyre.MultiLine|pyre.ASCII)
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	m, err := re.Search(text)
	return m != nil, err
}

func (file) comment(_ context.Context, _ *state.Env, a commentArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.comment")
	}
	text, err := load(name)
	if err != nil {
		return state.Plan{}, err
	}
	bare := anchors(a.Regex)
	open, err := found(text, fmt.Sprintf(`^(?!\s*%s)\s*%s`, a.Char, bare))
	if err != nil {
		return state.Plan{}, err
	}
	if !open {
		done, err := found(text, a.Char+bare)
		switch {
		case err != nil:
			return state.Plan{}, err
		case done:
			return state.Plan{Comment: "Pattern already commented"}, nil
		case a.IgnoreMissing:
			return state.Plan{Comment: "Pattern not found and ignore_missing set to True"}, nil
		}
		return state.Plan{}, fn.Errorf("%s: Pattern not found", bare)
	}
	changed, _, err := textedit.Comment(text, a.Regex, a.Char)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	return commenting(editing{name: name, old: text, new: changed, backup: backupEnd(a.Backup)}, a.Char+bare, "Commented lines successfully",
		"Expected commented lines not found"), nil
}

func (file) uncomment(_ context.Context, _ *state.Env, a uncommentArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.uncomment")
	}
	text, err := load(name)
	if err != nil {
		return state.Plan{}, err
	}
	bare := strings.TrimLeft(a.Regex, "^")
	closed, err := found(text, a.Char+"[ \t]*"+bare)
	if err != nil {
		return state.Plan{}, err
	}
	free := "^[ \t]*" + bare
	if !closed {
		done, err := found(text, free)
		switch {
		case err != nil:
			return state.Plan{}, err
		case done:
			return state.Plan{Comment: "Pattern already uncommented"}, nil
		}
		return state.Plan{}, fn.Errorf("%s: Pattern not found", a.Regex)
	}
	changed, _, err := textedit.Uncomment(text, a.Regex, a.Char)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	return commenting(editing{name: name, old: text, new: changed, backup: backupEnd(a.Backup)}, free, "Uncommented lines successfully",
		"Expected uncommented lines not found"), nil
}

// commenting returns the plan of comment and uncomment. want matches lines in
// the wanted form.
func commenting(w editing, want, good, bad string) state.Plan {
	w.show = true
	changes := value.NewDict(1)
	if w.old != w.new {
		changes.Set("diff", textedit.Diff(w.old, w.new, "", ""))
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: value.DictOf(w.name, "updated"), Comment: "File " + w.name + " is set to be updated"},
		Do: func(context.Context) (state.Change, error) {
			if w.old != w.new {
				if err := w.write(); err != nil {
					return state.Change{}, err
				}
			}
			ok, err := found(w.new, want)
			switch {
			case err != nil:
				return state.Change{Diff: changes}, err
			case !ok:
				return state.Change{Diff: changes}, errors.New(bad)
			}
			return state.Change{Diff: changes, Comment: good}, nil
		},
	}}}
}
