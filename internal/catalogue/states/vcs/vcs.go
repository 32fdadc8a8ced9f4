// Package vcs holds the state modules git and hg: checkouts that follow a remote
// repository, repositories, and git settings. The texts of comments and the shape
// of changes are Salt's.
package vcs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/states"
	"brine/internal/host"
	"brine/internal/host/filesys"
	gitcmd "brine/internal/host/git"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// git is the state module of one machine.
type git struct{ m *host.Machine }

var functions []func(git) []state.Func

func add(f func(git) []state.Func) { functions = append(functions, f) }

// units holds the modules, which the files of this package register.
var units = states.Family()

// Modules returns the modules of this family, working on one machine.
func Modules(m *host.Machine) []state.Module { return units.Modules(m) }

func init() { units.Register("git", gitModule) }

func gitModule(m *host.Machine) state.Module {
	mod := state.Module{Name: "git", Doc: `Keep checkouts and settings of git as they are declared.`, When: func(fn.Reader) (string, bool) {
		if m.Which("git") == "" {
			return "git module could not be loaded", false
		}
		return "", true
	}}
	for _, f := range functions {
		mod.Funcs = append(mod.Funcs, f(git{m})...)
	}
	return mod
}

// as are the arguments for the user that runs git.
type as struct {
	User     string `salt:"user" doc:"user that git runs as" default:"null"`
	Password any    `salt:"password" ignored:"only Windows needs it" default:"null"`
	Encoding any    `salt:"output_encoding" ignored:"output is UTF-8" default:"null"`
}

// access are the arguments for authentication at a remote repository.
type access struct {
	as
	Identity  any    `salt:"identity" doc:"file of a private key for SSH, or a list" default:"null"`
	HTTPSUser string `salt:"https_user" doc:"name for HTTPS" default:"null"`
	HTTPSPass string `salt:"https_pass" doc:"password for HTTPS" default:"null"`
}

// repo is a checkout or repository.
type repo struct {
	gitcmd.Git
	dir string
}

func (g git) local(dir string, a as) repo {
	return repo{gitcmd.Git{Machine: g.m, Dir: dir, User: a.User}, dir}
}

// reach returns a repo like local, with the keys for remote repositories.
func (g git) reach(ctx context.Context, e *state.Env, dir string, a access) (repo, error) {
	r := g.local(dir, a.as)
	var files []any
	switch x := a.Identity.(type) {
	case nil:
	case string:
		files = []any{x}
	case *value.List:
		files = x.Items
	default:
		return r, fn.Errorf("identity must be either a list or a string")
	}
	for _, f := range files {
		path := value.Str(f)
		switch {
		case strings.HasPrefix(path, "salt://"):
			cached, err := e.Files.CacheFile(ctx, path, e.Saltenv)
			if err == nil {
				err = os.Chmod(cached, 0o600)
			}
			if err != nil {
				return r, fn.Errorf("identity '%s' does not exist.", path)
			}
			path = cached
		default:
			path = filesys.ExpandUser(path)
		}
		if !filepath.IsAbs(path) {
			return r, fn.Errorf("identity '%s' is not an absolute path", path)
		}
		r.Identities = append(r.Identities, path)
	}
	return r, nil
}

// address adds name and password to the URL of a remote repository.
func (a access) address(url string) (string, error) {
	full, err := gitcmd.WithPassword(url, a.HTTPSUser, a.HTTPSPass)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	return full, nil
}

// word returns the one-line output of git; "" if it fails.
func (r repo) word(ctx context.Context, args ...string) string {
	out, err := r.Run(ctx, args...)
	if err != nil {
		return ""
	}
	return out
}

func (r repo) does(ctx context.Context, args ...string) bool {
	_, err := r.Run(ctx, args...)
	return err == nil
}

func (r repo) head(ctx context.Context) string { return r.word(ctx, "rev-parse", "HEAD") }

func (r repo) branch(ctx context.Context) string {
	return r.word(ctx, "rev-parse", "--abbrev-ref", "HEAD")
}

func (r repo) commit(ctx context.Context, rev string) string {
	return r.word(ctx, "rev-parse", rev+"^{commit}")
}

// names lists the references below refs/heads/ or refs/tags/.
func (r repo) names(ctx context.Context, below string) []string {
	return strings.Fields(r.word(ctx, "for-each-ref", "--format", "%(refname:short)", below))
}

func (r repo) remotes(ctx context.Context) *value.Dict {
	return gitcmd.Remotes(r.word(ctx, "remote", "--verbose"))
}

// fetch fetches and reports whether anything changed.
func (r repo) fetch(ctx context.Context, remote string, force bool, refspecs []string) (bool, error) {
	args := []string{"fetch"}
	if force {
		args = append(args, "--force")
	}
	text, err := r.Said(ctx, append(append(args, remote), refspecs...)...)
	return gitcmd.Fetched(text).Len() > 0, err
}

func (r repo) setRemote(ctx context.Context, name, url string) error {
	if r.remotes(ctx).Has(name) {
		if _, err := r.Run(ctx, "remote", "rm", "--", name); err != nil {
			return err
		}
	}
	_, err := r.Run(ctx, "remote", "add", "--", name, url)
	return err
}

func (r repo) submodules(ctx context.Context) error {
	_, err := r.Run(ctx, "submodule", "update", "--init", "--recursive")
	return err
}

// clone creates the checkout; r.dir need not exist.
func (r repo) clone(ctx context.Context, url string, opts ...string) error {
	args := append(append([]string{"clone"}, opts...), "--", url, r.dir)
	r.Dir = ""
	_, err := r.Run(ctx, args...)
	return err
}

// isCheckout reports whether the directory is a checkout.
func (r repo) isCheckout(ctx context.Context) bool {
	return filesys.IsDir(filepath.Join(r.dir, ".git")) || filesys.IsDir(r.dir) && r.IsWorktree(ctx)
}

// room checks whether a directory can be cloned into. clear means that it has
// contents that must be removed, which force allows.
func room(target string, force bool) (clear bool, err error) {
	items, err := os.ReadDir(target)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fn.Errorf("cannot read %s: %w", target, err)
	}
	if len(items) > 0 && !force {
		return false, fn.Errorf("Target '%s' exists, is non-empty and is not a git repository. Set the 'force_clone' option to True to remove this "+
			"directory's contents and proceed with cloning the remote repository", target)
	}
	return force, nil
}

// empty removes the content of a directory.
func empty(target string) error {
	items, err := os.ReadDir(target)
	if err != nil {
		return fn.Errorf("Unable to remove\n  %s\n    %w", target, err)
	}
	for _, it := range items {
		if err := filesys.Remove(filepath.Join(target, it.Name())); err != nil {
			return fn.Errorf("Unable to remove\n  %s\n    %w", filepath.Join(target, it.Name()), err)
		}
	}
	return nil
}

// said returns git's error message without the command.
func said(err error) string {
	var e *gitcmd.Error
	if errors.As(err, &e) && e.Error() == err.Error() && e.Text != "" {
		return e.Text
	}
	return err.Error()
}

// sentences joins comments as Salt does.
func sentences(all []string) string {
	text := strings.Join(all, ". ")
	if len(all) > 1 {
		text += "."
	}
	return text
}

// already adds the changes made before a failure to the error.
func already(done []string, format string, args ...any) error {
	if len(done) == 0 {
		return fn.Errorf(format, args...)
	}
	return fn.Errorf(format+"\n\nChanges already made: %s", append(args, sentences(done))...)
}

// known rejects unknown keywords.
func known(k fn.Kwargs, names ...string) error {
	var bad []string
	for key, v := range k.Clean().All() {
		if name := value.Str(key); !strings.Contains(" "+strings.Join(names, " ")+" ", " "+name+" ") && !state.Internal(key) {
			bad = append(bad, name+"="+value.Str(v))
		}
	}
	if len(bad) > 0 {
		return fn.Errorf("The following keyword arguments are not valid: %s", strings.Join(bad, ", "))
	}
	return nil
}

// revision returns the argument rev as a string. As in Salt, null, false and 0 are rejected like an empty string.
func revision(rev any) (string, error) {
	if !value.Truth(rev) {
		return "", fn.Errorf("'%s' is not a valid value for the 'rev' argument", value.Str(rev))
	}
	return value.Str(rev), nil
}

// short returns the abbreviated hash.
func short(hash string) string { return hash[:min(len(hash), 7)] }

// isHash reports whether a revision looks like a hash or its beginning.
func isHash(rev string) bool {
	return len(rev) <= 40 && strings.Trim(rev, "0123456789abcdefABCDEF") == ""
}
