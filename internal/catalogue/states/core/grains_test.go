package core

import (
	"context"
	"path/filepath"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// store holds grains in memory.
type store struct{ d *value.Dict }

func (s *store) Grains() *value.Dict { return s.d }

func (s *store) Change(set *value.Dict, remove []string) {
	s.d = s.d.Clone()
	s.d.Update(set)
	for _, k := range remove {
		s.d.Delete(k)
	}
}

func (*store) Refresh(context.Context, bool) error { return nil }

// TestGrains sets, extends and removes grains: as a test, for real, and again.
func TestGrains(t *testing.T) {
	s := &store{value.DictOf("os", "Debian", "roles", value.ListOf("web"), "empty", nil, "nested", value.DictOf("a", value.ListOf("x")))}
	funcs, err := fn.NewRegistry(nil, append(core.Modules(), core.Grains(s))...)
	if err != nil {
		t.Fatal(err)
	}
	states, err := state.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	config := fn.Tree{Dict: value.DictOf("conf_file", filepath.Join(t.TempDir(), "minion"), "file_client", "local")}
	deps := engine.Deps{States: states, Call: func() *fn.Call {
		return &fn.Call{Funcs: funcs, Config: config, Grains: fn.Tree{Dict: s.d}}
	}}
	run := func(test bool, fun string, args *value.Dict) string {
		low := value.DictOf("state", "grains", "fun", fun, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
		low.Update(args)
		r := engine.New(deps, engine.Options{Test: test}).Single(t.Context(), low)
		return value.Str(r.At("result")) + ": " + value.Str(r.At("comment")) + " " + value.Str(r.At("changes"))
	}
	for _, c := range []struct {
		fun              string
		args             *value.Dict
		test, run, again string
		grain            string // the resulting grain, by path
		want             any
	}{
		{"exists", value.DictOf("name", "os"), "True: Grain exists {}", "True: Grain exists {}", "True: Grain exists {}", "os", "Debian"},
		{"exists", value.DictOf("name", "none"), "False: Grain does not exist {}", "False: Grain does not exist {}", "False: Grain does not exist {}", "os",
			"Debian"},
		{"present", value.DictOf("name", "new", "value", "v"), "None: Grain new is set to be added {'new': 'new'}", "True: Set grain new to v {'new': 'v'}",
			"True: Grain is already set {}", "new", "v"},
		{"present", value.DictOf("name", "new", "value", "w"), "None: Grain new is set to be changed {'changed': {'new': 'w'}}",
			"True: Set grain new to w {'new': 'w'}", "True: Grain is already set {}", "new", "w"},
		{"present", value.DictOf("name", "deep|er", "value", int64(5), "delimiter", "|"), "None: Grain deep:er is set to be added {'new': 'deep:er'}",
			"True: Set grain deep:er to 5 {'deep': {'er': 5}}", "True: Grain is already set {}", "deep:er", int64(5)},
		{"present", value.DictOf("name", "roles", "value", "db"), "None: Grain roles is set to be changed {'changed': {'roles': 'db'}}",
			"False: The key 'roles' exists but is a dict or a list. Use 'force=True' to overwrite. {}",
			"False: The key 'roles' exists but is a dict or a list. Use 'force=True' to overwrite. {}", "roles", value.ListOf("web")},
		{"append", value.DictOf("name", "roles", "value", "db"), "None: Value db in grain roles is set to be added {'added': 'db'}",
			"True: Value db was added to grain roles {'added': 'db'}",
			"True: Value db is already in the list for grain roles {}", "roles", value.ListOf("web", "db")},
		{"append", value.DictOf("name", "os", "value", "x"), "False: Grain os is not a valid list {}", "False: Grain os is not a valid list {}",
			"False: Grain os is not a valid list {}", "os", "Debian"},
		{"append", value.DictOf("name", "new", "value", "x", "convert", true),
			"None: Grain new is set to be converted to list and value x will be added {'added': 'x'}",
			"True: Value x was added to grain new {'added': 'x'}", "True: Value x is already in the list for grain new {}", "new", value.ListOf("w", "x")},
		{"append", value.DictOf("name", "none", "value", "x"), "False: Grain none does not exist {}", "False: Grain none does not exist {}",
			"False: Grain none does not exist {}", "os", "Debian"},
		{"list_present", value.DictOf("name", "nested:a", "value", value.ListOf("x", "y")),
			"None: Value ['y'] is set to be appended to grain nested:a {'new': ['x']}",
			"True: Removed value ['x'] from update due to value found in \"nested:a\".\nAppend value ['y'] to grain nested:a {'new': {'nested': " +
				"{'a': ['x', 'y']}}}",
			"True: Value ['x', 'y'] is already in grain nested:a {}", "nested:a", value.ListOf("x", "y")},
		{"list_present", value.DictOf("name", "made", "value", "one"), "None: Grain made is set to be added {'new': ''}",
			"True: Append value one to grain made {'new': {'made': ['one']}}",
			"True: Value one is already in grain made {}", "made", value.ListOf("one")},
		{"list_absent", value.DictOf("name", "nested:a", "value", value.ListOf("y", "z")),
			"None: Value y in grain nested:a is set to be deleted\nValue z is absent from grain nested:a {'deleted': ['y']}",
			"True: Value y was deleted from grain nested:a\nValue z is absent from grain nested:a {'deleted': ['y']}",
			"True: Value y is absent from grain nested:a\nValue z is absent from grain nested:a {}", "nested:a", value.ListOf("x")},
		{"list_absent", value.DictOf("name", "none", "value", "y"), "True: Grain none does not exist {}", "True: Grain none does not exist {}",
			"True: Grain none does not exist {}", "os", "Debian"},
		{"absent", value.DictOf("name", "new", "force", true), "None: Value for grain new is set to be deleted (None) {'grain': 'new', 'value': None}",
			"True: Value for grain new was set to None {'grain': 'new', 'value': None}", "True: Grain is already set {}", "new", nil},
		{"absent", value.DictOf("name", "deep", "destructive", true, "force", true), "None: Grain deep is set to be deleted {'deleted': 'deep'}",
			"True: Grain deep was deleted {'deleted': 'deep'}",
			"True: Grain deep does not exist {}", "deep", nil},
	} {
		what := c.fun + " " + value.Str(c.args)
		before := value.Str(s.d)
		if got := run(true, c.fun, c.args); got != c.test {
			t.Errorf("%s: a test says %q, want %q", what, got, c.test)
		}
		if value.Str(s.d) != before {
			t.Errorf("%s: a test changed grains", what)
		}
		if got := run(false, c.fun, c.args); got != c.run {
			t.Errorf("%s: %q, want %q", what, got, c.run)
		}
		if got, _ := value.Traverse(s.d, c.grain, ":"); !value.Equal(got, c.want) {
			t.Errorf("%s: the grain is %s, want %s", what, value.Repr(got), value.Repr(c.want))
		}
		if got := run(false, c.fun, c.args); got != c.again {
			t.Errorf("%s again: %q, want %q", what, got, c.again)
		}
	}
}
