package acl

import (
	"testing"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/fuzztest"
)

func load(t *testing.T, text string) any {
	t.Helper()
	v, err := yaml.Load([]byte(text), "acl")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAllowed(t *testing.T) {
	list := load(t, `
- test.*
- 'sys.doc$'
- '(broken'
- 'web*':
  - pkg.list_pkgs
  - cmd.run:
      args: [uptime, null]
      kwargs: {cwd: /tmp}
- 'db*':
    service.status:
    - args: [mysql]
    - args: [postgres.*]
- {a: x.y, b: x.y}
- 7
`).(*value.List).Items
	cwd := value.DictOf("cwd", "/tmp/x")
	for _, c := range []struct {
		on    string
		calls []Call
		want  bool
	}{
		{"", []Call{{Fun: "test.ping"}}, true},
		{"", []Call{{Fun: "testing"}}, true}, // the dot is any character, as in Salt
		{"", []Call{{Fun: "sys.doc"}}, true},
		{"", []Call{{Fun: "sys.docs"}}, false},
		{"", []Call{{Fun: "cmd.test.ping"}}, false},
		{"", nil, false},
		{"", []Call{{Fun: "test.ping"}, {Fun: "cmd.run"}}, false},
		{"", []Call{{Fun: "test.ping"}, {Fun: "test.arg"}}, true},
		{"web*", []Call{{Fun: "pkg.list_pkgs"}}, true},
		{"db*", []Call{{Fun: "pkg.list_pkgs"}}, false},
		{"web*", []Call{{Fun: "cmd.run", Args: []any{"uptime", 1}, Kwargs: cwd}}, true},
		{"web*", []Call{{Fun: "cmd.run", Args: []any{"uptime"}, Kwargs: cwd}}, false},
		{"web*", []Call{{Fun: "cmd.run", Args: []any{"id", 1}, Kwargs: cwd}}, false},
		{"web*", []Call{{Fun: "cmd.run", Args: []any{"uptime", 1}}}, false},
		{"db*", []Call{{Fun: "service.status", Args: []any{"postgresql"}}}, true},
		{"db*", []Call{{Fun: "service.status", Args: []any{"nginx"}}}, false},
		{"a", []Call{{Fun: "x.y"}}, false},
	} {
		if got := Allowed(list, c.calls, func(tgt string) bool { return tgt == c.on }); got != c.want {
			t.Errorf("%v on %q: %v", c.calls, c.on, got)
		}
	}
}

func TestLists(t *testing.T) {
	m := load(t, `{'web.*': [a.b], '.*': [c.d], '(': [e.f], 'w': x.y, 3: [g.h]}`).(*value.Dict)
	for id, want := range map[string]string{"web1": "['a.b', 'c.d']", "db": "['c.d']"} {
		if got := value.Repr(&value.List{Items: Lists(m, id)}); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	if Lists(nil, "x") != nil {
		t.Error("an unset option allows something")
	}
}

// TestTargetsAreComparedOnce: for a request with many functions each target of the
// list is resolved once, because that reads the data of all minions.
func TestTargetsAreComparedOnce(t *testing.T) {
	l := load(t, `[{'web*': [a.b]}, {'db*': [a.b, c.d]}]`).(*value.List)
	calls := make([]Call, 1000)
	for i := range calls {
		calls[i].Fun = "c.d"
	}
	asked := map[string]int{}
	if !Allowed(l.Items, calls, func(tgt string) bool { asked[tgt]++; return true }) {
		t.Error("not allowed")
	}
	if asked["web*"] != 1 || asked["db*"] != 1 {
		t.Errorf("compared were %v", asked)
	}
}

func FuzzAllowed(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("- test.*\n- 'x': [{a.b: {args: [1], kwargs: {k: v}}}]", "a.b", "v")
	f.Fuzz(func(t *testing.T, text, fun, arg string) {
		v, err := yaml.Load([]byte(text), "acl")
		if err != nil {
			return
		}
		calls := []Call{{Fun: fun, Args: []any{arg}, Kwargs: value.DictOf("k", arg)}, {Fun: "\x00never"}}
		l, _ := v.(*value.List)
		if l.Len() == 0 && Allowed(nil, calls, nil) {
			t.Error("an empty list allows something")
		}
		if l != nil && Allowed(l.Items, calls, func(string) bool { return true }) && !Allowed(l.Items, calls[1:], func(string) bool { return true }) {
			t.Error("calls allowed together but not one by one")
		}
	})
}
