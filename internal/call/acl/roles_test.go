package acl

import (
	"testing"

	"brine/internal/py/value"
)

func role(permissions ...any) *value.Dict {
	return value.DictOf("description", "d", "permissions", value.ListOf(permissions...))
}

func TestExpandRoles(t *testing.T) {
	option := value.DictOf("ops", role("test.*", value.DictOf("web*", value.ListOf("pkg.install"))), "self", role("@role:self", "a.b"),
		"one", role("@role:two"), "two", role("@role:one", "c.d"), "empty", role(), "text", "x",
		"ann", role(".*"), "keyed", role(value.DictOf("@role:ann", "x"), "e.f"))
	for _, c := range []struct {
		list []any
		want string
	}{
		{[]any{"test.ping", "@runner"}, "['test.ping', '@runner']"},
		{[]any{"a", "@role:ops", "z"}, "['a', 'test.*', {'web*': ['pkg.install']}, 'z']"},
		{[]any{"@role:self"}, "['a.b']"}, // what a role must not contain grants nothing
		{[]any{"@role:one"}, "[]"},
		{[]any{"@role:two"}, "['c.d']"},
		{[]any{"@role:empty", "@role:text", "@role:nosuch", "@role:"}, "[]"},
		{[]any{"ops", "role:ops", "@ops", "@role:OPS"}, "['ops', 'role:ops', '@ops']"},
		{[]any{value.DictOf("@role:ops", value.ListOf("x"))}, "[{'@role:ops': ['x']}]"},
		{[]any{"@role:keyed"}, "['e.f']"},
	} {
		if got := value.Repr(&value.List{Items: Expand(c.list, option)}); got != c.want {
			t.Errorf("%v: %s, want %s", c.list, got, c.want)
		}
	}
	// Without a role a list stays the same one.
	list := []any{"test.ping"}
	if got := Expand(list, nil); &got[0] != &list[0] {
		t.Error("a list without roles is copied")
	}
	// An entry that names a role grants nothing by itself, and a key none of its functions.
	for _, e := range []any{"@role:ops", value.DictOf("@role:ops", value.ListOf(".*"))} {
		if Allowed([]any{e}, []Call{{Fun: "test.ping"}}, func(tgt string) bool { return tgt == "*" }) || OnMaster([]any{e}, Runner, Call{Fun: "test.ping"}) {
			t.Errorf("%s grants something", value.Repr(e))
		}
	}
}

func TestCheckRoles(t *testing.T) {
	for _, c := range []struct {
		option *value.Dict
		want   string
	}{
		{nil, ""},
		{value.DictOf("ops", role("test.*")), ""},
		{value.DictOf("ops", role()), "ops has no permissions"},
		{value.DictOf("ops", value.DictOf("description", "x")), "ops has no permissions"},
		{value.DictOf("ops", value.ListOf("test.*")), "ops: expected a map of description and permissions, got list"},
		{value.DictOf("ops", value.DictOf("permissions", "test.*")), "ops.permissions: expected a list, got the string \"test.*\""},
		{value.DictOf("ops", value.DictOf("description", int64(1), "permissions", value.ListOf("a"))), "ops.description: expected a string, got the number 1"},
		{value.DictOf("ops", value.DictOf("grants", value.ListOf("a"))), "ops: there is no key \"grants\"; use description and permissions"},
		{value.DictOf("", role("a")), "\"\" is no name of a role: use a word"},
		{value.DictOf(int64(1), role("a")), "\"1\" is no name of a role: use a word"},
		{value.DictOf("ops", role("@role:ops")), "ops: a role cannot contain a role; list the permissions instead of \"@role:ops\""},
		{value.DictOf("ops", role("a"), "two", role(value.DictOf("@role:ops", "a"))),
			"two: a role cannot contain a role; list the permissions instead of \"{'@role:ops': 'a'}\""},
	} {
		got := ""
		if err := CheckRoles(c.option); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", value.Repr(c.option), got, c.want)
		}
	}
	option := value.DictOf("ops", role("test.*"))
	for _, c := range []struct {
		users *value.Dict
		want  string
	}{
		{value.DictOf("amy", value.ListOf("@role:ops", ".*"), "^set", value.ListOf("@role:x"), "odd", "text"), ""},
		{value.DictOf("amy", value.ListOf("@role:op")), "amy: there is no role \"op\" in permission_roles"},
		{value.DictOf("ops%", value.ListOf(value.DictOf("@role:ops", "x"))),
			"ops%: a role is an entry of its own, without a target or functions: \"{'@role:ops': 'x'}\""},
	} {
		got := ""
		if err := CheckGrants(c.users, option); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", value.Repr(c.users), got, c.want)
		}
	}
}
