package files

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/perms"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("managed", f.managed, `Keep content, owner and mode of a file as declared.
			The content is that of a file of the file server, of a URL or of this machine, or it is given in the SLS, the pillar or the grains; it may be a template.`)}
	})
}

// contentArgs are the arguments that say what is in a file.
type contentArgs struct {
	Source          any    `salt:"source" doc:"where the content comes from: salt://, http://, https:// or ftp:// URL, or path; of a list, the first that exists" default:"null"`
	SourceHash      string `salt:"source_hash" doc:"hash of the source, kind=hash, or a file of hashes; needed for http, https and ftp" default:"null"`
	SourceHashName  string `salt:"source_hash_name" doc:"name of the source in a file of hashes" default:"null"`
	SkipVerify      bool   `salt:"skip_verify" doc:"take a source of http, https or ftp without a hash" default:"false"`
	VerifySSL       bool   `salt:"verify_ssl" doc:"check the certificates of https servers" default:"true"`
	UseETag         bool   `salt:"use_etag" doc:"ask the http server whether the file has changed, in place of a hash" default:"false"`
	KeepSource      bool   `salt:"keep_source" doc:"keep the source in the minion's cache" default:"true"`
	Contents        any    `salt:"contents" doc:"the content, or a list of its lines" default:"null"`
	ContentsPillar  any    `salt:"contents_pillar" doc:"pillar key that holds the content, or a list of such keys" default:"null"`
	ContentsGrains  any    `salt:"contents_grains" doc:"grain that holds the content, or a list of grains" default:"null"`
	ContentsNewline bool   `salt:"contents_newline" doc:"end the content with a line break" default:"true"`
	ContentsDelim   string `salt:"contents_delimiter" doc:"what separates the parts of a pillar key or grain" default:":"`
	AllowEmpty      bool   `salt:"allow_empty" doc:"accept contents that are empty" default:"true"`
	Encoding        string `salt:"encoding" doc:"encoding of the file, such as latin-1" default:"null"`
	EncodingErrors  string `salt:"encoding_errors" doc:"what to do with characters that the encoding lacks: strict, ignore or replace" default:"strict"`
	Template        string `salt:"template" doc:"template engine that makes the content, such as jinja" default:"null"`
	Context         any    `salt:"context" doc:"variables of the template" default:"null"`
	Defaults        any    `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
}

type managedArgs struct {
	Name string `salt:"name" doc:"path of the file"`
	contentArgs
	User           any         `salt:"user" doc:"user that owns the file" default:"null"`
	Group          any         `salt:"group" doc:"group that owns the file" default:"null"`
	Mode           any         `salt:"mode" doc:"mode, such as '0644'; keep takes that of the source" default:"null"`
	Attrs          *string     `salt:"attrs" doc:"attributes as chattr(1) names them" default:"null"`
	Makedirs       bool        `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	DirMode        any         `salt:"dir_mode" doc:"mode of these directories; otherwise the file's with the right to enter" default:"null"`
	Replace        bool        `salt:"replace" doc:"replace the content of a file that is there" default:"true"`
	Backup         any         `salt:"backup" doc:"minion keeps a copy of the old file in the minion's cache" default:""`
	ShowChanges    bool        `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Create         bool        `salt:"create" doc:"make the file if there is none" default:"true"`
	FollowSymlinks bool        `salt:"follow_symlinks" doc:"manage what a symbolic link stands for, in place of the link" default:"true"`
	CheckCmd       string      `salt:"check_cmd" doc:"command that gets the name of a file with the new content and must succeed before it is used" default:"null"`
	TmpDir         string      `salt:"tmp_dir" doc:"directory of the file for check_cmd" default:""`
	TmpExt         string      `salt:"tmp_ext" doc:"end of its name" default:""`
	Selinux        *value.Dict `salt:"selinux" doc:"parts of the SELinux context" default:"null"`
	sources.SignatureArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// managedFile is a file that is to be as declared.
type managedFile struct {
	file
	e    *state.Env
	name string
	args *managedArgs
	own  owner
	// want is the content; nil leaves what is there.
	want *sources.Content
	// sourced is set when the content is a file's.
	sourced bool
	// keep is set when the content is only for a file that is not there yet.
	keep bool
	seen seen
	// group is that of the files which the same state writes, if it writes
	// several, and place the number in it.
	group *group
	place int
	// writes is set when the plan is to write the content.
	writes bool
	source sources.Source // that the content is from, if any
}

// seen is what is at a path: itself, and what it stands for if it is a
// symbolic link.
type seen struct {
	link, file       filesys.Facts
	linkErr, fileErr error
}

// see looks at the file's path, once for all that the plan has to know.
func (t *managedFile) see() {
	s := &t.seen
	s.link, s.linkErr = filesys.Look(t.m, t.name, false)
	s.file, s.fileErr = s.link, s.linkErr
	if s.isLink() {
		s.file, s.fileErr = filesys.Look(t.m, t.name, true)
	}
}

func (s *seen) isLink() bool { return s.linkErr == nil && s.link.IsLink() }
func (s *seen) isFile() bool { return s.fileErr == nil && s.file.IsFile() }
func (s *seen) isDir() bool  { return s.fileErr == nil && s.file.IsDir() }

func (f file) managed(ctx context.Context, e *state.Env, a managedArgs) (state.Plan, error) {
	return (&managedFile{file: f, e: e, args: &a}).planned(ctx, nil)
}

// planned finds out what is to be done. A file whose content is to be written
// joins the group, if there is one.
func (t *managedFile) planned(ctx context.Context, g *group) (state.Plan, error) {
	a := t.args
	var plan state.Plan
	if _, ok := a.Kwargs.Get("file_mode"); ok {
		plan.Warnings = append(plan.Warnings, "The 'file_mode' argument will be ignored.  Please use 'mode' instead to set file permissions.")
	}
	if t.name = filesys.ExpandUser(a.Name); t.name == "" {
		return plan, fn.Errorf("Destination file name is required")
	}
	if err := t.check(); err != nil {
		return plan, err
	}
	t.see()
	if !a.Create && !t.seen.isFile() {
		plan.Comment = "File " + t.name + " is not present and is not set for creation"
		return plan, nil
	}
	var err error
	if t.own, err = t.owner(ctx, a.User, a.Group, t.mode()); err != nil {
		return plan, err
	}
	switch {
	case !filepath.IsAbs(t.name):
		return plan, fn.Errorf("Specified file %s is not an absolute path", t.name)
	case t.seen.isDir():
		return plan, fn.Errorf("Specified target %s is a directory", t.name)
	}
	if err := t.load(ctx); err != nil {
		if nobody := t.own.available(); nobody != nil { // comes first, but a test does not mind it
			plan.Forecast = &state.Result{Verdict: state.Failed, Comment: err.Error()}
			return plan, nobody
		}
		return plan, err
	}
	p, err := t.plan(ctx)
	t.leaveSource(&p)
	p.Warnings = append(plan.Warnings, p.Warnings...)
	if g != nil && t.writes {
		g.add(t)
	}
	return p, err
}

// leaveSource removes the source from the cache, if it is not to be kept there:
// at once if it is not needed any more, else after the last step.
func (t *managedFile) leaveSource(p *state.Plan) {
	if t.args.KeepSource || t.source.URL == "" || t.source.Scheme() == "" || t.source.Scheme() == "file" {
		return
	}
	forget := func() error {
		if err := t.e.Files.Forget(t.source.URL, t.source.Env); err != nil {
			return fn.Errorf("%w", err)
		}
		return nil
	}
	if len(p.Steps) == 0 || t.want == nil || t.want.Path == "" {
		if err := forget(); err != nil {
			p.Warnings = append(p.Warnings, err.Error())
		}
		return
	}
	last := &p.Steps[len(p.Steps)-1]
	do := last.Do
	last.Do = func(ctx context.Context) (state.Change, error) {
		change, err := do(ctx)
		if e := forget(); err == nil {
			err = e
		}
		return change, err
	}
}

func (t *managedFile) mode() string {
	if s, ok := t.args.Mode.(string); ok && strings.EqualFold(s, "keep") {
		return ""
	}
	return filesys.NormalizeMode(t.args.Mode)
}

func (t *managedFile) keepsMode() bool {
	s, ok := t.args.Mode.(string)
	return ok && strings.EqualFold(s, "keep")
}

// check refuses arguments that do not go together.
func (t *managedFile) check() error {
	a := t.args
	n := 0
	for _, v := range []any{a.Contents, a.ContentsPillar, a.ContentsGrains} {
		if v != nil {
			n++
		}
	}
	hasSource := given(a.Source)
	if l, ok := a.Source.(*value.List); ok && l.Len() == 0 {
		hasSource = false
	}
	switch {
	case hasSource && n > 0:
		return fn.Errorf("'source' cannot be used in combination with 'contents', 'contents_pillar', or 'contents_grains'")
	case t.keepsMode() && n > 0:
		return fn.Errorf("Mode preservation cannot be used in combination with 'contents', 'contents_pillar', or 'contents_grains'")
	case n > 1:
		return fn.Errorf("Only one of 'contents', 'contents_pillar', and 'contents_grains' is permitted")
	}
	if _, ok := a.Context.(*value.Dict); a.Context != nil && !ok {
		return fn.Errorf("Context must be formed as a dict")
	}
	if _, ok := a.Defaults.(*value.Dict); given(a.Defaults) && !ok {
		return fn.Errorf("Defaults must be formed as a dict")
	}
	t.keep = !a.Replace || !hasSource && n == 0
	return nil
}

// marks reads the arguments attrs and selinux.
func (a *managedArgs) marks() perms.Marks {
	m := perms.Marks{Attrs: a.Attrs}
	for i, p := range perms.Parts {
		if v := a.Selinux.At(p[0]); value.Truth(v) {
			m.Context[i] = value.Str(v)
		}
	}
	return m
}

// load finds out what the file is to hold.
func (t *managedFile) load(ctx context.Context) error {
	a := t.args
	text, given, err := t.given()
	if err != nil {
		return err
	}
	if given {
		if a.Template != "" {
			s, ok := text.(string)
			if !ok {
				return fn.Errorf("Contents specified by contents/contents_pillar/contents_grains appears to be binary data, and as will not be able " +
					"to be treated as a Jinja template.")
			}
			if text, err = t.render(ctx, s, t.name); err != nil {
				return err
			}
		}
		t.want, err = t.encode(text)
		return err
	}
	all, err := sources.Read(a.Source, a.SourceHash, t.e.Saltenv)
	if err != nil || len(all) == 0 {
		return err
	}
	if t.keep && t.seen.fileErr == nil {
		return nil // only owner and mode count
	}
	s, err := sources.Choose(ctx, t.e.Files, all)
	if err != nil {
		return fn.Errorf("Unable to manage file: %w", err)
	}
	return t.loadSource(ctx, s)
}

func (t *managedFile) loadSource(ctx context.Context, s sources.Source) error {
	a := t.args
	t.sourced, t.source = true, s
	if a.Template != "" && t.isSource(s) {
		return fn.Errorf("Unable to manage file: Source file cannot be the same as destination")
	}
	old := ""
	if a.Template == "" && (a.FollowSymlinks || !t.seen.isLink()) && t.seen.isFile() && a.CheckCmd == "" {
		old = t.name
	}
	c, err := sources.Fetch(ctx, t.e.Files, s, sources.How{Name: t.name, HashName: a.SourceHashName, SkipVerify: a.SkipVerify, Insecure: !a.VerifySSL,
		ETag: a.UseETag, InMemory: true, Signed: a.SignatureArgs}, old)
	if err != nil {
		return err
	}
	if s.Web() {
		t.see() // that took its time
		// Nothing was fetched: the file has the hash, and only owner and mode count.
		t.keep = c == nil && a.SourceHash != "" && !a.SkipVerify
	}
	if t.keepsMode() && !s.Web() {
		if st, err := t.e.Files.Stat(ctx, strings.TrimPrefix(s.URL, "file://"), s.Env); err == nil && len(st) > 0 {
			t.own.bits = int(st[0] & 0o7777)
			t.own.mode = filesys.NormalizeMode(strconv.FormatInt(st[0]&0o7777, 8))
		}
	}
	if c != nil && a.Template != "" {
		text, err := c.Bytes()
		if err != nil {
			return fn.Errorf("Unable to manage file: %w", err)
		}
		out, err := t.renderFrom(ctx, string(text), s)
		if err != nil {
			return err
		}
		c = &sources.Content{Data: []byte(out)}
	}
	t.want = c
	return nil
}

// isSource reports whether the managed file is its own source.
func (t *managedFile) isSource(s sources.Source) bool {
	if c := s.Scheme(); c != "" && c != "file" {
		return false
	}
	from, err := os.Stat(strings.TrimPrefix(s.URL, "file://"))
	if err != nil {
		return false
	}
	to, err := os.Stat(t.name)
	return err == nil && os.SameFile(from, to)
}

// given returns the content that the SLS, pillar or grains give: a text, or
// bytes.
func (t *managedFile) given() (text any, ok bool, err error) {
	a := t.args
	var v any
	what := "'contents'"
	switch {
	case a.ContentsPillar != nil:
		what = "contents_pillar " + value.Str(a.ContentsPillar)
		v, err = lookUp(t.e.Pillar, "Pillar", a.ContentsPillar, a.ContentsDelim)
	case a.ContentsGrains != nil:
		what = "contents_grains " + value.Str(a.ContentsGrains)
		v, err = lookUp(t.e.Grains, "Grain", a.ContentsGrains, a.ContentsDelim)
	case a.Contents != nil:
		v = a.Contents
	default:
		return nil, false, nil
	}
	switch {
	case err != nil:
		return nil, false, err
	case !a.AllowEmpty && !value.Truth(v):
		return nil, false, fn.Errorf("%s value would result in empty contents. Set allow_empty to True to allow the managed file to be empty.", what)
	}
	if b, isBytes := v.([]byte); isBytes {
		if !utf8.Valid(b) {
			return b, true, nil
		}
		v = string(b)
	}
	parts := []any{v}
	if l, isList := v.(*value.List); isList {
		parts = l.Items
	}
	var out strings.Builder
	for _, p := range parts {
		for _, line := range value.SplitLines(value.Str(p), false) {
			out.WriteString(line + "\n")
		}
	}
	s := out.String()
	if !a.ContentsNewline {
		s = strings.TrimRight(strings.TrimRight(s, "\n"), "\r")
	}
	return s, true, nil
}

func lookUp(in fn.Reader, what string, key any, delimiter string) (any, error) {
	one := func(k any) (any, error) {
		v, ok := value.Traverse(in.All(), value.Str(k), delimiter)
		if !ok {
			return nil, fn.Errorf("%s %s does not exist", what, value.Str(k))
		}
		return v, nil
	}
	l, ok := key.(*value.List)
	if !ok {
		return one(key)
	}
	parts := make([]string, 0, l.Len())
	for _, k := range l.Items {
		v, err := one(k)
		if err != nil {
			return nil, err
		}
		parts = append(parts, value.Str(v))
	}
	return strings.Join(parts, "\n"), nil
}

func (t *managedFile) render(ctx context.Context, text, name string) (string, error) {
	return t.template(ctx, state.Template{Engine: t.args.Template, Source: text, Name: name, Saltenv: t.e.Saltenv, Context: t.variables("")})
}

func (t *managedFile) renderFrom(ctx context.Context, text string, s sources.Source) (string, error) {
	return t.template(ctx, state.Template{Engine: t.args.Template, Source: text, Name: s.URL, Saltenv: s.Env, Context: t.variables(s.URL)})
}

func (t *managedFile) template(ctx context.Context, tm state.Template) (string, error) {
	if t.e.Template == nil {
		return "", fn.Errorf("Specified template format %s is not supported", tm.Engine)
	}
	defer t.see() // a template can do anything
	return t.e.Template(ctx, tm)
}

// variables are those of the template: what the SLS gives goes before what is
// known of the file.
func (t *managedFile) variables(url string) *value.Dict {
	a := t.args
	v := sources.Target{Name: t.name, User: a.User, Group: a.Group, Mode: a.Mode, Attrs: attrsOf(a.Attrs)}.Variables(url, a.Kwargs.Dict, a.Defaults,
		a.Context)
	if acc := accumulators(t.e.Run).of(t.name); acc != nil {
		v.Set("accumulator", acc)
	}
	return v
}

func attrsOf(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

// encode turns the content into bytes.
func (t *managedFile) encode(text any) (*sources.Content, error) {
	if b, ok := text.([]byte); ok {
		return &sources.Content{Data: append([]byte{}, b...)}, nil
	}
	b, err := sources.Encode(value.Str(text), t.args.Encoding, t.args.EncodingErrors)
	if err != nil {
		return nil, err
	}
	return &sources.Content{Data: b}, nil
}

// plan compares with what is there.
func (t *managedFile) plan(ctx context.Context) (state.Plan, error) {
	now, err := t.seen.link, t.seen.linkErr
	if t.args.FollowSymlinks {
		now, err = t.seen.file, t.seen.fileErr
	}
	there := err == nil && (now.IsFile() || now.IsLink())
	if !there {
		if t.seen.linkErr == nil && !t.seen.isLink() {
			return state.Plan{}, fn.Errorf("%s is there and is no regular file", t.name)
		}
		return t.planNew()
	}
	if t.keep {
		return t.planOwner(ctx, now)
	}
	changes := value.NewDict(4)
	replace := t.want != nil
	switch {
	case now.IsLink() && replace && t.seen.isFile():
		changes.Set("diff", t.diff())
	case now.IsLink():
		changes.Set("diff", "Replace symbolic link with regular file")
	case replace:
		same, err := t.want.Same(t.name)
		if err != nil {
			return state.Plan{}, fn.Errorf("Unable to manage file: %w", err)
		}
		if replace = !same; replace {
			changes.Set("diff", t.diff())
		}
	}
	merge(changes, t.own.differs(now))
	marked, err := t.args.marks().Differs(ctx, t.name)
	if err != nil {
		return state.Plan{}, err
	}
	merge(changes, marked)
	if changes.Len() == 0 {
		return state.Plan{
			Comment:  "File " + t.name + " is in the correct state",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "The file " + t.name + " is in the correct state"},
		}, nil
	}
	return t.steps(changes, replace), nil
}

func (t *managedFile) diff() string {
	obfuscate, _ := t.e.Config.Get("obfuscate_templates").(bool)
	switch {
	case obfuscate:
		return "<Obfuscated Template>"
	case !t.args.ShowChanges:
		return "<show_changes=False>"
	}
	d, err := t.want.Diff(t.name)
	if err != nil {
		return err.Error()
	}
	return d
}

// planOwner is for a file whose content is left alone.
func (t *managedFile) planOwner(ctx context.Context, now filesys.Facts) (state.Plan, error) {
	changes := t.own.differs(now)
	marked, err := t.args.marks().Differs(ctx, t.name)
	if err != nil {
		return state.Plan{}, err
	}
	if old, _ := perms.Attributes(ctx, t.name); marked.Has("attrs") {
		marked.Set("attrs", value.DictOf("old", old, "new", *t.args.Attrs))
	}
	merge(changes, marked)
	if changes.Len() == 0 {
		return state.Plan{
			Comment:  "File " + t.name + " exists with proper permissions. No changes made.",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "File " + t.name + " not updated"},
		}, nil
	}
	comment := "File " + t.name + " not updated"
	if changes.Has("mode") {
		comment = "File " + t.name + " will be updated with permissions " + t.own.mode + " from its current state of " + now.Mode
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: changes, Comment: comment},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := t.own.available(); err != nil {
				return state.Change{}, err
			}
			d, err := t.apply(t.name, t.own, t.args.FollowSymlinks)
			if err != nil {
				return state.Change{Diff: d}, err
			}
			marked, err := t.args.marks().Apply(ctx, t.name)
			return state.Change{Diff: merge(d, marked)}, err
		},
	}}}, nil
}

const note = "\nNote: No changes made, actual changes may\nbe different due to other states."

// planNew is for a file that is not there.
func (t *managedFile) planNew() (state.Plan, error) {
	p := t.steps(value.DictOf("newfile", t.name), true)
	return p, nil
}

// steps is the step that makes the file as declared.
func (t *managedFile) steps(foretold *value.Dict, replace bool) state.Plan {
	t.writes = replace && t.want != nil
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: foretold, Comment: "The file " + t.name + " is set to be changed" + note},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := t.own.available(); err != nil {
				return state.Change{}, err
			}
			if foretold.Has("newfile") {
				return t.create(ctx)
			}
			return t.update(ctx, foretold, replace)
		},
	}}}
}

// create makes the file.
func (t *managedFile) create(ctx context.Context) (state.Change, error) {
	if err := t.checked(ctx); err != nil {
		return state.Change{}, err
	}
	dir := filepath.Dir(t.name)
	if !filesys.IsDir(dir) {
		if !t.args.Makedirs {
			return state.Change{}, fn.Errorf("Parent directory not present")
		}
		mode := perms.DirMode(t.own.mode)
		if t.args.DirMode != nil {
			var err error
			if mode, err = filesys.ParseMode(filesys.NormalizeMode(t.args.DirMode)); err != nil {
				return state.Change{}, fn.Errorf("dir_mode: %w", err)
			}
		}
		if err := filesys.MakeDirs(dir, t.own.uid, t.own.gid, mode); err != nil {
			return state.Change{}, fn.Errorf("cannot make the directory %s: %w", dir, cause(err))
		}
	}
	change := state.Change{Diff: value.DictOf("diff", "New file"), Comment: "File " + t.name + " updated"}
	want := t.want
	if want == nil {
		want = &sources.Content{}
		change = state.Change{Diff: value.DictOf("new", "file "+t.name+" created"), Comment: "Empty file"}
	}
	if err := t.write(ctx, want, false); err != nil {
		return state.Change{}, err
	}
	now, err := filesys.Look(t.m, t.name, true)
	if err != nil {
		return state.Change{}, err
	}
	merge(change.Diff, t.newOwner(now))
	marked, err := t.args.marks().Apply(ctx, t.name)
	merge(change.Diff, marked)
	return change, err
}

// newOwner is what Salt shows of the owner and mode of a new file: what is not
// root's, and the mode unless only the owner has permissions.
func (t *managedFile) newOwner(now filesys.Facts) *value.Dict {
	mode := t.own.mode
	if t.sourced {
		mode = now.Mode
	}
	return perms.New(t.own.user, t.own.group, mode, now, filepath.Dir(t.name))
}

// update changes a file that is there.
func (t *managedFile) update(ctx context.Context, foretold *value.Dict, replace bool) (state.Change, error) {
	changes := value.NewDict(4)
	if replace {
		if err := t.checked(ctx); err != nil {
			return state.Change{}, err
		}
		if err := t.backup(); err != nil {
			return state.Change{}, err
		}
		if err := t.write(ctx, t.want, !t.args.FollowSymlinks); err != nil {
			return state.Change{}, err
		}
		changes.Set("diff", foretold.At("diff"))
	}
	if _, err := t.apply(t.name, t.own, t.args.FollowSymlinks); err != nil {
		return state.Change{Diff: changes}, err
	}
	for _, k := range []string{"user", "group", "mode"} {
		if foretold.Has(k) {
			changes.Set(k, foretold.At(k))
		}
	}
	marked, err := t.args.marks().Apply(ctx, t.name)
	if merge(changes, marked); err != nil {
		return state.Change{Diff: changes}, err
	}
	return state.Change{Diff: changes, Comment: "File " + t.name + " updated"}, nil
}

// write puts the content in place, with owner and mode.
func (t *managedFile) write(ctx context.Context, c *sources.Content, replaceLink bool) error {
	as := atomicfile.As{Mode: t.own.bits, UID: t.own.uid, GID: t.own.gid, ReplaceLink: replaceLink, Durable: true}
	pour := func(w io.Writer) error { return c.Pour(w) }
	taken := false
	as.Ready = func(final string, old fs.FileInfo) *os.File {
		f := t.ready(ctx, c, final, old)
		taken = f != nil
		return f
	}
	err := atomicfile.ReplaceAs(t.name, as, pour)
	if err != nil && taken {
		as.Ready = nil // it says better what is wrong when it writes
		err = atomicfile.ReplaceAs(t.name, as, pour)
	}
	if err != nil {
		return fn.Errorf("Failed to commit change: %w", err)
	}
	return nil
}

// backup keeps the old file if the state or the minion's configuration asks
// for that.
func (t *managedFile) backup() error { return t.backUp(t.e, t.name, t.args.Backup) }

func (f file) backUp(e *state.Env, name string, mode any) error {
	return sources.BackUp(e.Config, name, mode)
}

// checked runs check_cmd on the new content.
func (t *managedFile) checked(ctx context.Context) error {
	if t.args.CheckCmd == "" || t.want == nil {
		return nil
	}
	f, err := os.CreateTemp(t.args.TmpDir, "__salt.tmp.*"+t.args.TmpExt)
	if err != nil {
		return fn.Errorf("Unable to check_cmd file: %w", err)
	}
	defer os.Remove(f.Name())
	err = t.want.Pour(f)
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		_, err = t.apply(f.Name(), t.own, true)
	}
	if err != nil {
		return fn.Errorf("Unable to check_cmd file: %w", err)
	}
	shell, _ := t.e.Grains.Get("shell").(string)
	if shell == "" {
		shell = "/bin/sh"
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: []string{shell, "-c", t.args.CheckCmd + " " + f.Name()}, Env: os.Environ()})
	if err != nil {
		return fn.Errorf("check_cmd execution failed\n%w", err)
	}
	if r.Code != 0 {
		text := "check_cmd execution failed"
		for _, out := range [][]byte{r.Stdout, r.Stderr} {
			if s := strings.TrimRight(string(out), "\n"); s != "" {
				text += "\n" + s
			}
		}
		return fn.Errorf("%s", text)
	}
	return nil
}
