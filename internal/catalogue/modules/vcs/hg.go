package vcs

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// hg runs Mercurial's hg(1).
type hg struct{ m *host.Machine }

func init() { units.Register("hg", hgModule) }

func hgModule(m *host.Machine) fn.Module {
	h := hg{m}
	when := func(fn.Reader) (string, bool) {
		return "The hg execution module cannot be loaded: hg unavailable.", m.Which("hg") != ""
	}
	ex := func(text string) fn.Option { return fn.Example("salt '*' hg." + text) }
	return fn.Module{Name: "hg", When: when, Doc: `Checkouts of Mercurial.`, Funcs: []fn.Func{
		fn.Of("revision", h.revision, `Return the hash of a revision, an empty text if there is none.`, takes("cwd rev short user"),
			ex("revision /path/to/repo mybranch")),
		fn.Of("describe", h.describe, `Return the name of a revision by the latest tag.`, takes("cwd rev user"), ex("describe /path/to/repo")),
		fn.Of("archive", h.archive, `Write the files of a revision into an archive or directory.`,
			ex("archive /path/to/repo output=/tmp/archive.tgz fmt=tgz")),
		fn.Of("pull", h.pull, `Fetch from another repository.`, ex("pull /path/to/repo opts=-u")),
		fn.Of("update", h.update, `Check a revision out.`, ex("update /path/to/repo somebranch")),
		fn.Of("clone", h.clone, `Clone a repository.`, ex("clone /path/to/repo https://bitbucket.org/birkenfeld/sphinx")),
		fn.Of("status", h.status, `Return what differs from the last commit, of one checkout or by a list of them.`, ex("status /path/to/repo")),
	}}
}

// run runs hg through the cmd module.
func (h hg) run(ctx context.Context, c *fn.Call, cwd, user any, words ...string) (*value.Dict, error) {
	kw := value.DictOf("python_shell", false)
	if value.Truth(cwd) {
		kw.Set("cwd", cwd)
	}
	if value.Truth(user) {
		kw.Set("runas", user)
	}
	v, err := c.Funcs.Call(ctx, c, "cmd.run_all", []any{value.Strings(append([]string{"hg"}, words...))}, kw)
	d, _ := v.(*value.Dict)
	return d, err
}

// must runs hg and returns an error if it fails.
func (h hg) must(ctx context.Context, c *fn.Call, cwd, user any, words ...string) (string, error) {
	d, err := h.run(ctx, c, cwd, user, words...)
	if err == nil && d.Int("retcode") != 0 {
		err = fn.Errorf("Hg command failed: %s", d.Str("stderr"))
	}
	return d.Str("stdout"), err
}

type hgRevisionArgs struct {
	Cwd   string `salt:"cwd" doc:"path of the checkout"`
	Rev   string `salt:"rev" doc:"revision" default:"tip"`
	Short bool   `salt:"short" doc:"the first digits alone" default:"false"`
	User  any    `salt:"user" doc:"user to run hg as" default:"null"`
}

func (h hg) revision(ctx context.Context, c *fn.Call, a hgRevisionArgs) (string, error) {
	words := []string{"id", "-i", "-r", a.Rev}
	if !a.Short {
		words = []string{"id", "-i", "--debug", "-r", a.Rev}
	}
	d, err := h.run(ctx, c, a.Cwd, a.User, words...)
	if err != nil || d.Int("retcode") != 0 {
		return "", err
	}
	return d.Str("stdout"), nil
}

func (h hg) describe(ctx context.Context, c *fn.Call, a hgRevisionArgs) (string, error) {
	d, err := h.run(ctx, c, a.Cwd, a.User, "log", "-r", a.Rev, "--template", "{latesttag}-{latesttagdistance}-{node|short}")
	if err != nil || d.Str("stdout") != "" {
		return d.Str("stdout"), err
	}
	a.Short = true
	return h.revision(ctx, c, a)
}

type hgArchiveArgs struct {
	Cwd    string `salt:"cwd" doc:"path of the checkout"`
	Output string `salt:"output" doc:"path of the archive"`
	Rev    string `salt:"rev" doc:"revision" default:"tip"`
	Format any    `salt:"fmt" doc:"type of the archive" default:"null"`
	Prefix any    `salt:"prefix" doc:"directory that the files are to be in" default:"null"`
	User   any    `salt:"user" doc:"user to run hg as" default:"null"`
}

func (h hg) archive(ctx context.Context, c *fn.Call, a hgArchiveArgs) (string, error) {
	words := []string{"archive", "--rev", a.Rev}
	if value.Truth(a.Format) {
		words = append(words, "--type", value.Str(a.Format))
	}
	if value.Truth(a.Prefix) {
		words = append(words, "--prefix", value.Str(a.Prefix))
	}
	d, err := h.run(ctx, c, a.Cwd, a.User, append(words, host.Operands(a.Output)...)...)
	if d.Int("retcode") != 0 {
		c.SetRetcode(int(d.Int("retcode")))
	}
	return strings.TrimSpace(d.Str("stdout") + "\n" + d.Str("stderr")), err
}

// hgFar returns the options for a remote repository, and the user's own.
func hgFar(identity, opts any) (words []string) {
	if value.Truth(identity) {
		words = append(words, "--ssh", "ssh -i "+value.Str(identity))
	}
	if value.Truth(opts) {
		words = append(words, strings.Fields(value.Str(opts))...)
	}
	return words
}

type hgPullArgs struct {
	Cwd        string `salt:"cwd" doc:"path of the checkout"`
	Opts       any    `salt:"opts" doc:"options of hg pull" default:"null"`
	User       any    `salt:"user" doc:"user to run hg as" default:"null"`
	Identity   any    `salt:"identity" doc:"file of a private key for SSH" default:"null"`
	Repository any    `salt:"repository" doc:"where to fetch from" default:"null"`
}

func (h hg) pull(ctx context.Context, c *fn.Call, a hgPullArgs) (string, error) {
	words := append([]string{"pull"}, hgFar(a.Identity, a.Opts)...)
	if a.Repository != nil {
		words = append(words, host.Operands(value.Str(a.Repository))...)
	}
	return h.must(ctx, c, a.Cwd, a.User, words...)
}

type hgUpdateArgs struct {
	Cwd   string `salt:"cwd" doc:"path of the checkout"`
	Rev   string `salt:"rev" doc:"revision"`
	Force bool   `salt:"force" doc:"throw local changes away" default:"false"`
	User  any    `salt:"user" doc:"user to run hg as" default:"null"`
}

func (h hg) update(ctx context.Context, c *fn.Call, a hgUpdateArgs) (string, error) {
	words := []string{"update"}
	if a.Force {
		words = append(words, "-C")
	}
	return h.must(ctx, c, a.Cwd, a.User, append(words, host.Operands(a.Rev)...)...)
}

type hgCloneArgs struct {
	Cwd        string `salt:"cwd" doc:"path of the new checkout"`
	Repository string `salt:"repository" doc:"what to clone"`
	Opts       any    `salt:"opts" doc:"options of hg clone" default:"null"`
	User       any    `salt:"user" doc:"user to run hg as" default:"null"`
	Identity   any    `salt:"identity" doc:"file of a private key for SSH" default:"null"`
}

func (h hg) clone(ctx context.Context, c *fn.Call, a hgCloneArgs) (string, error) {
	return h.must(ctx, c, nil, a.User, append(append([]string{"clone"}, hgFar(a.Identity, a.Opts)...), host.Operands(a.Repository, a.Cwd)...)...)
}

type hgStatusArgs struct {
	Cwd  any `salt:"cwd" doc:"path of the checkout, or a list"`
	Opts any `salt:"opts" doc:"options of hg status" default:"null"`
	User any `salt:"user" doc:"user to run hg as" default:"null"`
}

var hgLetters = map[byte]string{'M': "modified", 'A': "added", 'R': "removed", 'C': "clean", '!': "missing", '?': "not tracked", 'I': "ignored",
	' ': "origin of the previous file"}

func (h hg) status(ctx context.Context, c *fn.Call, a hgStatusArgs) (*value.Dict, error) {
	if l, ok := a.Cwd.(*value.List); ok {
		all := value.NewDict(l.Len())
		for _, it := range l.Items {
			one := a
			one.Cwd = value.Str(it)
			d, err := h.status(ctx, c, one)
			if err != nil {
				return nil, err
			}
			all.Set(it, d)
		}
		return all, nil
	}
	d, err := h.run(ctx, c, a.Cwd, a.User, append([]string{"status"}, hgFar(nil, a.Opts)...)...)
	if err != nil {
		return nil, err
	}
	found := value.NewDict(2)
	for line := range strings.Lines(d.Str("stdout")) {
		line = strings.TrimRight(line, "\n")
		if len(line) < 3 || hgLetters[line[0]] == "" {
			continue
		}
		kind := hgLetters[line[0]]
		files, _ := found.At(kind).(*value.List)
		if files == nil {
			files = &value.List{}
			found.Set(kind, files)
		}
		files.Append(line[2:])
	}
	return found, nil
}
