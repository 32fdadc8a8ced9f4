package vcs

import (
	"context"
	"errors"
	"slices"
	"strings"

	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	gitcmd "brine/internal/host/git"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// checkout describes an existing checkout.
type checkout struct {
	*following
	rev, branch string // HEAD and its branch, "" for none
	branches    []string
	tags        []string
	// base is the commit that must become the wanted one, on baseBranch.
	base, baseBranch string
	fetchURL         string // URL of the remote, "" for none
	follows          string // upstream of baseBranch
	dirty            bool   // has uncommitted changes
	equals           bool   // HEAD is the wanted commit
	has              bool   // the wanted commit exists, with the right name
	// ahead reports whether base is an ancestor of the wanted commit; nil if
	// this is unknown before a fetch.
	ahead *bool
}

func (f *following) update(ctx context.Context) (state.Plan, error) {
	if f.Bare {
		return f.updateBare()
	}
	c := &checkout{following: f}
	if err := c.look(ctx); err != nil {
		return state.Plan{}, err
	}
	if c.dirty && c.equals && f.ForceReset != true {
		return state.Plan{Comment: f.upToDate(nil, "", true)}, nil
	}
	if c.has && c.stays() {
		return state.Plan{Comment: c.present(c.place)}, nil
	}
	if c.has && c.ahead == nil {
		yes := c.base == "" || f.r.does(ctx, "merge-base", "--is-ancestor", c.base, f.hash)
		c.ahead = &yes
	}
	if c.ahead != nil && !*c.ahead && f.ForceReset == false {
		return state.Plan{}, c.notForward()
	}
	if f.hash == "" {
		return state.Plan{Comment: f.upToDate(nil, "", false)}, nil
	}
	forecast := c.forecast()
	if c.settled() {
		return state.Plan{Comment: f.upToDate(nil, "", false), Forecast: forecast}, nil
	}
	return state.Plan{Forecast: forecast, Steps: []state.Step{{Do: c.carryOut}}}, nil
}

// updateBare returns the plan that always fetches into a bare repository.
func (f *following) updateBare() (state.Plan, error) {
	would := "Bare repository at " + f.Target + " would be fetched"
	return state.Plan{
		Forecast: &state.Result{Verdict: state.Succeeded, Comment: f.upToDate([]string{would}, "that would be made", false)},
		Steps: []state.Step{{Do: func(ctx context.Context) (state.Change, error) {
			old := f.r.head(ctx)
			came, err := f.r.fetch(ctx, f.Remote, f.ForceFetch, f.refspecs())
			if err != nil {
				return state.Change{}, f.failedFetch(err)
			}
			f.say("Bare repository at " + f.Target + " was fetched")
			if came {
				f.done[0] += ", resulting in updated refs"
			}
			if rev := f.r.head(ctx); rev != old {
				f.changes.Set("revision", value.DictOf("old", orNil(old), "new", orNil(rev)))
				return state.Change{Diff: f.changes, Comment: sentences(f.done)}, nil
			}
			return state.Change{Comment: f.upToDate(f.done, "made", false)}, nil
		}}},
	}, nil
}

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func (f *following) refspecs() []string {
	if !f.FetchTags {
		return nil
	}
	return []string{"refs/heads/" + f.RefspecBranch + ":refs/remotes/" + f.Remote + "/" + f.RefspecBranch, "+refs/tags/" + f.RefspecTag + ":refs/tags/" +
		f.RefspecTag}
}

func (f *following) failedFetch(err error) error {
	return already(f.done, "Fetch failed. Set 'force_fetch' to True to force the fetch if the failure was due to not being able to fast-forward. "+
		"Output of the fetch command follows:\n\n%s", said(err))
}

// moves reports whether another local branch must be checked out.
func (c *checkout) moves() bool { return c.Branch != "" && c.Branch != c.branch }

// stays reports whether HEAD must not be moved although it differs.
func (c *checkout) stays() bool { return !c.equals && !c.UpdateHead && !c.moves() }

func (c *checkout) present(place string) string {
	if c.Rev == "HEAD" {
		place = strings.ToUpper(place[:1]) + strings.ToLower(place[1:])
	}
	return place + " is already present and local HEAD (" + short(c.rev) + ") does not match, but update_head=False. HEAD has not been updated locally."
}

// look examines the checkout.
func (c *checkout) look(ctx context.Context) error {
	r := c.r
	c.branches, c.tags = r.names(ctx, "refs/heads/"), r.names(ctx, "refs/tags/")
	c.rev, c.branch = r.head(ctx), r.branch(ctx)
	if c.hash == "" && c.rev != "" {
		return fn.Errorf("Remote repository is empty, cannot update from a non-empty to an empty repository")
	}
	c.base, c.baseBranch = c.rev, c.branch
	if c.moves() {
		if c.base = c.hash; slices.Contains(c.branches, c.Branch) {
			if c.baseBranch, c.base = c.Branch, r.commit(ctx, c.Branch); c.base == "" {
				return fn.Errorf("Unable to get position of local branch '%s'", c.Branch)
			}
		}
	}
	c.equals = c.equal(c.rev)
	_, err := r.Run(ctx, "diff", "--quiet", "HEAD")
	var e *gitcmd.Error
	c.dirty = errors.As(err, &e) && e.Exit == 1
	if d := r.remotes(ctx).Dict(c.Remote); d != nil {
		c.fetchURL = d.Str("fetch")
	}
	if c.baseBranch != "" {
		c.follows = r.word(ctx, "rev-parse", "--abbrev-ref", c.baseBranch+"@{upstream}")
	}
	if err := c.owns(ctx); err != nil {
		return err
	}
	if c.dirty && c.ForceReset != "remote-changes" {
		no := false
		c.ahead = &no
	}
	return nil
}

// owns determines whether the wanted commit already exists under its name.
func (c *checkout) owns(ctx context.Context) error {
	switch {
	case c.kind == kindHash && c.base != "" && strings.HasPrefix(c.base, c.hash):
		c.has = true
	case c.hash == "" || c.r.commit(ctx, c.hash) == "":
	case c.kind == kindBranch:
		c.has = c.fetchURL != "" && c.r.word(ctx, "rev-parse", c.upstream) == c.hash
	case c.kind == kindTag && slices.Contains(c.tags, c.Rev):
		local := c.r.commit(ctx, c.Rev)
		if c.has = local == c.hash; !c.has && c.ForceReset == false {
			return fn.Errorf("'%s' is a tag, but the remote SHA1 for this tag (%s) doesn't match the local SHA1 (%s). Set 'force_reset' to True to "+
				"force this update.", c.Rev, short(c.hash), short(local))
		}
	case c.kind == kindHash:
		c.has = true
	}
	return nil
}

// newTags returns the tags that the checkout lacks, and oldTags those that the
// remote repository lacks.
func (c *checkout) newTags() []string { return without(c.following.tags(), c.tags) }
func (c *checkout) oldTags() []string {
	if !c.SyncTags {
		return nil
	}
	return without(c.tags, c.following.tags())
}

func without(all, known []string) []string {
	var out []string
	for _, x := range all {
		if !slices.Contains(known, x) {
			out = append(out, x)
		}
	}
	return out
}

// settled reports whether nothing has to be done.
func (c *checkout) settled() bool {
	opts, _ := c.follow(c.follows, c.branches)
	return c.equals && c.has && !c.moves() && !c.dirty && c.fetchURL == c.url && opts == nil &&
		c.ahead != nil && *c.ahead && len(c.newTags())+len(c.oldTags()) == 0 && !c.Submodules
}

// notForward returns the error if local work would be lost.
func (c *checkout) notForward() error {
	advice := ""
	main := c.defaultBranch()
	switch {
	case c.Branch != "":
	case c.Rev != "HEAD" && c.branch != c.Rev:
		advice = " The desired rev (" + c.Rev + ") differs from the name of the local branch (" + c.branch +
			"), if the desired rev is a branch name then a forced update could possibly be avoided by setting the 'branch' argument to '" + c.Rev +
			"' instead."
	case c.Rev == "HEAD" && main != "" && c.branch != main:
		advice = " The default remote branch (" + main + ") differs from the local branch (" + c.branch +
			"). This could be caused by changing the default remote branch, or if the local branch was manually changed. Rather than forcing an " +
			"update, it may be advisable to set the 'branch' argument to '" + main + "' instead. To ensure that this state follows the '" + main +
			"' branch instead of the remote HEAD, set the 'rev' argument to '" + main + "'."
	}
	from, why, reset, lost := "", "this is not a fast-forward merge", "", ""
	if c.dirty {
		why, reset, lost = "there are uncommitted changes", " (or 'remote-changes')", " and discard these changes"
		if c.base != c.hash {
			from = "from " + short(c.base) + " "
		}
	}
	after := ""
	if c.moves() {
		after = " (after checking out local branch '" + c.Branch + "')"
	}
	return already(c.done, "Repository would be updated %sto %s%s, but %s. Set 'force_reset' to True%s to force this update%s.%s", from, short(c.hash), after,
		why, reset, lost, advice)
}

// forecast predicts what carryOut would do.
func (c *checkout) forecast() *state.Result {
	changes := value.NewDict(3)
	var would []string
	say := func(text string) { would = append(would, text) }
	newURL := c.fetchURL != c.url
	if c.dirty && c.equals && c.ForceReset == true {
		changes.Set("forced update", true)
		return &state.Result{Changes: changes, Comment: c.Target +
			" is up-to-date, but with uncommitted changes. Since 'force_reset' is set to True, these local changes would be reset. To only reset " +
			"when there are changes in the remote repository, set 'force_reset' to 'remote-changes'."}
	}
	switch {
	case newURL && c.fetchURL == "":
		say("Remote '" + c.Remote + "' would be set to " + redact.Text(c.url))
	case newURL:
		say("Remote '" + c.Remote + "' would be changed from " + redact.Text(c.fetchURL) + " to " + redact.Text(c.url))
	}
	switch {
	case !c.has && newURL:
		say("Remote would be fetched")
	case !c.has:
		say("Remote '" + c.Remote + "' would be fetched")
	}
	if !c.equals && (c.UpdateHead || c.moves()) {
		changes.Set("revision", value.DictOf("old", orNil(c.rev), "new", c.hash))
		if newURL && c.ahead != nil && !*c.ahead {
			changes.Set("forced update", true)
		}
	}
	c.foretellHead(say, newURL)
	fresh := c.moves() && !slices.Contains(c.branches, c.Branch)
	if _, word := c.follow(c.follows, c.branches); word != "" && !newURL && !fresh {
		say("Tracking branch would be " + word)
	}
	c.foretellTags(changes, say)
	switch {
	case changes.Len() > 0:
		return &state.Result{Comment: sentences(would), Changes: changes}
	case !c.equals && !c.UpdateHead && len(would) > 0:
		return &state.Result{Verdict: state.Succeeded, Comment: sentences(would)}
	}
	return &state.Result{Verdict: state.Succeeded, Comment: c.upToDate(would, "that would be made", false)}
}

func (c *checkout) foretellTags(changes *value.Dict, say func(string)) {
	if tags := c.newTags(); len(tags) > 0 {
		changes.Set("new_tags", value.Strings(tags))
		say("The following tags would be fetched: " + strings.Join(tags, ", "))
	}
	if tags := c.oldTags(); len(tags) > 0 {
		changes.Set("deleted_tags", value.Strings(tags))
		say("The following tags would be removed from the local checkout: " + strings.Join(tags, ", "))
	}
}

// foretellHead predicts where HEAD would move.
func (c *checkout) foretellHead(say func(string), newURL bool) {
	how := "updated"
	if c.ahead != nil {
		if how = "hard-reset"; *c.ahead {
			how = "fast-forwarded"
		}
	}
	switch {
	case newURL:
		if !c.equals && c.UpdateHead {
			say("Repository would be " + how + " to " + short(c.hash))
		}
	case c.moves() && !slices.Contains(c.branches, c.Branch):
		say("New branch '" + c.Branch + "' would be checked out, with " + c.place + " as a starting point")
		if c.upstream != "" {
			say("Tracking branch would be set to " + c.upstream)
		}
	case c.moves():
		say("Branch '" + c.Branch + "' would be checked out and " + how + " to " + short(c.hash))
	case c.equals:
	case !c.UpdateHead:
		say("Local HEAD (" + short(c.rev) + ") does not match " + c.place + " but update_head=False, HEAD would not be updated locally")
	default:
		if how == "hard-reset" && !c.has {
			how = "updated"
		}
		say("Repository would be " + how + " from " + value.Str(orNil(short(c.rev))) + " to " + short(c.hash))
	}
}

// carryOut updates the checkout.
func (c *checkout) carryOut(ctx context.Context) (state.Change, error) {
	comment, err := c.work(ctx)
	if err != nil {
		return state.Change{Diff: c.changes}, c.fail(err)
	}
	if comment != "" { // HEAD was not moved
		return state.Change{Diff: c.changes, Comment: comment}, nil
	}
	rev := c.r.head(ctx)
	if !c.equal(rev) {
		return state.Change{Diff: c.changes}, already(c.done, "Failed to update repository")
	}
	if rev == c.rev {
		return state.Change{Diff: c.changes, Comment: c.upToDate(c.done, "made", false)}, nil
	}
	c.changes.Set("revision", value.DictOf("old", orNil(c.rev), "new", rev))
	return state.Change{Diff: c.changes, Comment: sentences(c.done)}, nil
}

func (c *checkout) work(ctx context.Context) (comment string, err error) {
	if err := c.point(ctx); err != nil {
		return "", err
	}
	if c.fetchURL != c.url { // git has dropped the upstream of the branches
		c.has = false
		c.follows = c.r.word(ctx, "rev-parse", "--abbrev-ref", c.baseBranch+"@{upstream}")
	}
	opts, word := c.follow(c.follows, c.branches)
	if opts != nil && c.branch == "" {
		return "", already(c.done, "Cannot set/unset upstream tracking branch, local HEAD refers to nonexistent branch. This may have been caused by "+
			"cloning a remote repository for which the default branch was renamed or deleted. If you are unable to fix the remote repository, you "+
			"can work around this by setting the 'branch' argument (which will ensure that the named branch is created if it does not already exist).")
	}
	if len(c.newTags())+len(without(c.tags, c.following.tags())) > 0 {
		c.has = false // tags are updated by a fetch
	}
	c.syncTags(ctx)
	if !c.has {
		if comment, err := c.bring(ctx); comment != "" || err != nil {
			return comment, err
		}
	}
	if err := c.move(ctx); err != nil {
		return "", err
	}
	if opts != nil {
		if _, err := c.r.Run(ctx, opts...); err != nil {
			return "", err
		}
		c.say("Tracking branch was " + word)
	}
	if err := c.forward(ctx); err != nil {
		return "", err
	}
	if c.Submodules {
		if err := c.r.submodules(ctx); err != nil {
			return "", already(c.done, "Failed to update submodules: %s", said(err))
		}
	}
	return "", nil
}

// point sets the URL of the remote repository.
func (c *checkout) point(ctx context.Context) error {
	if c.fetchURL == c.url {
		return nil
	}
	if err := c.r.setRemote(ctx, c.Remote, c.url); err != nil {
		return err
	}
	if c.fetchURL == "" {
		c.say("Remote '" + c.Remote + "' set to " + redact.Text(c.url))
		c.changes.Set("new", c.Name+" => "+c.Remote)
		return nil
	}
	c.say("Remote '" + c.Remote + "' changed from " + redact.Text(c.fetchURL) + " to " + redact.Text(c.url))
	return nil
}

func (c *checkout) syncTags(ctx context.Context) {
	if tags := c.newTags(); len(tags) > 0 {
		c.changes.Set("new_tags", value.Strings(tags))
	}
	var gone []string
	for _, tag := range c.oldTags() {
		if c.r.does(ctx, "tag", "-d", tag) {
			gone = append(gone, tag)
		}
	}
	if len(gone) > 0 {
		c.changes.Set("deleted_tags", value.Strings(gone))
		c.say("The following tags were removed from the local checkout: " + strings.Join(gone, ", "))
	}
}

// bring fetches. If comment is not empty, nothing else must be done.
func (c *checkout) bring(ctx context.Context) (comment string, err error) {
	came, err := c.r.fetch(ctx, c.Remote, c.ForceFetch, c.refspecs())
	if err != nil {
		return "", c.failedFetch(err)
	}
	if came {
		c.say(c.Name + " was fetched, resulting in updated refs")
	}
	if _, err := c.r.Run(ctx, "rev-parse", c.hash+"^{commit}"); err != nil {
		return "", fn.Errorf("Fetch did not successfully retrieve rev '%s' from %s: %w", c.Rev, c.Name, err)
	}
	if c.stays() {
		return c.present(c.place), nil
	}
	ahead := c.base == "" || c.r.does(ctx, "merge-base", "--is-ancestor", c.base, c.hash)
	c.ahead = &ahead
	if c.ForceReset == false && (!ahead || c.dirty) {
		return "", c.notForward()
	}
	return "", nil
}

// move checks out the local branch and discards what force_reset allows.
func (c *checkout) move(ctx context.Context) error {
	if c.moves() {
		if c.dirty && !c.ForceCheckout {
			return fn.Errorf("Local branch '%s' has uncommitted changes. Set 'force_checkout' to True to discard them and proceed.", c.branch)
		}
		args := []string{"checkout"}
		if c.ForceCheckout {
			args = append(args, "--force")
		}
		made := "'" + c.Branch + "' was checked out"
		if slices.Contains(c.branches, c.Branch) {
			args = append(args, c.Branch)
		} else {
			args = append(args, "-b", c.Branch, c.start())
			made = "New branch '" + c.Branch + "' was checked out, with " + c.place + " as a starting point"
		}
		if _, err := c.r.Run(ctx, args...); err != nil {
			return err
		}
		c.say(made)
	}
	switch {
	case !*c.ahead:
		if _, err := c.r.Run(ctx, "reset", "--hard", c.hash); err != nil {
			return err
		}
		c.changes.Set("forced update", true)
		if c.dirty {
			c.say("Uncommitted changes were discarded")
		}
		c.say("Repository was hard-reset to " + c.place)
	case c.dirty && c.ForceReset != false:
		if _, err := c.r.Run(ctx, "checkout", "--", "."); err != nil {
			return err
		}
		c.say("Uncommitted changes were discarded")
	}
	return nil
}

// forward fast-forwards HEAD.
func (c *checkout) forward(ctx context.Context) error {
	if !*c.ahead || c.equal(c.base) {
		return nil
	}
	if c.upstream == "" && c.Rev != "HEAD" {
		if _, err := c.r.Run(ctx, "reset", "--hard", c.Rev); err != nil {
			return err
		}
		c.say("Repository was reset to " + c.Rev + " (fast-forward)")
		return nil
	}
	if c.r.word(ctx, "symbolic-ref", "--quiet", "HEAD") == "" {
		return already(c.done, "Unable to fast-forward, HEAD is detached")
	}
	if _, err := c.r.Run(ctx, "merge", "--ff-only", c.hash); err != nil {
		return err
	}
	c.say("Repository was fast-forwarded to " + c.place)
	return nil
}
