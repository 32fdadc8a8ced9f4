package files

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host"
	"brine/internal/host/filesys"
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

type managedArgs struct {
	Name string `salt:"name" doc:"path of the file"`
	contentArgs
	User           any     `salt:"user" doc:"user that owns the file" default:"null"`
	Group          any     `salt:"group" doc:"group that owns the file" default:"null"`
	Mode           any     `salt:"mode" doc:"mode, such as '0644'; keep takes that of the source" default:"null"`
	Attrs          *string `salt:"attrs" doc:"attributes as chattr(1) names them" default:"null"`
	Makedirs       bool    `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	DirMode        any     `salt:"dir_mode" doc:"mode of these directories; otherwise the file's with the right to enter" default:"null"`
	Replace        bool    `salt:"replace" doc:"replace the content of a file that is there" default:"true"`
	Backup         any     `salt:"backup" doc:"minion keeps a copy of the old file in the minion's cache" default:""`
	ShowChanges    bool    `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Create         bool    `salt:"create" doc:"make the file if there is none" default:"true"`
	FollowSymlinks bool    `salt:"follow_symlinks" doc:"manage what a symbolic link stands for, in place of the link" default:"true"`
	checkCommand
	Selinux *value.Dict `salt:"selinux" doc:"parts of the SELinux context" default:"null"`
	sources.SignatureArgs
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// templateError is an error of the template that a source is.
type templateError struct{ error }

func (e *templateError) Unwrap() error { return e.error }

// managedFile is a file with its declared state.
type managedFile struct {
	managed.File
	e    *state.Env
	args *managedArgs
	// want is the content; nil leaves the present one.
	want *sources.Content
	// sourced is set if the content comes from a source file.
	sourced bool
	// keep is set if the content is used only to create a missing file.
	keep bool
	seen seen
	// group holds the files that the same state writes, if it writes several, and
	// place is the index in it.
	group *group
	place int
	// writes is set if the plan writes the content.
	writes bool
	// showRejected means that the changes are shown although check_cmd has rejected them.
	showRejected bool
	source       sources.Source // source of the content, if any
}

// newManaged returns the file that the arguments describe. Its owner is not
// resolved yet.
func newManaged(m *host.Machine, e *state.Env, args *managedArgs) *managedFile {
	return &managedFile{e: e, args: args, File: managed.File{M: m, Name: filesys.ExpandUser(args.Name), Marks: args.marks(),
		Follow: args.FollowSymlinks, Parent: managed.Parent{Make: args.Makedirs, Mode: args.DirMode}, Backup: args.Backup, Config: e.Config,
		HideChanges: !args.ShowChanges}}
}

// seen describes what exists at a path: the path itself, and its target if it is a
// symbolic link.
type seen struct {
	link, file       filesys.Facts
	linkErr, fileErr error
}

// look examines a path once, for the whole plan.
func look(m *host.Machine, path string) (s seen) {
	s.link, s.linkErr = filesys.Look(m, path, false)
	s.file, s.fileErr = s.link, s.linkErr
	if s.isLink() {
		s.file, s.fileErr = filesys.Look(m, path, true)
	}
	return s
}

func (s *seen) isLink() bool { return s.linkErr == nil && s.link.IsLink() }
func (s *seen) isFile() bool { return s.fileErr == nil && s.file.IsFile() }
func (s *seen) isDir() bool  { return s.fileErr == nil && s.file.IsDir() }

func (f file) managed(ctx context.Context, e *state.Env, a managedArgs) (state.Plan, error) {
	return newManaged(f.m, e, &a).planned(ctx, nil)
}

// planned returns the plan. A file whose content must be written joins the group,
// if there is one.
func (t *managedFile) planned(ctx context.Context, g *group) (state.Plan, error) {
	a := t.args
	var plan state.Plan
	if _, ok := a.Kwargs.Get("file_mode"); ok {
		plan.Warnings = append(plan.Warnings, "The 'file_mode' argument will be ignored.  Please use 'mode' instead to set file permissions.")
	}
	if t.Name == "" {
		return plan, fn.Errorf("Destination file name is required")
	}
	var err error
	if t.keep, err = a.check(); err != nil {
		return plan, err
	}
	t.seen = look(t.M, t.Name)
	if !a.Create && !t.seen.isFile() {
		plan.Comment = "File " + t.Name + " is not present and is not set for creation"
		return plan, nil
	}
	if t.Own, err = managed.OwnerOf(ctx, t.M, a.User, a.Group, a.mode()); err != nil {
		return plan, err
	}
	switch {
	case !filepath.IsAbs(t.Name):
		return plan, fn.Errorf("Specified file %s is not an absolute path", t.Name)
	case t.seen.isDir():
		return plan, fn.Errorf("Specified target %s is a directory", t.Name)
	}
	if err := t.load(ctx); err != nil {
		var template *templateError
		if errors.As(err, &template) { // as in Salt, a run has a longer message
			plan.Forecast = &state.Result{Verdict: state.Failed, Comment: err.Error()}
			if a.Template != "py" || !python.Is(err, "salt.exceptions.SaltRenderError") { // the engine py reports errors of run itself
				err = fn.Errorf("Unable to manage file: %w", err)
			}
		}
		if nobody := t.Own.Available(); nobody != nil { // reported first in a run, but not in a test
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

// leaveSource removes the source from the cache unless it must be kept: immediately
// if it is no longer needed, else after the last step.
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

// mode returns the declared mode, "" if the file takes that of its source.
func (a *managedArgs) mode() string {
	if a.keepsMode() {
		return ""
	}
	return filesys.NormalizeMode(a.Mode)
}

func (a *managedArgs) keepsMode() bool {
	s, ok := a.Mode.(string)
	return ok && strings.EqualFold(s, "keep")
}

// check rejects invalid combinations of arguments. keep is set if the content is
// used only to create a missing file.
func (a *managedArgs) check() (keep bool, err error) {
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
		return false, fn.Errorf("'source' cannot be used in combination with 'contents', 'contents_pillar', or 'contents_grains'")
	case a.keepsMode() && n > 0:
		return false, fn.Errorf("Mode preservation cannot be used in combination with 'contents', 'contents_pillar', or 'contents_grains'")
	case n > 1:
		return false, fn.Errorf("Only one of 'contents', 'contents_pillar', and 'contents_grains' is permitted")
	}
	if _, ok := a.Context.(*value.Dict); a.Context != nil && !ok {
		return false, fn.Errorf("Context must be formed as a dict")
	}
	if _, ok := a.Defaults.(*value.Dict); given(a.Defaults) && !ok {
		return false, fn.Errorf("Defaults must be formed as a dict")
	}
	return !a.Replace || !hasSource && n == 0, nil
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

// template renders the file's content.
func (t *managedFile) template() fileTemplate {
	a := t.args
	target := sources.Target{Name: t.Name, User: a.User, Group: a.Group, Mode: a.Mode}
	if a.Attrs != nil {
		target.Attrs = *a.Attrs
	}
	return fileTemplate{t.e, &a.contentArgs, target, a.Kwargs.Dict}
}

// load determines the wanted content.
func (t *managedFile) load(ctx context.Context) error {
	a := t.args
	text, given, err := a.given(t.e)
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
			text, err = t.template().render(ctx, s)
			t.seen = look(t.M, t.Name) // rendering may have changed the file
			if err != nil {
				return err
			}
		}
		t.want, err = managed.Encoded(text, a.Encoding, a.EncodingErrors)
		return err
	}
	all, err := sources.Read(a.Source, a.SourceHash, t.e.Saltenv)
	l, list := a.Source.(*value.List)
	none := list && l.Len() == 0
	if err != nil || len(all) == 0 && !none {
		return err
	}
	if t.keep && t.seen.fileErr == nil {
		return nil // only owner and mode are managed
	}
	if none {
		return fn.Errorf("Unable to manage file: none of the specified sources were found")
	}
	choose := sources.Choose
	if list {
		choose = sources.FirstThere // also of one, as in Salt
	}
	s, err := choose(ctx, t.e.Files, all)
	if err != nil {
		return fn.Errorf("Unable to manage file: %w", err)
	}
	return t.loadSource(ctx, s)
}

func (t *managedFile) loadSource(ctx context.Context, s sources.Source) error {
	a := t.args
	t.sourced, t.source = true, s
	if a.Template != "" && isSource(s, t.Name) {
		return fn.Errorf("Unable to manage file: Source file cannot be the same as destination")
	}
	if path := strings.TrimPrefix(s.URL, "file://"); filepath.IsAbs(path) && filesys.IsDir(path) {
		return fn.Errorf("Unable to manage file: [Errno 21] Is a directory: '%s'", path)
	}
	old := ""
	if a.Template == "" && (a.FollowSymlinks || !t.seen.isLink()) && t.seen.isFile() && a.CheckCmd == "" {
		old = t.Name
	}
	c, err := sources.Fetch(ctx, t.e.Files, s, sources.How{Name: t.Name, HashName: a.SourceHashName, SkipVerify: a.SkipVerify, Insecure: !a.VerifySSL,
		ETag: a.UseETag, InMemory: true, Signed: a.SignatureArgs}, old)
	if err != nil {
		return err
	}
	if s.Web() {
		t.seen = look(t.M, t.Name) // the download took time, in which the file may have changed
		// If nothing was fetched, the file has the hash, and only owner and mode are
		// managed.
		t.keep = c == nil && a.SourceHash != "" && !a.SkipVerify
	}
	if a.keepsMode() {
		if bits, ok := managed.SourceMode(ctx, t.e.Files, s); ok {
			t.Own.Bits, t.Own.Mode = bits, filesys.NormalizeMode(strconv.FormatInt(int64(bits), 8))
		}
	}
	if c != nil && a.Template != "" {
		if err := t.template().supported(); err != nil {
			return err
		}
		text, err := c.Bytes()
		if err != nil {
			return fn.Errorf("Unable to manage file: %w", err)
		}
		out, err := t.template().renderFrom(ctx, string(text), s)
		t.seen = look(t.M, t.Name) // rendering may have changed the file
		if err != nil {
			return &templateError{err}
		}
		c = &sources.Content{Data: []byte(out)}
	}
	t.want = c
	return nil
}

// isSource reports whether a file is its own source.
func isSource(s sources.Source, name string) bool {
	if c := s.Scheme(); c != "" && c != "file" {
		return false
	}
	from, err := os.Stat(strings.TrimPrefix(s.URL, "file://"))
	if err != nil {
		return false
	}
	to, err := os.Stat(name)
	return err == nil && os.SameFile(from, to)
}

// plan compares the file with the declaration.
func (t *managedFile) plan(ctx context.Context) (state.Plan, error) {
	now, err := t.seen.link, t.seen.linkErr
	if t.Follow {
		now, err = t.seen.file, t.seen.fileErr
	}
	there := err == nil && (now.IsFile() || now.IsLink())
	if !there {
		if t.seen.linkErr == nil && !t.seen.isLink() {
			return state.Plan{}, fn.Errorf("%s is there and is no regular file", t.Name)
		}
		return t.steps(value.DictOf("newfile", t.Name), true), nil
	}
	if t.keep {
		return t.planOwner(ctx, now)
	}
	changes := value.NewDict(4)
	replace := t.want != nil
	switch {
	case now.IsLink() && replace && t.seen.isFile():
		changes.Set("diff", t.shownDiff())
	case now.IsLink():
		changes.Set("diff", "Replace symbolic link with regular file")
	case replace:
		same, err := t.want.Same(t.Name)
		if err != nil {
			return state.Plan{}, fn.Errorf("Unable to manage file: %w", err)
		}
		if replace = !same; replace {
			changes.Set("diff", t.shownDiff())
		}
	}
	more, err := t.Differs(ctx, now)
	if err != nil {
		return state.Plan{}, err
	}
	if merge(changes, more); changes.Len() == 0 {
		return state.Plan{
			Comment:  "File " + t.Name + " is in the correct state",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "The file " + t.Name + " is in the correct state"},
		}, nil
	}
	return t.steps(changes, replace), nil
}

// shownDiff returns the diff, or the error message if there is none.
func (t *managedFile) shownDiff() string {
	d, err := t.Diff(t.want)
	if err != nil {
		return err.Error()
	}
	return d
}

// planOwner returns the plan for a file whose content stays unchanged.
func (t *managedFile) planOwner(ctx context.Context, now filesys.Facts) (state.Plan, error) {
	changes, err := t.Differs(ctx, now)
	if err != nil {
		return state.Plan{}, err
	}
	if changes.Has("attrs") {
		old, _ := perms.Attributes(ctx, t.Name)
		changes.Set("attrs", value.DictOf("old", old, "new", *t.args.Attrs))
	}
	if changes.Len() == 0 {
		return state.Plan{
			Comment:  "File " + t.Name + " exists with proper permissions. No changes made.",
			Forecast: &state.Result{Verdict: state.Succeeded, Comment: "File " + t.Name + " not updated"},
		}, nil
	}
	comment := "File " + t.Name + " not updated"
	if changes.Has("mode") {
		comment = "File " + t.Name + " will be updated with permissions " + t.Own.Mode + " from its current state of " + now.Mode
	}
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: changes, Comment: comment},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := t.Own.Available(); err != nil {
				return state.Change{}, err
			}
			d, err := t.Apply(ctx)
			return state.Change{Diff: d}, err
		},
	}}}, nil
}

const note = "\nNote: No changes made, actual changes may\nbe different due to other states."

// steps returns the plan with the step that changes the file.
func (t *managedFile) steps(predicted *value.Dict, replace bool) state.Plan {
	t.writes = replace && t.want != nil
	return state.Plan{Steps: []state.Step{{
		Change: state.Change{Diff: predicted, Comment: "The file " + t.Name + " is set to be changed" + note},
		Do: func(ctx context.Context) (state.Change, error) {
			if err := t.Own.Available(); err != nil {
				return state.Change{}, err
			}
			if predicted.Has("newfile") {
				return t.create(ctx)
			}
			return t.update(ctx, predicted, replace)
		},
	}}}
}

// create creates the file.
func (t *managedFile) create(ctx context.Context) (state.Change, error) {
	if err := t.args.accepts(ctx, t.M, t.want, t.Own); err != nil {
		return state.Change{Diff: t.checked("New file")}, err
	}
	if err := t.MakeParent(); err != nil {
		return state.Change{}, err
	}
	comment := "File " + t.Name + " updated"
	if t.want == nil {
		comment = "Empty file"
	}
	changes, err := t.Create(t.want, t.sourced, t.ready(ctx))
	if err != nil {
		return state.Change{}, err
	}
	marked, err := t.Marks.Apply(ctx, t.Name)
	return state.Change{Diff: merge(changes, marked), Comment: comment}, err
}

// checked returns the changes that are shown if check_cmd fails.
func (t *managedFile) checked(diff any) *value.Dict {
	if !t.showRejected {
		return nil
	}
	return value.DictOf("diff", diff)
}

// update changes an existing file.
func (t *managedFile) update(ctx context.Context, predicted *value.Dict, replace bool) (state.Change, error) {
	changes := value.NewDict(4)
	if replace {
		if err := t.args.accepts(ctx, t.M, t.want, t.Own); err != nil {
			return state.Change{Diff: t.checked(predicted.At("diff"))}, err
		}
		if err := t.Replace(t.want, t.ready(ctx)); err != nil {
			return state.Change{}, err
		}
		changes.Set("diff", predicted.At("diff"))
	}
	if _, err := t.Own.Apply(t.M, t.Name, t.Follow); err != nil {
		return state.Change{Diff: changes}, err
	}
	for _, k := range []string{"user", "group", "mode"} {
		if predicted.Has(k) {
			changes.Set(k, predicted.At(k))
		}
	}
	marked, err := t.Marks.Apply(ctx, t.Name)
	if merge(changes, marked); err != nil {
		return state.Change{Diff: changes}, err
	}
	return state.Change{Diff: changes, Comment: "File " + t.Name + " updated"}, nil
}
