package vcs

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	gitcmd "brine/internal/host/git"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(g git) []state.Func {
		return []state.Func{state.Of("latest", g.latest, `Keep a checkout at what a branch, a tag or the HEAD of a remote repository is at.`)}
	})
}

type latestArgs struct {
	Name          string `salt:"name" doc:"address of the remote repository"`
	Target        string `salt:"target" doc:"directory of the checkout"`
	Revision      any    `salt:"rev" doc:"branch, tag or commit; HEAD is what the remote repository has checked out" default:"HEAD"`
	Branch        string `salt:"branch" doc:"local branch; otherwise the one that is checked out" default:"null"`
	UpdateHead    bool   `salt:"update_head" doc:"move the local HEAD; false only fetches" default:"true"`
	ForceCheckout bool   `salt:"force_checkout" doc:"discard local changes that keep another branch from being checked out" default:"false"`
	ForceClone    bool   `salt:"force_clone" doc:"remove what is in the directory if it is no checkout" default:"false"`
	ForceFetch    bool   `salt:"force_fetch" doc:"fetch branches that were rewritten" default:"false"`
	ForceReset    any    `salt:"force_reset" doc:"discard local commits and changes that are in the way: true, false, or remote-changes, only when there is something new" default:"false"`
	Submodules    bool   `salt:"submodules" doc:"update submodules" default:"false"`
	Bare          bool   `salt:"bare" doc:"keep a repository without a checkout" default:"false"`
	Mirror        bool   `salt:"mirror" doc:"keep a mirror, which is bare" default:"false"`
	Remote        string `salt:"remote" doc:"name of the remote repository in the checkout" default:"origin"`
	FetchTags     bool   `salt:"fetch_tags" doc:"fetch tags, also those of no branch" default:"true"`
	SyncTags      bool   `salt:"sync_tags" doc:"remove tags that the remote repository does not have" default:"true"`
	Depth         *int64 `salt:"depth" doc:"number of commits that a clone gets" default:"null"`
	RefspecBranch string `salt:"refspec_branch" doc:"pattern of the branches to fetch" default:"*"`
	RefspecTag    string `salt:"refspec_tag" doc:"pattern of the tags to fetch" default:"*"`
	access
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// The kinds of revisions in the remote repository.
const (
	kindNone = iota
	kindBranch
	kindTag
	kindHash
)

// following is a checkout that follows a remote repository.
type following struct {
	latestArgs
	g   git
	r   repo
	url string // with user name and password
	// Rev is the argument rev; a hash is in lower case.
	Rev string

	// The wanted revision in the remote repository.
	refs *value.Dict
	kind int
	hash string // "" for none
	// upstream is the branch to track, "" for none. With rev HEAD (anyUpstream),
	// the present one is kept.
	upstream    string
	anyUpstream bool
	// place describes the revision for the user.
	place string

	done    []string
	changes *value.Dict
}

func (g git) latest(ctx context.Context, e *state.Env, a latestArgs) (state.Plan, error) {
	f := &following{latestArgs: a, g: g, changes: value.NewDict(2)}
	if err := f.check(); err != nil {
		return state.Plan{}, err
	}
	var err error
	if f.r, err = g.reach(ctx, e, a.Target, a.access); err != nil {
		return state.Plan{}, err
	}
	if f.url, err = a.address(a.Name); err != nil {
		return state.Plan{}, err
	}
	if err := f.resolve(ctx); err != nil {
		return state.Plan{}, err
	}
	if f.there(ctx) {
		return f.update(ctx)
	}
	return f.planClone()
}

// check rejects invalid combinations of arguments.
func (f *following) check() error {
	reset := f.ForceReset == true || f.ForceReset == false || f.ForceReset == "remote-changes"
	if err := known(f.Kwargs); err != nil {
		return err
	}
	if f.Mirror {
		f.Bare = true
	}
	switch {
	case f.Remote == "":
		return fn.Errorf("'remote' argument is required")
	case f.Target == "":
		return fn.Errorf("'target' argument is required")
	}
	var err error
	if f.Rev, err = revision(f.Revision); err != nil {
		return err
	}
	switch {
	case !reset:
		return fn.Errorf("'force_reset' must be one of True, False, or 'remote-changes'")
	case !filepath.IsAbs(f.Target):
		return fn.Errorf("target '%s' is not an absolute path", f.Target)
	case filesys.IsFile(f.Target):
		return fn.Errorf("Target '%s' exists and is a regular file, cannot proceed", f.Target)
	case f.Rev != "HEAD" && f.Bare:
		return fn.Errorf("'rev' is not compatible with the 'mirror' and 'bare' arguments")
	}
	return nil
}

// resolve looks up the revision in the remote repository.
func (f *following) resolve(ctx context.Context) error {
	far := f.r
	far.Dir = ""
	text, err := far.Run(ctx, "ls-remote", f.url)
	if err != nil {
		return fn.Errorf("Failed to check remote refs: %s", said(err))
	}
	f.refs = gitcmd.Refs(text)
	if !f.Bare {
		f.find()
		switch {
		case f.hash == "" && f.Rev != "HEAD":
			err = fn.Errorf("No revision matching '%s' exists in the remote repository", f.Rev)
		case f.kind == kindHash && f.Rev == "HEAD":
			f.place = "remote HEAD (" + short(f.hash) + ")"
		case f.kind == kindHash:
			f.place = short(f.hash)
		case f.kind == kindBranch:
			f.place = f.upstream + " (" + short(f.hash) + ")"
		default:
			f.place = f.Rev + " (" + short(f.hash) + ")"
		}
	}
	if f.Depth != nil && f.kind != kindBranch && f.kind != kindTag {
		return fn.Errorf("When 'depth' is used, 'rev' must be set to the name of a branch or tag on the remote repository")
	}
	return err
}

func (f *following) find() {
	ref := func(name string) string { return f.refs.Str(name) }
	switch {
	case f.Rev == "HEAD":
		if f.hash = ref("HEAD"); f.hash != "" {
			f.kind, f.anyUpstream = kindHash, true
		}
	case f.refs.Has("refs/heads/" + f.Rev):
		f.hash, f.kind, f.upstream = ref("refs/heads/"+f.Rev), kindBranch, f.Remote+"/"+f.Rev
	case f.refs.Has("refs/tags/" + f.Rev + "^{}"):
		f.hash, f.kind = ref("refs/tags/"+f.Rev+"^{}"), kindTag
	case f.refs.Has("refs/tags/" + f.Rev):
		f.hash, f.kind = ref("refs/tags/"+f.Rev), kindTag
	case isHash(f.Rev):
		f.Rev = strings.ToLower(f.Rev)
		f.hash, f.kind = f.Rev, kindHash
	}
}

// defaultBranch returns the branch that HEAD of the remote repository names.
func (f *following) defaultBranch() string {
	head := f.refs.Str("HEAD")
	for k, v := range f.refs.All() {
		if name, ok := strings.CutPrefix(value.Str(k), "refs/heads/"); ok && head != "" && v == head {
			return name
		}
	}
	return ""
}

// tags returns the tags of the remote repository.
func (f *following) tags() []string {
	var out []string
	for k := range f.refs.All() {
		if name, ok := strings.CutPrefix(value.Str(k), "refs/tags/"); ok && !strings.HasSuffix(name, "^{}") {
			out = append(out, name)
		}
	}
	return out
}

func (f *following) there(ctx context.Context) bool {
	if f.Bare { // a checkout is not a bare repository and must not be fetched into
		return filesys.IsDir(filepath.Join(f.Target, "refs")) || filesys.IsDir(f.Target) && f.r.IsWorktree(ctx)
	}
	return f.r.isCheckout(ctx)
}

// equal reports whether a local commit is the wanted one.
func (f *following) equal(local string) bool {
	if f.kind == kindHash && local != "" && f.hash != "" {
		return strings.HasPrefix(local, f.hash)
	}
	return local == f.hash
}

func (f *following) say(text string) { f.done = append(f.done, text) }

// fail returns the error of the state, with git's error message but without the
// command.
func (f *following) fail(err error) error {
	var own *fn.CommandError
	if errors.As(err, &own) {
		return err
	}
	return already(f.done, "%s", said(err))
}

// upToDate returns the comment if HEAD is already correct.
func (f *following) upToDate(done []string, made string, dirty bool) string {
	text := "Repository " + f.Target + " is up-to-date"
	if dirty {
		text += ", but with uncommitted changes. Set 'force_reset' to True to purge uncommitted changes."
	}
	if len(done) > 0 {
		text += "\n\nChanges " + made + ": " + sentences(done)
	}
	return text
}

// follow returns options that set the upstream of the local branch, nil if
// nothing must change.
func (f *following) follow(now string, branches []string) (opts []string, word string) {
	switch {
	case f.upstream != "" && now != f.upstream:
		if word = "updated to " + f.upstream; now == "" {
			word = "set to " + f.upstream
		}
		if f.Branch != "" && !slices.Contains(branches, f.Branch) {
			return nil, word // checking out the branch sets it
		}
		return []string{"branch", "--set-upstream-to", f.upstream}, word
	case f.upstream == "" && !f.anyUpstream && now != "":
		return []string{"branch", "--unset-upstream"}, "unset"
	}
	return nil, ""
}
