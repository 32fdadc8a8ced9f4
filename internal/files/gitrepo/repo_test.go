package gitrepo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/gittest"
)

// origin is a bare repository and a working copy that pushes to it.
type origin struct {
	t         testing.TB
	bare, dir string
}

func newOrigin(t testing.TB) *origin {
	t.Helper()
	base := t.TempDir()
	o := &origin{t: t, bare: filepath.Join(base, "origin.git"), dir: filepath.Join(base, "work")}
	gittest.Run(t, base, "init", "--quiet", "--bare", "--initial-branch=main", o.bare)
	gittest.Run(t, base, "init", "--quiet", "--initial-branch=main", o.dir)
	o.git("remote", "add", "origin", o.bare)
	return o
}
func (o *origin) git(args ...string) string { o.t.Helper(); return gittest.Run(o.t, o.dir, args...) }

// commit writes files, pushes a branch and returns the commit.
func (o *origin) commit(branch string, files map[string]string) string {
	o.t.Helper()
	o.git("checkout", "--quiet", "-B", branch)
	gittest.Write(o.t, o.dir, files)
	o.git("add", "-A")
	o.git("commit", "--quiet", "--allow-empty", "-m", "x")
	o.git("push", "--quiet", "--force", "origin", branch)
	return o.git("rev-parse", "HEAD")
}

func openClone(t testing.TB, r Remote, dir string) *Clone {
	t.Helper()
	if r.ID == "" {
		r.ID = r.URL
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	c := Open(r, Config{Dir: filepath.Join(dir, "copy"), Work: filepath.Join(dir, "work"), Leases: &Leases{Global: true}})
	t.Cleanup(c.Close)
	return c
}

func update(t testing.TB, c *Clone) Result {
	t.Helper()
	r, err := c.Update(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// files returns the served files of a branch, by name.
func files(t testing.TB, c *Clone, branch string) map[string]string {
	t.Helper()
	s := c.Snapshot()
	commit, ok := s.Branch(branch)
	if !ok {
		return nil
	}
	tree, err := c.Tree(t.Context(), s, commit)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, e := range tree.Entries {
		if e.Kind == Directory || e.Kind == Submodule {
			continue
		}
		var b bytes.Buffer
		if err := c.Copy(t.Context(), s, e.ID, &b); err != nil {
			t.Fatal(err)
		}
		if int64(b.Len()) != e.Size {
			t.Errorf("%s has %d bytes, not %d", e.Path, b.Len(), e.Size)
		}
		out[e.Path] = b.String()
	}
	return out
}

func TestUpdateFollowsTheRemote(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	first := o.commit("main", map[string]string{"a": "1", "d/b": "2"})
	c := openClone(t, Remote{URL: o.bare}, t.TempDir())
	if c.Snapshot() != nil {
		t.Fatal("something is served before anything was fetched")
	}
	if !update(t, c).Changed || update(t, c).Changed {
		t.Fatal("the first update changes, the second does not")
	}
	if got := fmt.Sprint(files(t, c, "main")); got != "map[a:1 d/b:2]" {
		t.Error(got)
	}
	// A push, a new branch, an annotated tag.
	o.commit("main", map[string]string{"a": "3"})
	o.commit("dev/x", map[string]string{"c": "4"})
	o.git("tag", "-a", "-m", "t", "v1", first)
	o.git("tag", "-a", "-m", "t", "v2", "v1")
	o.git("push", "--quiet", "origin", "v1", "v2")
	if !update(t, c).Changed {
		t.Error("a push is no change")
	}
	s := c.Snapshot()
	for _, tag := range []string{"v1", "v2"} {
		if got, ok := s.Tag(tag); !ok || got != first {
			t.Errorf("%s is %q, not %q", tag, got, first)
		}
	}
	if got := fmt.Sprint(files(t, c, "dev/x")); got != "map[a:3 c:4 d/b:2]" {
		t.Error(got)
	}
	if got, ok := c.Commit(t.Context(), s, first[:8]); !ok || got != first {
		t.Error(got, ok)
	}
	for _, bad := range []string{"", "abc", "--all", "HEAD", "main", strings.Repeat("0", 40), first + "0"} {
		if got, ok := c.Commit(t.Context(), s, bad); ok {
			t.Errorf("%q is the commit %s", bad, got)
		}
	}
	// A force-push, and a branch that was deleted and is now a directory of
	// branches.
	o.git("checkout", "--quiet", "--orphan", "fresh")
	o.git("rm", "-rfq", ".")
	o.commit("main", map[string]string{"z": "5"})
	o.git("push", "--quiet", "origin", ":dev/x")
	o.git("branch", "-D", "dev/x")
	o.commit("dev", map[string]string{"y": "6"})
	if !update(t, c).Changed {
		t.Error("a force-push is no change")
	}
	if got := fmt.Sprint(files(t, c, "main"), files(t, c, "dev/x"), files(t, c, "dev")); got != "map[z:5] map[] map[y:6 z:5]" {
		t.Error(got)
	}
}

// TestUnreachable checks that an unreachable or deleted remote is reported and
// changes nothing that is served.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.commit("main", map[string]string{"a": "1"})
	dir := t.TempDir()
	c := openClone(t, Remote{URL: o.bare}, dir)
	update(t, c)
	if err := os.Rename(o.bare, o.bare+".away"); err != nil {
		t.Fatal(err)
	}
	// A new process must serve the old state.
	c = openClone(t, Remote{URL: o.bare}, dir)
	for range 2 {
		if _, err := c.Update(t.Context(), 0); err == nil || !strings.Contains(err.Error(), o.bare) {
			t.Fatal(err)
		}
	}
	if st := c.Status(); st.Error == "" || st.Since.IsZero() || st.Fetched.IsZero() {
		t.Errorf("%+v", st)
	}
	if got := fmt.Sprint(files(t, c, "main")); got != "map[a:1]" {
		t.Error(got)
	}
	if err := os.Rename(o.bare+".away", o.bare); err != nil {
		t.Fatal(err)
	}
	update(t, c)
	if st := c.Status(); st.Error != "" || !st.Since.IsZero() {
		t.Errorf("%+v", st)
	}
	none := openClone(t, Remote{URL: o.bare + ".none"}, t.TempDir())
	if _, err := none.Update(t.Context(), 0); err == nil || none.Snapshot() != nil {
		t.Error(err)
	}
}

// TestCorruptedCopy checks that a copy with missing objects or references, or
// without any, is fetched again.
func TestCorruptedCopy(t *testing.T) {
	t.Parallel()
	damages := map[string]func(dir string) error{
		"no objects": func(dir string) error { return os.RemoveAll(dir + "/objects") },
		"empty objects": func(dir string) error {
			return filepath.WalkDir(dir+"/objects", func(p string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					if err := os.Chmod(p, 0o600); err != nil {
						return err
					}
					return os.Truncate(p, 10)
				}
				return err
			})
		},
		"no HEAD":     func(dir string) error { return os.Remove(dir + "/HEAD") },
		"bad refs":    func(dir string) error { return os.WriteFile(dir+"/packed-refs", []byte("rubbish\n"), 0o600) },
		"stale locks": func(dir string) error { return os.WriteFile(dir+"/packed-refs.lock", nil, 0o600) },
		"stale ref lock": func(dir string) error {
			return os.WriteFile(dir+"/refs/remotes/origin/main.lock", nil, 0o600)
		},
		"all gone": os.RemoveAll,
	}
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOrigin(t)
			o.commit("main", map[string]string{"a": "1"})
			dir := t.TempDir()
			c := openClone(t, Remote{URL: o.bare}, dir)
			update(t, c)
			o.commit("main", map[string]string{"a": "2"})
			if err := damage(filepath.Join(dir, "copy", c.Snapshot().Directory)); err != nil {
				t.Fatal(err)
			}
			c = openClone(t, Remote{URL: o.bare}, dir)
			update(t, c)
			if got := fmt.Sprint(files(t, c, "main")); got != "map[a:2]" {
				t.Error(got)
			}
		})
	}
}

// TestReaderFindsDamage checks that missing data that a reader finds is
// repaired by the next update, even if the remote has not changed.
func TestReaderFindsDamage(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.commit("main", map[string]string{"a": "1"})
	dir := t.TempDir()
	c := openClone(t, Remote{URL: o.bare}, dir)
	update(t, c)
	s := c.Snapshot()
	commit, _ := s.Branch("main")
	tree, err := c.Tree(t.Context(), s, commit)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := tree.Find("a")
	packs, _ := filepath.Glob(filepath.Join(dir, "copy", s.Directory, "objects", e.ID[:2], e.ID[2:]))
	if len(packs) != 1 {
		t.Fatal("the object is not where it was expected")
	}
	if err := os.Remove(packs[0]); err != nil {
		t.Fatal(err)
	}
	if err := c.Copy(t.Context(), s, e.ID, &bytes.Buffer{}); err == nil || !c.Broken() {
		t.Fatal("a missing object is not noticed", err)
	}
	update(t, c)
	if got := fmt.Sprint(files(t, c, "main")); got != "map[a:1]" || c.Broken() {
		t.Error(got)
	}
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.commit("main", map[string]string{"good": "1", "tab\there": "2", "new\nline": "3", "\xe4\xf6": "4", "-rf": "5", "ünï": "6"})
	c := openClone(t, Remote{URL: o.bare}, t.TempDir())
	update(t, c)
	if got := fmt.Sprintf("%q", files(t, c, "main")); got != `map["-rf":"5" "good":"1" "new\nline":"3" "tab\there":"2" "ünï":"6"]` {
		t.Error(got)
	}
	s := c.Snapshot()
	commit, _ := s.Branch("main")
	tree, _ := c.Tree(t.Context(), s, commit)
	if fmt.Sprint(tree.Odd) != `["\xe4\xf6"]` {
		t.Error(tree.Odd)
	}
}

// TestReadTree checks that no name in a hostile tree leads elsewhere.
func TestReadTree(t *testing.T) {
	id := strings.Repeat("a", 40)
	line := func(mode, kind, name string) string {
		return mode + " " + kind + " " + id + "       7\t" + name + "\x00"
	}
	tree, err := readTree([]byte(line("100644", "blob", "../up") + line("100644", "blob", "/abs") + line("100644", "blob", "a/../b") +
		line("100644", "blob", ".git/config") +
		line("120000", "blob", "l") + line("100644", "blob", "l") + line("160000", "commit", "sub") + line("040000", "tree", "d") +
		line("100755", "blob", "d/x")))
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, e := range tree.Entries {
		got += fmt.Sprintf("%s:%d:%o ", e.Path, e.Size, e.Kind.Mode())
	}
	if got != "d:7:40000 d/x:7:100755 l:7:120000 sub:7:160000 " || len(tree.Odd) != 4 {
		t.Error(got, tree.Odd)
	}
	for _, bad := range []string{"x\x00", "100644 blob zz 1\tn\x00", "100644 blob " + id + "\tn\x00"} {
		if _, err := readTree([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestExport(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	if err := os.Symlink("a", o.dir+"/l"); err != nil {
		t.Fatal(err)
	}
	o.commit("main", map[string]string{"a": "1", "d/b": "2"})
	c := openClone(t, Remote{URL: o.bare}, t.TempDir())
	update(t, c)
	s := c.Snapshot()
	commit, _ := s.Branch("main")
	dest := filepath.Join(t.TempDir(), "out", "tree")
	for range 2 {
		if err := c.Export(t.Context(), s, commit, dest); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"a": "1", "d/b": "2", "l": "1"} {
		if b, err := os.ReadFile(filepath.Join(dest, name)); err != nil || string(b) != want {
			t.Error(name, string(b), err)
		}
	}
	if left, _ := filepath.Glob(filepath.Dir(dest) + "/.export*"); len(left) > 0 {
		t.Error(left)
	}
}

func TestCheck(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, good := range []Remote{
		{URL: "/srv/repo.git"}, {URL: "file:///srv/repo.git"}, {URL: "https://host/repo"}, {URL: "git@host:repo.git"}, {URL: "host:repo.git"},
		{URL: "ssh://git@host:22/repo"}, {URL: "git://host/x"},
		{URL: "git+ssh://git@host/x"}, {URL: "https://u:p@host/x"}, {URL: "https://h/x", Auth: Auth{User: "u", Password: "p"}},
		{URL: "http://h/x", Auth: Auth{User: "u", Password: "p", InsecureAuth: true}},
		{URL: "git@h:x", Auth: Auth{PrivKey: key}}, {URL: "/x", Refspecs: []string{"+refs/heads/*:refs/remotes/origin/*"}},
	} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []Remote{
		{URL: ""}, {URL: "--upload-pack=touch /tmp/x"}, {URL: "ext::sh -c touch% /tmp/x"}, {URL: "fd::3"}, {URL: "ftp://host/x"}, {URL: "-oProxyCommand=x:y"},
		{URL: "ssh://-oProxyCommand=x/y"},
		{URL: "ssh://u@-oProxyCommand=x/y"}, {URL: "https://h/\nx"}, {URL: "relative/path"}, {URL: "http://h/x", Auth: Auth{User: "u", Password: "p"}},
		{URL: "https://h/x", Auth: Auth{User: "u"}},
		{URL: "git@h:x", Auth: Auth{PrivKey: key + ".none"}}, {URL: "git@h:x", Auth: Auth{PubKey: key}}, {URL: "/x", Refspecs: []string{"--upload-pack=x"}},
		{URL: "/x", Refspecs: []string{"a b"}},
	} {
		if bad.ID = bad.URL; bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestCancelled(t *testing.T) {
	t.Parallel()
	o := newOrigin(t)
	o.commit("main", map[string]string{"a": "1"})
	c := openClone(t, Remote{URL: o.bare}, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Update(ctx, 0); err == nil {
		t.Error("no error")
	}
	update(t, c)
}
