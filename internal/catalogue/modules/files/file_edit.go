package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/textedit"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

func (f file) edits() []fn.Func {
	return []fn.Func{
		fn.Of("search", f.search, `Say whether a regular expression finds something in a file.`,
			fn.Example("salt '*' file.search /etc/crontab 'mymaintenance.sh'")),
		fn.Of("replace", f.replace, `Replace in a file what a regular expression finds, and show how it changes.`,
			fn.Example("salt '*' file.replace /path/to/file pattern='bind-address\\s*=' repl='bind-address:'")),
		fn.Of("line", f.line, `Keep one line in a file, or keep it out, and show how it changes.`,
			fn.Example("salt '*' file.line /etc/nsswitch.conf 'networks: files dns' after='hosts:.*?' mode=ensure")),
		fn.Of("blockreplace", f.blockreplace, `Keep the text between two markers in a file, and show how it changes.`,
			fn.Example("salt '*' file.blockreplace /etc/hosts '#-- start' '#-- end' '10.0.1.1 foo'")),
		fn.Of("comment", f.comment(true), `Comment lines of a file out.`, fn.Example("salt '*' file.comment /etc/modules pcspkr")),
		fn.Of("uncomment", f.comment(false), `Take the comment character off lines of a file.`,
			fn.Example("salt '*' file.uncomment /etc/hosts.deny 'ALL: PARANOID'")),
		fn.Of("comment_line", f.commentLine, `Comment lines of a file out, or take the comment character off.`,
			fn.Example("salt '*' file.comment_line /etc/modules pcspkr")),
	}
}

// load reads a file to be edited.
func load(path, missing string) (real, text string, err error) {
	path = filesys.ExpandUser(path)
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", "", fn.Invalidf("%s", missing)
	}
	s, ok := contents(real)
	switch {
	case !ok:
		return "", "", fn.Errorf("Unable to open file '%s'", path)
	case len(s) >= maxRead:
		return "", "", fn.Errorf("%s has more than %d bytes: too many to edit", path, maxRead)
	case !filesys.IsText([]byte(s[:min(len(s), 512)])):
		return "", "", fn.Invalidf("Cannot perform string replacements on a binary file: %s", path)
	}
	return real, s, nil
}

// save writes an edited file, and keeps a copy of the old one if backup is set.
func save(path, backup, text string) error {
	if backup != "" {
		if err := filesys.Copy(path, path+backup, true); err != nil {
			return fn.Errorf("cannot make the backup %s: %w", path+backup, err)
		}
	}
	return put(path, text)
}

func backupEnd(v any) string { s, _ := v.(string); return s }

type searchArgs struct {
	Path      string `salt:"path" doc:"path"`
	Pattern   string `salt:"pattern" doc:"regular expression"`
	Flags     any    `salt:"flags" doc:"flags of the regular expression" default:"8"`
	Bufsize   any    `salt:"bufsize" ignored:"files are read whole" default:"1"`
	Ignore    bool   `salt:"ignore_if_missing" doc:"accept that there is no such file" default:"false"`
	Multiline bool   `salt:"multiline" doc:"let ^ and $ find the ends of lines" default:"false"`
}

func (f file) search(ctx context.Context, c *fn.Call, a searchArgs) (any, error) {
	if a.Ignore && !filesys.Exists(filesys.ExpandUser(a.Path), true) {
		return false, nil
	}
	_, text, err := load(a.Path, "File not found: "+filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, err
	}
	flags, err := textedit.Flags(a.Flags)
	if err != nil {
		return nil, &fn.CommandError{Err: err}
	}
	if a.Multiline {
		flags |= pyre.MultiLine
	}
	re, err := pyre.Compile(a.Pattern, flags|pyre.ASCII)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	m, err := re.Search(text)
	return m != nil, err
}

type replaceArgs struct {
	Path     string  `salt:"path" doc:"path"`
	Pattern  string  `salt:"pattern" doc:"regular expression"`
	Repl     any     `salt:"repl" doc:"the replacement; \\1 stands for the first group"`
	Count    int     `salt:"count" doc:"how many to replace at most, 0 for all" default:"0"`
	Flags    any     `salt:"flags" doc:"flags of the regular expression" default:"8"`
	Bufsize  any     `salt:"bufsize" ignored:"files are read whole" default:"1"`
	Append   bool    `salt:"append_if_not_found" doc:"append a line if the pattern is not found" default:"false"`
	Prepend  bool    `salt:"prepend_if_not_found" doc:"prepend a line if the pattern is not found" default:"false"`
	NotFound *string `salt:"not_found_content" doc:"that line; by default the replacement" default:"null"`
	Backup   any     `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
	DryRun   bool    `salt:"dry_run" doc:"change nothing" default:"false"`
	Search   bool    `salt:"search_only" doc:"only say whether the pattern is found" default:"false"`
	Show     bool    `salt:"show_changes" doc:"return a diff, not whether there was a change" default:"true"`
	Ignore   bool    `salt:"ignore_if_missing" doc:"accept that there is no such file" default:"false"`
	Preserve bool    `salt:"preserve_inode" ignored:"files are replaced whole, so that no reader sees half of one" default:"true"`
	Literal  bool    `salt:"backslash_literal" doc:"take backslashes in the replacement as they are" default:"false"`
}

func (f file) replace(ctx context.Context, c *fn.Call, a replaceArgs) (any, error) {
	if a.Ignore && !filesys.Exists(filesys.ExpandUser(a.Path), true) {
		return false, nil
	}
	if a.Search {
		if a.Append || a.Prepend {
			return nil, fn.Invalidf("search_only cannot be used with append/prepend_if_not_found")
		}
		return f.search(ctx, c, searchArgs{Path: a.Path, Pattern: a.Pattern, Flags: a.Flags})
	}
	path, text, err := load(a.Path, "File not found: "+filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, err
	}
	flags, err := textedit.Flags(a.Flags)
	if err != nil {
		return nil, &fn.CommandError{Err: err}
	}
	changed, err := textedit.Replace(text, a.Pattern, value.Str(a.Repl), textedit.ReplaceOptions{
		Count: a.Count, Flags: flags, Literal: a.Literal, Append: a.Append, Prepend: a.Prepend, NotFound: a.NotFound,
	})
	end := backupEnd(a.Backup)
	v, err := edited(path, text, changed, err, a.Show, a.DryRun, end)
	if err == nil && end != "" && changed != text && !a.DryRun { // as in Salt, the copy does not belong to the file's owner
		err = os.Lchown(path+end, os.Geteuid(), os.Getegid())
	}
	return v, err
}

// edited writes the changed file, and returns the diff or whether there is one.
func edited(path, old, new string, err error, show, dry bool, backup string) (any, error) {
	if err != nil {
		var wrong *textedit.Error
		if errors.As(err, &wrong) || errors.Is(err, pyre.ErrPattern) {
			return nil, fn.Errorf("%w", err)
		}
		return nil, err
	}
	diff := textedit.DiffLines(textedit.SplitLines(old), textedit.SplitLines(new), "", "")
	if diff != "" && !dry {
		if err := save(path, backup, new); err != nil {
			return nil, err
		}
	}
	if show {
		return diff, nil
	}
	return diff != "", nil
}

type lineArgs struct {
	Path     string  `salt:"path" doc:"path"`
	Content  any     `salt:"content" doc:"the line" default:"null"`
	Match    any     `salt:"match" doc:"regular expression, or part, of the line to replace or delete" default:"null"`
	Mode     string  `salt:"mode" doc:"ensure, insert, replace or delete" default:"null"`
	Location string  `salt:"location" doc:"start or end, for insert" default:"null"`
	Before   *string `salt:"before" doc:"regular expression, or part, of the line that follows" default:"null"`
	After    *string `salt:"after" doc:"regular expression, or part, of the line that goes before" default:"null"`
	Show     bool    `salt:"show_changes" doc:"return a diff, not whether there was a change" default:"true"`
	Backup   bool    `salt:"backup" doc:"keep a copy of the old file" default:"false"`
	Quiet    bool    `salt:"quiet" doc:"accept that there is no such file" default:"false"`
	Indent   bool    `salt:"indent" doc:"indent the line as its neighbour" default:"true"`
}

func (file) line(_ context.Context, _ *fn.Call, a lineArgs) (any, error) {
	path := filesys.ExpandUser(a.Path)
	if !filesys.IsFile(path) {
		if a.Quiet {
			return false, nil
		}
		return nil, fn.Errorf(`File "%s" does not exists or is not a file.`, path)
	}
	path, text, err := load(path, "")
	if err != nil {
		return nil, err
	}
	e := textedit.Line{Mode: strings.ToLower(a.Mode), Location: a.Location, Before: a.Before, After: a.After, Indent: a.Indent}
	if a.Content != nil {
		s := value.Str(a.Content)
		e.Content = &s
	}
	if a.Match != nil {
		e.Match = value.Str(a.Match)
	}
	backup := ""
	if a.Backup {
		backup = ".bak"
	}
	changed, err := e.Apply(text)
	v, err := edited(path, text, changed, err, a.Show, false, backup)
	if v == "" {
		return false, err
	}
	return v, err
}

type blockArgs struct {
	Path    string `salt:"path" doc:"path"`
	Start   string `salt:"marker_start" doc:"what marks the line before the text" default:"#-- start managed zone --"`
	End     string `salt:"marker_end" doc:"what marks the line after the text" default:"#-- end managed zone --"`
	Content string `salt:"content" doc:"the text" default:""`
	Append  bool   `salt:"append_if_not_found" doc:"append markers and text if they are not there" default:"false"`
	Prepend bool   `salt:"prepend_if_not_found" doc:"prepend markers and text if they are not there" default:"false"`
	Backup  any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
	DryRun  bool   `salt:"dry_run" doc:"change nothing" default:"false"`
	Show    bool   `salt:"show_changes" doc:"return a diff, not whether there was a change" default:"true"`
	Newline *bool  `salt:"append_newline" doc:"put the end marker on a line of its own" default:"false"`
	Before  string `salt:"insert_before_match" doc:"regular expression of the line before which markers and text go if they are not there" default:"null"`
	After   string `salt:"insert_after_match" doc:"regular expression of the line after which they go" default:"null"`
}

func (file) blockreplace(_ context.Context, _ *fn.Call, a blockArgs) (any, error) {
	path, text, err := load(a.Path, "File not found: "+filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, err
	}
	newline := "auto"
	if a.Newline != nil {
		newline = map[bool]string{true: "yes", false: "no"}[*a.Newline]
	}
	changed, err := textedit.Block{
		Start: a.Start, End: a.End, Content: a.Content, Newline: newline, Append: a.Append, Prepend: a.Prepend, Before: a.Before, After: a.After,
	}.Apply(text)
	return edited(path, text, changed, err, a.Show, a.DryRun, backupEnd(a.Backup))
}

type commentArgs struct {
	Path   string `salt:"path" doc:"path"`
	Regex  string `salt:"regex" doc:"regular expression of the lines"`
	Char   string `salt:"char" doc:"the comment character" default:"#"`
	Backup any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
}

func (f file) comment(on bool) func(context.Context, *fn.Call, commentArgs) (any, error) {
	return func(ctx context.Context, c *fn.Call, a commentArgs) (any, error) {
		return f.commentLine(ctx, c, commentLineArgs{a.Path, a.Regex, a.Char, on, a.Backup})
	}
}

type commentLineArgs struct {
	Path    string `salt:"path" doc:"path"`
	Regex   string `salt:"regex" doc:"regular expression of the lines"`
	Char    string `salt:"char" doc:"the comment character" default:"#"`
	Comment bool   `salt:"cmnt" doc:"comment out; otherwise take the character off" default:"true"`
	Backup  any    `salt:"backup" doc:"end of the name of a copy of the old file, or false" default:".bak"`
}

func (file) commentLine(_ context.Context, _ *fn.Call, a commentLineArgs) (any, error) {
	path, text, err := load(a.Path, "File not found: "+filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, err
	}
	edit := textedit.Uncomment
	if a.Comment {
		edit = textedit.Comment
	}
	changed, found, err := edit(text, a.Regex, a.Char)
	if err == nil && !found {
		return false, nil
	}
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	// The diff only covers the matching lines.
	var before, after []string
	new := textedit.SplitLines(changed)
	for i, l := range textedit.SplitLines(text) {
		if new[i] != l {
			before, after = append(before, l), append(after, new[i])
		}
	}
	if len(before) > 0 {
		err = save(path, backupEnd(a.Backup), changed)
	}
	return textedit.DiffLines(before, after, "", ""), err
}

type getDiffArgs struct {
	File1    string `salt:"file1" doc:"the first file, a path or URL"`
	File2    string `salt:"file2" doc:"the second file"`
	Saltenv  string `salt:"saltenv" doc:"environment of salt:// files" default:"base"`
	Names    bool   `salt:"show_filenames" doc:"show the names, too" default:"true"`
	Show     bool   `salt:"show_changes" doc:"show the changes" default:"true"`
	Template bool   `salt:"template" doc:"use the option obfuscate_templates" default:"false"`
	Hash1    string `salt:"source_hash_file1" doc:"hash of the first file if it is fetched by http or ftp" default:"null"`
	Hash2    string `salt:"source_hash_file2" doc:"hash of the second file" default:"null"`
}

func (file) getDiff(ctx context.Context, c *fn.Call, a getDiffArgs) (any, error) {
	var texts, paths [2]string
	for i, name := range []string{a.File1, a.File2} {
		path, err := c.Files.GetURL(ctx, name, "", fileclient.URLOptions{Saltenv: a.Saltenv, Makedirs: true, SourceHash: []string{a.Hash1, a.Hash2}[i]})
		if err != nil {
			return nil, fn.Errorf("Failed to cache one or more files: %w", err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fn.Errorf("Failed to read %s: %w", path, err)
		}
		texts[i], paths[i] = string(b), path
	}
	obfuscate, _ := c.Config.Get("obfuscate_templates").(bool)
	old, new := filesys.IsText([]byte(texts[0][:min(len(texts[0]), 512)])), filesys.IsText([]byte(texts[1][:min(len(texts[1]), 512)]))
	switch {
	case texts[0] == texts[1]:
		return "", nil
	case a.Template && obfuscate:
		return "<Obfuscated Template>", nil
	case !a.Show:
		return "<show_changes=False>", nil
	case !old && !new:
		return "Replace binary file", nil
	case !old:
		return "Replace binary file with text file", nil
	case !new:
		return "Replace text file with binary file", nil
	case !a.Names:
		paths = [2]string{}
	}
	return textedit.DiffLines(textedit.SplitLines(texts[0]), textedit.SplitLines(texts[1]), paths[0], paths[1]), nil
}
