package vcs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	gitcmd "brine/internal/host/git"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

type git struct{ m *host.Machine }

// args are the arguments of all functions; each declares those it takes.
type args struct {
	Cwd       any    `salt:"cwd" doc:"directory of the checkout"`
	URL       string `salt:"url" doc:"address of the repository"`
	Name      any    `salt:"name" doc:"name: of a branch or tag, or of the directory of a clone"`
	Rev       any    `salt:"rev" doc:"commit, branch or tag" default:"null"`
	Ref       any    `salt:"ref" doc:"reference" default:"null"`
	Remote    any    `salt:"remote" doc:"name of the remote repository" default:"null"`
	Filename  any    `salt:"filename" doc:"file"`
	Message   any    `salt:"message" doc:"message"`
	Command   string `salt:"command" doc:"command of git submodule"`
	Key       string `salt:"key" doc:"name of the setting"`
	Value     any    `salt:"value" doc:"value of the setting" default:"null"`
	Multivar  any    `salt:"multivar" doc:"list of values of the setting" default:"null"`
	Regex     any    `salt:"value_regex" doc:"only values that this fits" default:"null"`
	Force     bool   `salt:"force" doc:"overwrite what is in the way" default:"false"`
	Short     bool   `salt:"short" doc:"return a short hash" default:"false"`
	Bare      bool   `salt:"bare" doc:"make a repository without a checkout" default:"false"`
	Template  any    `salt:"template" doc:"directory of templates" default:"null"`
	GitDir    any    `salt:"separate_git_dir" doc:"directory for the repository itself" default:"null"`
	Shared    any    `salt:"shared" doc:"who may write" default:"null"`
	Refspecs  any    `salt:"refspecs" doc:"list of what to fetch" default:"null"`
	Heads     bool   `salt:"heads" doc:"only branches" default:"false"`
	Tags      bool   `salt:"tags" doc:"only tags" default:"false"`
	Opts      any    `salt:"opts" doc:"further options of the command" default:""`
	GitOpts   any    `salt:"git_opts" doc:"further options of git itself" default:""`
	User      string `salt:"user" doc:"user that git runs as" default:"null"`
	Password  any    `salt:"password" ignored:"only Windows needs it" default:"null"`
	Identity  any    `salt:"identity" doc:"file of a private key for SSH, or a list" default:"null"`
	HTTPSUser string `salt:"https_user" doc:"name for HTTPS" default:"null"`
	HTTPSPass string `salt:"https_pass" doc:"password for HTTPS" default:"null"`
	PushURL   any    `salt:"push_url" doc:"address to push to" default:"null"`
	PushUser  string `salt:"push_https_user" doc:"name for pushing by HTTPS" default:"null"`
	PushPass  string `salt:"push_https_pass" doc:"password for pushing by HTTPS" default:"null"`
	Redact    bool   `salt:"redact_auth" doc:"hide names and passwords in addresses" default:"true"`
	Ignore    bool   `salt:"ignore_retcode" ignored:"failures are returned, not logged" default:"false"`
	Saltenv   string `salt:"saltenv" doc:"environment of an identity file" default:"base"`
	Encoding  any    `salt:"output_encoding" ignored:"output is UTF-8" default:"null"`
	Info      bool   `salt:"versioninfo" doc:"return a list of numbers" default:"false"`
}

// open is args with any further keywords.
type open struct {
	args
	Kwargs fn.Kwargs `salt:"kwargs"`
}

const (
	tail = "user password ignore_retcode output_encoding"
	plus = "opts git_opts " + tail
	far  = "opts git_opts user password identity ignore_retcode"
)

func takes(names string) fn.Option { return fn.Params(strings.Fields(names)...) }

func init() { units.Register("git", gitModule) }

func gitModule(m *host.Machine) fn.Module {
	g := git{m}
	when := func(fn.Reader) (string, bool) {
		if m.Which("git") == "" {
			return "The git execution module cannot be loaded: git unavailable.", false
		}
		return "", true
	}
	ex := func(line string) fn.Option { return fn.Example("salt myminion git." + line) }
	return fn.Module{Name: "git", When: when, Doc: `Checkouts and repositories of git.`, Funcs: append(g.commands(),
		fn.Of("add", g.add, `Put a file into the index.`, ex("add /path/to/repo foo.txt"), takes("cwd filename "+plus)),
		fn.Of("branch", g.branch, `Make, change or delete a branch.`, ex("branch /path/to/repo newbranch develop"), takes("cwd name "+plus),
			fn.Default("name", "null")),
		fn.Of("checkout", g.checkout, `Check a revision out.`, ex("checkout /path/to/repo rev=mybranch"), takes("cwd rev force "+plus)),
		fn.Of("clone", g.clone, `Clone a repository.`, ex("clone /path/to/repo_parent_dir git://example.com/x.git"),
			takes("cwd url name opts git_opts user password identity https_user https_pass ignore_retcode saltenv output_encoding"), fn.Default("url", ""),
			fn.Default("name", "null")),
		fn.Of("commit", g.commit, `Commit what is in the index, or a file.`, ex("commit /path/to/repo 'The commit message'"),
			takes("cwd message opts git_opts user password filename ignore_retcode output_encoding"), fn.Default("filename", "null")),
		fn.Of("config_get", g.configGet, `Return the value of a setting; the keywords are all and global.`, ex("config_get user.email /path/to/repo"),
			takes("key cwd "+tail), fn.Default("cwd", "null")),
		fn.Of("config_set", g.configSet, `Set a setting; the keywords are add and global.`, ex("config_set user.email me@example.com cwd=/path/to/repo"),
			takes("key value multivar cwd "+tail), fn.Default("cwd", "null")),
		fn.Of("config_unset", g.configUnset, `Remove a setting; the keywords are all and global.`, ex("config_unset foo.bar cwd=/path/to/repo"),
			takes("key value_regex cwd "+tail), fn.Default("cwd", "null")),
		fn.Of("current_branch", g.currentBranch, `Return the name of the branch that is checked out.`, ex("current_branch /path/to/repo"),
			takes("cwd "+tail)),
		fn.Of("describe", g.describe, `Return the name of a revision by the nearest tag.`, ex("describe /path/to/repo"), takes("cwd rev "+tail),
			fn.Default("rev", "HEAD")),
		fn.Of("fetch", g.fetch, `Fetch from a remote repository and return what is new.`, ex("fetch /path/to/repo upstream"),
			takes("cwd remote force refspecs opts git_opts user password identity ignore_retcode saltenv output_encoding")),
		fn.Of("init", g.init, `Make a repository.`, ex("init /path/to/repo"), takes("cwd bare template separate_git_dir shared "+plus)),
		fn.Of("is_worktree", g.isWorktree, `Say whether a directory is a further checkout of a repository.`, ex("is_worktree /path/to/repo"),
			takes("cwd user password output_encoding")),
		fn.Of("list_tags", g.listTags, `Return the names of all tags.`, ex("list_tags /path/to/repo"), takes("cwd "+tail)),
		fn.Of("ls_remote", g.lsRemote, `Return the references of a remote repository, or the hash of one.`, ex("ls_remote /path/to/repo origin master"),
			takes("cwd remote ref opts git_opts user password identity https_user https_pass ignore_retcode output_encoding saltenv"),
			fn.Default("cwd", "null"), fn.Default("remote", "origin")),
		fn.Of("merge", g.merge, `Merge a revision.`, ex("merge /path/to/repo upstream/foo"), takes("cwd rev "+far+" output_encoding")),
		fn.Of("pull", g.pull, `Fetch and merge.`, ex("pull /path/to/repo opts='--rebase origin master'"), takes("cwd "+far+" saltenv output_encoding")),
		fn.Of("push", g.push, `Push to a remote repository.`, ex("push /path/to/repo origin master"),
			takes("cwd remote ref "+far+" saltenv output_encoding")),
		fn.Of("remote_get", g.remoteGet, `Return the addresses of a remote repository.`, ex("remote_get /path/to/repo"),
			takes("cwd remote user password redact_auth ignore_retcode output_encoding"), fn.Default("remote", "origin")),
		fn.Of("remote_refs", g.remoteRefs, `Return the references of a repository at an address; the keyword filter limits them.`,
			ex("remote_refs https://example.com/x.git"),
			takes("url heads tags user password identity https_user https_pass ignore_retcode output_encoding saltenv")),
		fn.Of("remote_set", g.remoteSet, `Set the addresses of a remote repository.`, ex("remote_set /path/to/repo git@example.com:x/y.git"),
			takes("cwd url remote user password https_user https_pass push_url push_https_user push_https_pass ignore_retcode output_encoding"),
			fn.Default("remote", "origin")),
		fn.Of("remotes", g.remotes, `Return the addresses of all remote repositories.`, ex("remotes /path/to/repo"),
			takes("cwd user password redact_auth ignore_retcode output_encoding")),
		fn.Of("reset", g.plain("reset"), `Reset the checkout.`, ex("reset /path/to/repo opts='--hard origin/main'"), takes("cwd "+far+" output_encoding")),
		fn.Of("rev_parse", g.revParse, `Return what a revision means.`, ex("rev_parse /path/to/repo HEAD"), takes("cwd rev "+plus)),
		fn.Of("revision", g.revision, `Return the hash of a revision.`, ex("revision /path/to/repo mybranch"), takes("cwd rev short "+tail),
			fn.Default("rev", "HEAD")),
		fn.Of("rm", g.rm, `Remove a file from the index and the checkout.`, ex("rm /path/to/repo foo.txt"), takes("cwd filename "+plus)),
		fn.Of("status", g.status, `Return what differs from the last commit.`, ex("status /path/to/repo"), takes("cwd "+tail)),
		fn.Of("submodule", g.submodule, `Work with submodules.`, ex("submodule /path/to/repo update opts='--init'"),
			takes("cwd command "+far+" saltenv output_encoding")),
		fn.Of("tag", g.tag, `Make or delete a tag.`, ex("tag /path/to/repo v0.1.1"), takes("cwd name ref message "+plus), fn.Default("ref", "HEAD"),
			fn.Default("message", "null")),
		fn.Of("version", g.version, `Return the version of git.`, ex("version"), takes("versioninfo")),
		fn.Of("list_branches", g.listBranches, `Return the names of all branches, of remote repositories if remote is true.`,
			ex("list_branches /path/to/repo"), takes("cwd remote "+tail), fn.Default("remote", "false")),
	)}
}

// given rejects a missing argument that is required.
func given(v any, name string) error {
	if v == nil || v == "" {
		return fn.Invalidf("Missing '%s' argument", name)
	}
	return nil
}

// run prepares git: the directory, relative to the user's home directory, and
// the keys.
func (g git) run(ctx context.Context, c *fn.Call, a args) (gitcmd.Git, error) {
	r := gitcmd.Git{Machine: g.m, User: a.User}
	if a.Cwd != nil {
		r.Dir = g.directory(ctx, a)
	}
	var files []any
	switch x := a.Identity.(type) {
	case nil:
	case *value.List:
		files = x.Items
	default:
		files = []any{x}
	}
	for _, f := range files {
		path := value.Str(f)
		if strings.HasPrefix(path, "salt://") {
			cached, err := c.Files.CacheFile(ctx, path, a.Saltenv)
			if err != nil {
				return r, fn.Errorf("cannot fetch the identity file: %w", err)
			}
			if err := os.Chmod(cached, 0o600); err != nil {
				return r, fn.Errorf("%w", err)
			}
			path = cached
		}
		r.Identities = append(r.Identities, path)
	}
	return r, nil
}

func (g git) directory(ctx context.Context, a args) string {
	dir := value.Str(a.Cwd)
	if filepath.IsAbs(dir) {
		return dir
	}
	home := g.m.Env("HOME")
	if u, ok := account.ByName(ctx, g.m, a.User); ok {
		home = u.Home
	}
	return filepath.Join(home, strings.TrimPrefix(dir, "~/"))
}

// words splits options as a shell does and drops a trailing --.
func words(v any) ([]string, error) {
	var w []string
	switch x := v.(type) {
	case nil:
	case *value.List:
		w = value.Texts(x)
	default:
		var err error
		if w, err = proc.Split(value.Str(x)); err != nil {
			return nil, fn.Invalidf("cannot read the options: %w", err)
		}
	}
	if n := len(w); n > 0 && w[n-1] == "--" {
		w = w[:n-1]
	}
	return w, nil
}

// command returns the command line: git GITOPTS name OPTS more.
func (g git) command(ctx context.Context, c *fn.Call, a args, name string, more ...string) (gitcmd.Git, []string, error) {
	r, err := g.run(ctx, c, a)
	if err != nil {
		return r, nil, err
	}
	before, err := words(a.GitOpts)
	if err != nil {
		return r, nil, err
	}
	opts, err := words(a.Opts)
	if err != nil {
		return r, nil, err
	}
	return r, append(append(append(before, strings.Fields(name)...), opts...), more...), nil
}

// failed marks git's errors to be shown as they are.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return fn.Errorf("%w", err)
}

func (g git) do(ctx context.Context, c *fn.Call, a args, name string, more ...string) (string, error) {
	r, line, err := g.command(ctx, c, a, name, more...)
	if err != nil {
		return "", err
	}
	out, err := r.Run(ctx, line...)
	return out, failed(err)
}

// said does the same as do, for commands that write to standard error.
func (g git) said(ctx context.Context, c *fn.Call, a args, name string, more ...string) (string, error) {
	r, line, err := g.command(ctx, c, a, name, more...)
	if err != nil {
		return "", err
	}
	out, err := r.Said(ctx, line...)
	return out, failed(err)
}

// plain returns a function that only runs a command.
func (g git) plain(name string) func(context.Context, *fn.Call, args) (string, error) {
	return func(ctx context.Context, c *fn.Call, a args) (string, error) { return g.do(ctx, c, a, name) }
}

// optional returns an optional argument as a list.
func optional(v any) []string {
	if v == nil || v == "" {
		return nil
	}
	return []string{value.Str(v)}
}

// revisions returns the names of revisions that are given, and fails if git would take one for an
// option. "-" is the branch before.
func revisions(names ...any) (given []string, err error) {
	for _, n := range names {
		given = append(given, optional(n)...)
	}
	for _, n := range given {
		if n == "-" {
			continue
		}
		if err := host.NoOption("git", n); err != nil {
			return nil, err
		}
	}
	return given, nil
}

func lines(text string) *value.List {
	if text == "" {
		return &value.List{}
	}
	return value.Strings(strings.Split(text, "\n"))
}

func (g git) add(ctx context.Context, c *fn.Call, a args) (string, error) {
	if err := given(a.Filename, "filename"); err != nil {
		return "", err
	}
	return g.do(ctx, c, a, "add --verbose", "--", value.Str(a.Filename))
}

func (g git) rm(ctx context.Context, c *fn.Call, a args) (string, error) {
	if err := given(a.Filename, "filename"); err != nil {
		return "", err
	}
	return g.do(ctx, c, a, "rm", "--", value.Str(a.Filename))
}

func (g git) branch(ctx context.Context, c *fn.Call, a args) (bool, error) {
	_, err := g.do(ctx, c, a, "branch", host.Operands(optional(a.Name)...)...)
	return err == nil, err
}

func (g git) checkout(ctx context.Context, c *fn.Call, a args) (string, error) {
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	if a.Rev == nil && !strings.Contains(" "+strings.ToLower(strings.Join(opts, " "))+" ", " -b ") {
		return "", fn.Invalidf("'rev' argument is required unless -b or -B in opts")
	}
	name := "checkout"
	if a.Force {
		name += " --force"
	}
	revs, err := revisions(a.Rev)
	if err != nil {
		return "", err
	}
	return g.said(ctx, c, a, name, revs...)
}

func (g git) clone(ctx context.Context, c *fn.Call, a args) (bool, error) {
	if err := given(a.URL, "url"); err != nil {
		return false, err
	}
	url, err := gitcmd.WithPassword(a.URL, a.HTTPSUser, a.HTTPSPass)
	if err != nil {
		return false, fn.Invalidf("%w", err)
	}
	dir := g.directory(ctx, a)
	if a.Name != nil {
		if err := os.MkdirAll(g.m.Path(dir), 0o755); err != nil {
			return false, failed(err)
		}
		_, err = g.do(ctx, c, a, "clone", "--", url, value.Str(a.Name))
		return err == nil, err
	}
	a.Cwd = "/tmp"
	_, err = g.do(ctx, c, a, "clone", "--", url, dir)
	return err == nil, err
}

func (g git) commit(ctx context.Context, c *fn.Call, a args) (string, error) {
	if err := given(a.Message, "message"); err != nil {
		return "", err
	}
	var more []string
	if a.Filename != nil {
		more = []string{"--", value.Str(a.Filename)}
	}
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	a.Opts = value.Strings(append([]string{"-m", value.Str(a.Message)}, opts...))
	return g.do(ctx, c, a, "commit", more...)
}

func (g git) currentBranch(ctx context.Context, c *fn.Call, a args) (string, error) {
	return g.do(ctx, c, a, "rev-parse", "--abbrev-ref", "HEAD")
}

func (g git) describe(ctx context.Context, c *fn.Call, a args) (string, error) {
	revs, err := revisions(a.Rev)
	if err != nil {
		return "", err
	}
	return g.do(ctx, c, a, "describe --always", revs...)
}

func (g git) fetch(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	name, more := "fetch", optional(a.Remote)
	if a.Force {
		name += " --force"
	}
	switch x := a.Refspecs.(type) {
	case nil:
	case *value.List:
		for _, it := range x.Items {
			more = append(more, value.Str(it))
		}
	default:
		more = append(more, strings.Split(value.Str(x), ",")...)
	}
	text, err := g.said(ctx, c, a, name, host.Operands(more...)...)
	if err != nil {
		return nil, err
	}
	return gitcmd.Fetched(text), nil
}

func (g git) init(ctx context.Context, c *fn.Call, a args) (string, error) {
	var more []string
	if a.Bare {
		more = append(more, "--bare")
	}
	for _, o := range []struct {
		v    any
		flag string
	}{{a.Template, "--template="}, {a.GitDir, "--separate-git-dir="}} {
		if o.v != nil {
			more = append(more, o.flag+value.Str(o.v))
		}
	}
	switch x := a.Shared.(type) {
	case nil:
	case int64:
		more = append(more, "--shared=0"+value.Str(x))
	default:
		more = append(more, "--shared="+strings.ToLower(value.Str(x)))
	}
	dir := g.directory(ctx, a)
	a.Cwd = "/"
	return g.do(ctx, c, a, "init", append(more, "--", dir)...)
}

func (g git) isWorktree(ctx context.Context, c *fn.Call, a args) (bool, error) {
	r, err := g.run(ctx, c, a)
	return err == nil && r.IsWorktree(ctx), err
}

func (g git) listBranches(ctx context.Context, c *fn.Call, a args) (*value.List, error) {
	kind := "refs/heads/"
	if value.Truth(a.Remote) {
		kind = "refs/remotes/"
	}
	out, err := g.do(ctx, c, a, "for-each-ref", "--format", "%(refname:short)", kind)
	return lines(out), err
}

func (g git) listTags(ctx context.Context, c *fn.Call, a args) (*value.List, error) {
	out, err := g.do(ctx, c, a, "for-each-ref", "--format", "%(refname:short)", "refs/tags/")
	return lines(out), err
}

func (g git) lsRemote(ctx context.Context, c *fn.Call, a args) (any, error) {
	remote, err := gitcmd.WithPassword(value.Str(a.Remote), a.HTTPSUser, a.HTTPSPass)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	out, err := g.do(ctx, c, a, "ls-remote", host.Operands(append([]string{remote}, optional(a.Ref)...)...)...)
	return gitcmd.Refs(out), err
}

func (g git) remoteRefs(ctx context.Context, c *fn.Call, a open) (*value.Dict, error) {
	url, err := gitcmd.WithPassword(a.URL, a.HTTPSUser, a.HTTPSPass)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	var more []string
	if a.Heads {
		more = append(more, "--heads")
	}
	if a.Tags {
		more = append(more, "--tags")
	}
	out, err := g.do(ctx, c, a.args, "ls-remote",
		append(more, host.Operands(append([]string{url}, optional(a.Kwargs.At("filter"))...)...)...)...)
	return gitcmd.Refs(out), err
}

func (g git) merge(ctx context.Context, c *fn.Call, a open) (string, error) {
	return g.do(ctx, c, a.args, "merge", host.Operands(optional(a.Rev)...)...)
}

func (g git) pull(ctx context.Context, c *fn.Call, a args) (string, error) {
	return g.do(ctx, c, a, "pull")
}

func (g git) push(ctx context.Context, c *fn.Call, a open) (string, error) {
	return g.said(ctx, c, a.args, "push", host.Operands(append(optional(a.Remote), optional(a.Ref)...)...)...)
}

func (g git) remotes(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	text, err := g.do(ctx, c, a, "remote", "--verbose")
	if err != nil {
		return nil, err
	}
	out := gitcmd.Remotes(text)
	if a.Redact {
		for _, v := range out.All() {
			addresses := v.(*value.Dict)
			for k, address := range addresses.All() {
				addresses.Set(k, redact.Text(value.Str(address)))
			}
		}
	}
	return out, nil
}

func (g git) remoteGet(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	all, err := g.remotes(ctx, c, a)
	if err != nil {
		return nil, err
	}
	d := all.Dict(value.Str(a.Remote))
	if d == nil {
		return nil, fn.Errorf("Remote '%s' not present in git checkout located at %s", value.Str(a.Remote), g.directory(ctx, a))
	}
	return d, nil
}

func (g git) remoteSet(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	url, err := gitcmd.WithPassword(a.URL, a.HTTPSUser, a.HTTPSPass)
	if err != nil {
		return nil, fn.Invalidf("%w", err)
	}
	name := value.Str(a.Remote)
	all, err := g.remotes(ctx, c, a)
	if err == nil && all.Has(name) {
		_, err = g.do(ctx, c, a, "remote", "rm", "--", name)
	}
	if err == nil {
		_, err = g.do(ctx, c, a, "remote", "add", "--", name, url)
	}
	if err == nil && a.PushURL != nil {
		push, bad := gitcmd.WithPassword(value.Str(a.PushURL), a.PushUser, a.PushPass)
		if bad != nil {
			return nil, fn.Invalidf("%w", bad)
		}
		_, err = g.do(ctx, c, a, "remote", "set-url", "--push", "--", name, push)
	}
	if err != nil {
		return nil, err
	}
	a.Redact = true
	return g.remoteGet(ctx, c, a)
}

func (g git) revParse(ctx context.Context, c *fn.Call, a args) (string, error) {
	revs, err := revisions(a.Rev)
	if err != nil {
		return "", err
	}
	return g.do(ctx, c, a, "rev-parse", revs...)
}

func (g git) revision(ctx context.Context, c *fn.Call, a args) (string, error) {
	name := "rev-parse"
	if a.Short {
		name += " --short"
	}
	revs, err := revisions(a.Rev)
	if err != nil {
		return "", err
	}
	return g.do(ctx, c, a, name, revs...)
}

func (g git) status(ctx context.Context, c *fn.Call, a args) (*value.Dict, error) {
	text, err := g.do(ctx, c, a, "status", "-z", "--porcelain")
	if err != nil {
		return nil, err
	}
	words := map[string]string{"M": "modified", "A": "new", "D": "deleted", "??": "untracked"}
	out := value.NewDict(0)
	for entry := range strings.SplitSeq(text, "\x00") {
		state, name, ok := strings.Cut(strings.TrimLeft(entry, " "), " ")
		if !ok {
			continue
		}
		if w, ok := words[state]; ok {
			state = w
		}
		if !out.Has(state) {
			out.Set(state, &value.List{})
		}
		out.At(state).(*value.List).Append(strings.TrimLeft(name, " "))
	}
	return out, nil
}

func (g git) submodule(ctx context.Context, c *fn.Call, a open) (string, error) {
	return g.do(ctx, c, a.args, "submodule "+a.Command)
}

func (g git) tag(ctx context.Context, c *fn.Call, a args) (string, error) {
	if err := given(a.Name, "name"); err != nil {
		return "", err
	}
	opts, err := words(a.Opts)
	if err != nil {
		return "", err
	}
	all := " " + strings.Join(opts, " ") + " "
	var more []string
	if a.Message != nil {
		more = append(more, "-m", value.Str(a.Message))
	}
	more = append(more, value.Str(a.Name))
	if !strings.Contains(all, " -d ") && !strings.Contains(all, " --delete ") {
		more = append(more, value.Str(a.Ref))
	}
	return g.do(ctx, c, a, "tag", more...)
}

func (g git) version(ctx context.Context, c *fn.Call, a args) (any, error) {
	a.Cwd = "/"
	out, err := g.do(ctx, c, a, "--version")
	f := strings.Fields(out)
	if err != nil || len(f) < 3 {
		return "unknown", nil
	}
	if !a.Info {
		return f[2], nil
	}
	l := &value.List{}
	for part := range strings.SplitSeq(f[2], ".") {
		if n, ok := number(part); ok {
			l.Append(n)
		} else {
			l.Append(part)
		}
	}
	return l, nil
}

func number(s string) (n int64, ok bool) {
	for _, r := range s {
		if r < '0' || r > '9' || n > 1<<40 {
			return 0, false
		}
		n = n*10 + int64(r-'0')
	}
	return n, s != ""
}

// where returns the option for the configuration file.
func where(a open) ([]string, error) {
	if a.Kwargs.Bool("global") {
		return []string{"--global"}, nil
	}
	if a.Cwd == nil {
		return nil, fn.Invalidf("'cwd' argument required unless global=True")
	}
	return nil, nil
}

func exit(err error) int {
	var e *gitcmd.Error
	if errors.As(err, &e) {
		return e.Exit
	}
	return 0
}

func (g git) configGet(ctx context.Context, c *fn.Call, a open) (any, error) {
	flags, err := where(a)
	if err != nil {
		return nil, err
	}
	out, err := g.do(ctx, c, a.args, "config", append(flags, "--get-all", a.Key)...)
	if exit(err) == 1 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := lines(out)
	if a.Kwargs.Bool("all") {
		return all, nil
	}
	if all.Len() == 0 {
		return "", nil
	}
	return all.Items[all.Len()-1], nil
}

func (g git) configSet(ctx context.Context, c *fn.Call, a open) (any, error) {
	flags, err := where(a)
	if err != nil {
		return nil, err
	}
	if (a.Value == nil) == (a.Multivar == nil) {
		return nil, fn.Invalidf("Only one of 'value' and 'multivar' is permitted")
	}
	var values []string
	switch x := a.Multivar.(type) {
	case nil:
		values = []string{value.Str(a.Value)}
	case *value.List:
		for _, it := range x.Items {
			values = append(values, value.Str(it))
		}
	default:
		values = strings.Split(value.Str(x), ",")
	}
	for i, v := range values {
		how := "--add"
		if i == 0 && !(a.Value != nil && a.Kwargs.Bool("add")) {
			how = "--replace-all"
		}
		if _, err := g.do(ctx, c, a.args, "config", append(flags, how, a.Key, v)...); err != nil {
			return nil, err
		}
	}
	a.Kwargs.Set("all", true)
	return g.configGet(ctx, c, a)
}

func (g git) configUnset(ctx context.Context, c *fn.Call, a open) (bool, error) {
	flags, err := where(a)
	if err != nil {
		return false, err
	}
	how := "--unset"
	if a.Kwargs.Bool("all") {
		how = "--unset-all"
	}
	_, err = g.do(ctx, c, a.args, "config", append(append(flags, how, a.Key), optional(a.Regex)...)...)
	switch exit(err) {
	case 1:
		return false, fn.Errorf("Section or key is invalid")
	case 5:
		if v, _ := g.configGet(ctx, c, a); v == nil {
			return false, fn.Errorf("Key '%s' does not exist", a.Key)
		}
		return false, fn.Errorf("Multiple values exist for key '%s'", a.Key)
	case 6:
		return false, fn.Errorf("The value_regex is invalid")
	}
	return err == nil, err
}
