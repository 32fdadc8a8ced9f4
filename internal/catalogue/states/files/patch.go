package files

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/files/fileclient"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("patch", f.patch,
			`Have a patch applied to a file or directory, with patch(1). A patch that does not fit as a whole changes nothing.`)}
	})
}

type patchArgs struct {
	Name       string    `salt:"name" doc:"path of the file or directory"`
	Source     any       `salt:"source" doc:"where the patch comes from: URL or path; of a list, the first that exists" default:"null"`
	SourceHash string    `salt:"source_hash" doc:"hash of the patch, kind=hash, or a file of hashes" default:"null"`
	HashName   string    `salt:"source_hash_name" doc:"name of the patch in a file of hashes" default:"null"`
	SkipVerify bool      `salt:"skip_verify" doc:"take a patch of the web without a hash" default:"false"`
	Template   string    `salt:"template" doc:"template engine that makes the patch, such as jinja" default:"null"`
	Context    any       `salt:"context" doc:"variables of the template" default:"null"`
	Defaults   any       `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
	Options    string    `salt:"options" doc:"options of patch(1)" default:"''"`
	RejectFile *string   `salt:"reject_file" doc:"where to put the parts of the patch that do not fit" default:"null"`
	Strip      *int64    `salt:"strip" doc:"number of directories to strip from the names in the patch" default:"null"`
	Saltenv    string    `salt:"saltenv" doc:"environment of a salt:// patch" default:"null"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// patching applies a patch to a file or directory.
type patching struct {
	patchArgs
	e       *state.Env
	options []string
}

func (f file) patch(ctx context.Context, e *state.Env, a patchArgs) (plan state.Plan, err error) {
	p := &patching{patchArgs: a, e: e}
	var warned []string
	for _, old := range []string{"hash", "dry_run_first"} {
		if _, ok := a.Kwargs.Get(old); ok {
			warned = append(warned, "The '"+old+"' argument is no longer used and has been ignored.")
		}
	}
	defer func() { plan.Warnings = append(warned, plan.Warnings...) }()
	if f.m.Which("patch") == "" {
		return plan, fn.Errorf("patch executable not found on minion")
	}
	if a.Name == "" {
		return plan, fn.Errorf("A file/directory to be patched is required")
	}
	switch p.Name = filesys.ExpandUser(a.Name); {
	case !filepath.IsAbs(p.Name):
		return plan, fn.Errorf("%s is not an absolute path", p.Name)
	case !filesys.Exists(p.Name, true):
		return plan, fn.Errorf("%s does not exist", p.Name)
	}
	if r := a.RejectFile; r != nil {
		switch dir := filepath.Dir(*r); {
		case !filepath.IsAbs(*r):
			return plan, fn.Errorf("'%s' is not an absolute path", *r)
		case !filesys.IsDir(dir):
			return plan, fn.Errorf("Parent directory for reject_file '%s' either does not exist, or is not a directory", *r)
		}
	}
	if err := p.readOptions(); err != nil {
		return plan, err
	}
	dir, err := os.MkdirTemp("", "patch")
	if err != nil {
		return plan, fn.Errorf("cannot make a directory for the patch: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := p.fetch(ctx, f, dir, &warned); err != nil {
		return plan, err
	}
	return p.plan(ctx, dir)
}

// readOptions parses the options and rejects some.
func (p *patching) readOptions() error {
	words, err := proc.Split(p.Options)
	if err != nil {
		return fn.Errorf("options: %w", err)
	}
	var bad []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		for _, no := range []string{"-N", "--forward", "-r", "--reject-file", "-o", "--output"} {
			if strings.HasPrefix(w, no) {
				bad = append(bad, w)
				break
			}
		}
		number, option := "", ""
		switch {
		case strings.HasPrefix(w, "-p"):
			number, option = w[2:], "-p"
		case strings.HasPrefix(w, "--strip"):
			option = "-strip"
			if j := strings.LastIndexByte(w, '='); j >= 0 {
				number = w[j+1:]
			} else if i++; i < len(words) {
				number = words[i]
			}
		default:
			p.options = append(p.options, w)
			continue
		}
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return fn.Errorf("Invalid format for '%s' CLI option. Consider using the 'strip' option for this state.", option)
		}
		p.Strip = &n
	}
	if len(bad) > 0 {
		return fn.Errorf("The following CLI options are not allowed: %s", strings.Join(bad, ", "))
	}
	return nil
}

// fetch copies the patch to a directory.
func (p *patching) fetch(ctx context.Context, f file, dir string, warned *[]string) error {
	all, err := sources.Read(p.Source, p.SourceHash, p.e.Saltenv)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fn.Errorf("a source is required: where the patch comes from")
	}
	s, err := sources.Choose(ctx, p.e.Files, all)
	if err != nil {
		return err
	}
	if _, env, _ := fileclient.SplitURL(s.URL); s.Scheme() == "salt" && p.Saltenv != "" {
		if env != "" && env != p.Saltenv {
			*warned = append(*warned, "Ignoring 'saltenv' option in favor of saltenv included in the source URL.")
		} else {
			s.Env = p.Saltenv
		}
	}
	t := newManaged(f.m, p.e, &managedArgs{Name: filepath.Join(dir, "patch"), contentArgs: contentArgs{
		SourceHash: p.SourceHash, SourceHashName: p.HashName, SkipVerify: p.SkipVerify, VerifySSL: true, Template: p.Template, Context: p.Context,
		Defaults: p.Defaults}})
	if err := t.loadSource(ctx, s); err != nil {
		return err
	}
	t.Own.UID, t.Own.GID, t.Own.Bits = -1, -1, 0o600
	return t.Write(t.want, nil)
}

// call runs patch(1), and returns the result of cmd.run_all.
func (p *patching) call(ctx context.Context, patch string, dry bool, more ...string) (*value.Dict, error) {
	var quoted []string
	for _, o := range append(p.options[:len(p.options):len(p.options)], more...) {
		quoted = append(quoted, proc.Quote(o))
	}
	v, err := p.e.Exec(ctx, "file.patch", value.DictOf("options", strings.Join(quoted, " "), "dry_run", dry), p.Name, patch)
	d, _ := v.(*value.Dict)
	return d, err
}

func (p *patching) strip() []string {
	if p.Strip == nil || !filesys.IsDir(p.Name) {
		return nil
	}
	return []string{"-p" + strconv.FormatInt(*p.Strip, 10)}
}

// plan tries the patch in a dry run.
func (p *patching) plan(ctx context.Context, dir string) (state.Plan, error) {
	patch, rejects := filepath.Join(dir, "patch"), filepath.Join(dir, "rejects")
	tried, err := p.call(ctx, patch, false, append([]string{"-N", "-r", rejects, "-o", filepath.Join(dir, "result")}, p.strip()...)...)
	if err != nil {
		return state.Plan{}, err
	}
	if code := tried.At("retcode"); code != int64(0) {
		return p.rejected(ctx, tried, rejects)
	}
	text, err := os.ReadFile(patch)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: tried, Comment: "The patch would be applied"},
		Do: func(ctx context.Context) (state.Change, error) {
			again, err := os.CreateTemp("", "patch")
			if err != nil {
				return state.Change{}, fn.Errorf("%w", err)
			}
			defer os.Remove(again.Name())
			_, err = again.Write(text)
			if e := again.Close(); err == nil {
				err = e
			}
			if err != nil {
				return state.Change{}, fn.Errorf("%w", err)
			}
			done, err := p.call(ctx, again.Name(), false, p.strip()...)
			switch {
			case err != nil:
				return state.Change{}, err
			case done.At("retcode") != int64(0):
				return state.Change{Diff: done}, fn.Errorf("Failed to apply patch")
			}
			return state.Change{Diff: done, Comment: "Patch successfully applied"}, nil
		}}}}, nil
}

// rejected handles a patch that does not apply. It may have been applied
// before; then the rejected hunks apply in reverse.
func (p *patching) rejected(ctx context.Context, tried *value.Dict, rejects string) (state.Plan, error) {
	if st, err := os.Stat(rejects); err != nil || st.Size() == 0 {
		return state.Plan{}, fn.Errorf("%s", tried.Str("stderr"))
	}
	reversed, err := p.call(ctx, rejects, true, "-R", "-f")
	switch {
	case err != nil:
		return state.Plan{}, err
	case tried.At("retcode") == int64(2) && tried.Str("stderr") != "":
		return state.Plan{}, fn.Errorf("%s", tried.Str("stderr"))
	case reversed.At("retcode") == int64(0):
		return state.Plan{Comment: "Patch was already applied"}, nil
	}
	hint := ""
	if p.RejectFile == nil {
		hint = " Run state again using the reject_file option to save rejects to a persistent file."
	}
	if p.RejectFile != nil {
		tried = tried.Clone()
		tried.Set("stdout", strings.ReplaceAll(tried.Str("stdout"), rejects, proc.Quote(*p.RejectFile)))
	}
	shown := strings.ReplaceAll(output.Nested(tried), "\n", "\n"+strings.Repeat(" ", 14))
	failed := fn.Errorf("Patch would not apply cleanly, no changes made. Results of dry-run are below.%s\n\n%s", hint, strings.Repeat(" ", 14)+shown)
	if p.RejectFile == nil {
		return state.Plan{}, failed
	}
	text, err := os.ReadFile(rejects)
	if err != nil {
		return state.Plan{}, fn.Errorf("%w", err)
	}
	return state.Plan{Forecast: &state.Result{Verdict: state.Failed, Comment: failed.Error()},
		Steps: []state.Step{{Do: func(context.Context) (state.Change, error) {
			if err := atomicfile.Write(*p.RejectFile, text, 0o644, true); err != nil {
				return state.Change{}, fn.Errorf("cannot write the reject_file: %w", err)
			}
			return state.Change{}, failed
		}}}}, nil
}
