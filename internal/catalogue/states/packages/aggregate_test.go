package packages

import (
	"testing"

	"brine/internal/py/value"
)

func TestAggregate(t *testing.T) {
	low := func(id string, more ...any) *value.Dict {
		d := value.DictOf("state", "pkg", "fun", "installed", "__id__", id, "name", id)
		d.Update(value.DictOf(more...))
		return d
	}
	first := low("a")
	removed := low("gone")
	removed.Set("fun", "removed")
	held, elsewhere, files := low("held", "hold", true), low("e", "fromrepo", "x"), low("f", "sources", value.ListOf(value.DictOf("f", "/f.deb")))
	b, c, done := low("b", "version", "2"), low("c", "pkgs", value.ListOf("c1", "a")), low("done")
	running := value.DictOf("pkg_|-done_|-done_|-installed", value.NewDict(0))
	got := aggregate(first, []*value.Dict{first, removed, held, elsewhere, files, b, c, done}, running)
	if text := value.Repr(got.At("pkgs")); text != "['a', {'b': '2'}, 'c1']" {
		t.Errorf("merged are %s", text)
	}
	if first.Has("pkgs") {
		t.Error("the state itself was changed")
	}
	for _, d := range []*value.Dict{b, c} {
		if d.At("__agg__") != true {
			t.Errorf("%s is not marked", d.Str("name"))
		}
	}
	for _, d := range []*value.Dict{removed, held, elsewhere, files, done} {
		if d.Has("__agg__") {
			t.Errorf("%s is marked", d.Str("name"))
		}
	}
	if text := value.Repr(aggregate(files, []*value.Dict{files, low("g", "sources", value.ListOf(value.DictOf("g", "/g.deb")))},
		running).At("sources")); text != "[{'f': '/f.deb'}, {'g': '/g.deb'}]" {
		t.Errorf("merged files are %s", text)
	}
	if got := aggregate(held, []*value.Dict{held, low("h")}, running); got.Has("pkgs") {
		t.Error("a package that is held takes others along")
	}
}
