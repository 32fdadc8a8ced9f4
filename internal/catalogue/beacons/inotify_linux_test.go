package beacons

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
)

// TestInotify changes a tree between looks. Salt 3007.10 reports the same
// changes, except that it continues to report a renamed directory by its
// former path, and to watch a directory that was moved away.
func TestInotify(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	top := filepath.Join(r.root, "top")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	files := func(set ...any) *value.List { return value.ListOf(dict("files", dict(top, dict(set...)))) }
	config := files("recurse", true, "auto_add", true, "mask", value.ListOf("create", "delete", "close_write", "moved_from", "moved_to"),
		"exclude", value.ListOf(top+"/not", "*.swp", dict("/[0-9]+$", dict("regex", true))))
	look := func(want ...string) {
		t.Helper()
		var texts []string
		for _, w := range want {
			f := strings.Fields(w)
			path := filepath.Join(top, f[1])
			texts = append(texts, value.Repr(dict("tag", filepath.Dir(path), "path", path, "change", f[0])))
		}
		r.look("inotify", config, strings.Join(texts, " "))
	}
	t.Cleanup(func() { r.held.Close() })

	look() // the tree does not exist yet
	r.file("top/sub/a", "")
	look() // starts watching
	r.file("top/sub/a", "more")
	r.file("top/sub/b", "")
	look("IN_CLOSE_WRITE sub/a", "IN_CREATE sub/b", "IN_CLOSE_WRITE sub/b")
	for _, name := range []string{"not/this", ".a.swp", "sub/4711"} {
		r.file("top/"+name, "")
	}
	look()
	r.file("top/new/deep/c", "")
	look("IN_CREATE|IN_ISDIR new", "IN_CREATE|IN_ISDIR new/deep", "IN_CREATE new/deep/c")
	r.file("top/new/deep/d", "")
	look("IN_CREATE new/deep/d", "IN_CLOSE_WRITE new/deep/d")
	must(os.Rename(filepath.Join(top, "new"), filepath.Join(top, "old")))
	look("IN_MOVED_FROM|IN_ISDIR new", "IN_MOVED_TO|IN_ISDIR old")
	must(os.Remove(filepath.Join(top, "old/deep/c")))
	look("IN_DELETE old/deep/c")
	must(os.Rename(filepath.Join(top, "old"), filepath.Join(r.root, "away")))
	look("IN_MOVED_FROM|IN_ISDIR old")
	r.file("away/deep/e", "")
	look()

	// A file that an editor replaces is still watched.
	r.held.Close()
	r.held = nil
	top = filepath.Join(top, "sub/a")
	config = files("mask", value.ListOf("modify", "delete_self"))
	look()
	r.file("top/sub/a.new", "replaced")
	must(os.Rename(filepath.Join(r.root, "top/sub/a.new"), top))
	tell := func(changes ...string) {
		t.Helper()
		var texts []string
		for _, c := range changes {
			texts = append(texts, value.Repr(dict("tag", top, "path", top, "change", c)))
		}
		r.look("inotify", config, strings.Join(texts, " "))
	}
	tell("IN_DELETE_SELF", "IN_IGNORED")
	config = files("mask", value.ListOf("modify", "close_write"))
	r.held.Close()
	r.held = nil
	tell()
	twice := func() { r.file("top/sub/a", "x"); r.file("top/sub/a", "y") }
	twice()
	tell("IN_MODIFY", "IN_CLOSE_WRITE", "IN_MODIFY", "IN_CLOSE_WRITE")
	config.Append(dict("coalesce", true))
	twice()
	tell("IN_MODIFY", "IN_CLOSE_WRITE")
}

func TestInotifySettings(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, c := range []struct {
		files any
		want  string
	}{
		{nil, "it requires files, a map of paths"},
		{dict("/a", dict()), "files: /a: expected a map with mask, recurse or auto_add"},
		{dict("a", dict("recurse", true)), "files: a: expected an absolute path"},
		{dict("/a", dict("recurse", "yes")), "files: /a: recurse: expected true or false, got 'yes'"},
		{dict("/a", dict("mask", "open")), "files: /a: mask: expected a list, got 'open'"},
		{dict("/a", dict("mask", value.ListOf("look"))), "files: /a: mask: unknown word 'look'"},
		{dict("/a", dict("mask", value.ListOf("onlydir"))), "files: /a: mask: it names no change to report"},
		{dict("/a", dict("recurse", true, "exclude", value.ListOf(dict("(", dict("regex", true))))), "files: /a: exclude: (: "},
		{dict("/a", dict("mask", value.ListOf("open", "ignored"))), ""},
	} {
		list := value.ListOf()
		if c.files != nil {
			list.Append(dict("files", c.files))
		}
		conf, err := ParseConfig(list)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := r.kinds["inotify"].Validate(conf); err != nil {
			got = err.Error()
		}
		if got != c.want && (c.want == "" || !strings.HasPrefix(got, c.want)) {
			t.Errorf("%s: %q, want %q", value.Repr(list), got, c.want)
		}
	}
}
