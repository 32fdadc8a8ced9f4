package acl

import (
	"testing"

	"brine/internal/py/value"
)

func TestNamed(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"ann", "ann", true}, {"ann", "anna", false}, {"ann", "*", false}, {"an*", "ann", true}, {"an*", "dan", false},
		{"a?n", "ann", true}, {"[ab]nn", "bnn", true}, {"ann|bob", "bob", true}, {"ann|bob", "bobby", false},
		{"an+", "annn", true}, {"john.doe", "john.doe", true}, {"john.doe", "johnxdoe", false}, {"john.*", "johnxdoe", true},
		{"(", "(", true}, {"(", "x", false}, {"a\\d", "a7", true}, {"ann$", "ann\n", false},
	} {
		if got := Named(c.pattern, c.text); got != c.want {
			t.Errorf("%q for %q: %v", c.pattern, c.text, got)
		}
	}
}

func TestExternal(t *testing.T) {
	m := load(t, `
^filename: [secret]
alice: [a.a]
'al*': [a.b]
'^bob': [no.no]
ops%: [o.o]
'web|db': [w.w]
bad: x.y
'*': [any.any]
3: [no.no]
`).(*value.Dict)
	for _, c := range []struct {
		name       string
		groups     []string
		permissive bool
		want       string
	}{
		{"alice", nil, false, "['a.a', 'a.b']"},
		{"alf", nil, false, "['a.b']"},
		{"alf", []string{"ops"}, false, "['a.b', 'o.o']"},
		{"alf", nil, true, "['a.b', 'any.any']"},
		{"eve", nil, false, "['any.any']"},
		{"eve", []string{"ops", "dev"}, false, "['o.o', 'any.any']"},
		{"db", nil, false, "['w.w']"},
		{"bad", nil, false, "[]"}, // a string is not a list
		{"*", nil, false, "['any.any']"},
		{".*", nil, false, "['any.any']"},
		{"bob", nil, false, "['any.any']"},
		{"^filename", nil, false, "['any.any']"},
		{"ops%", nil, false, "['any.any']"},
		{"ops", nil, false, "['any.any']"},
	} {
		if got := value.Repr(&value.List{Items: External(m, c.name, c.groups, c.permissive)}); got != c.want {
			t.Errorf("%s %v %v: %s, want %s", c.name, c.groups, c.permissive, got, c.want)
		}
	}
	if External(nil, "x", nil, true) != nil {
		t.Error("a system without configuration grants permissions")
	}
}

func TestUsers(t *testing.T) {
	m := load(t, `{ann: [a.a], 'a.*': [b.b], '*': [c.c], bob: x}`).(*value.Dict)
	for name, want := range map[string]string{"ann": "['a.a', 'b.b', 'c.c']", "bob": "['c.c']"} {
		if got := value.Repr(&value.List{Items: Users(m, name)}); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestBlacklisted(t *testing.T) {
	m := load(t, `{users: [root, 'ma.*x$'], modules: ['cmd.*', test.echo]}`).(*value.Dict)
	for _, c := range []struct {
		user string
		funs []string
		want bool
	}{
		{"root", nil, true}, {"ann", nil, false}, {"maxx", nil, true}, {"sudo_x", nil, false},
		{"ann", []string{"test.ping", "cmd.run"}, true}, {"ann", []string{"test.echo"}, true}, {"ann", []string{"test.ping"}, false},
	} {
		var calls []Call
		for _, f := range c.funs {
			calls = append(calls, Call{Fun: f})
		}
		if got := Blacklisted(m, c.user, calls); got != c.want {
			t.Errorf("%s %v: %v", c.user, c.funs, got)
		}
	}
	if Blacklisted(nil, "root", []Call{{Fun: "cmd.run"}}) {
		t.Error("an unset option forbids something")
	}
}

func TestOnMaster(t *testing.T) {
	for _, c := range []struct {
		list, form, fun string
		want            bool
	}{
		{"['.*']", Runner, "jobs.list_jobs", false},
		{"['.*']", Wheel, "key.accept", false},
		{"['@runner']", Runner, "jobs.list_jobs", true},
		{"['@runners']", Runner, "jobs.list_jobs", true},
		{"['@runner']", Wheel, "key.accept", false},
		{"['@wheel']", Wheel, "key.accept", true},
		{"['@jobs']", Runner, "jobs.list_jobs", true},
		{"['@jobs']", Runner, "manage.up", false},
		{"['@key']", Wheel, "key.accept", true},
		{"['@runner']", Runner, "jobs", false},
		{"['@runner']", Runner, "a.b.c", false},
		{"['@runner']", Runner, ".up", false},
		{"['@']", Runner, ".up", false},
		{"[{'@runner': [jobs.list_jobs, 'manage\\..*']}]", Runner, "manage.up", true},
		{"[{'@runner': [jobs.list_jobs]}]", Runner, "jobs.active", false},
		{"[{'@runner': [list_jobs]}]", Runner, "jobs.list_jobs", false},
		{"[{'@runners': jobs.list_jobs}]", Runner, "jobs.list_jobs", true},
		{"[{'@jobs': [list_job]}]", Runner, "jobs.list_job", true},
		{"[{'@jobs': ['list_job$']}]", Runner, "jobs.list_jobs", false},
		{"[{'@jobs': [jobs.list_job]}]", Runner, "jobs.list_job", false},
		{"[{'@wheel': [{key.accept: {args: ['web.*']}}]}]", Wheel, "key.accept", true},
		{"[{'@wheel': [{key.accept: {args: ['db.*']}}]}]", Wheel, "key.accept", false},
		{"[{'@wheel': [{key.accept: {kwargs: {match: 'web.*'}}}]}]", Wheel, "key.accept", true},
		{"[{'@wheel': [{key.accept: {kwargs: {match: null, x: null}}}]}]", Wheel, "key.accept", false},
		{"[{'@wheel': [key.accept], other: [x]}]", Wheel, "key.accept", false},
		{"[7, null]", Wheel, "key.accept", false},
		{"[]", Runner, "jobs.list_jobs", false},
	} {
		call := Call{Fun: c.fun, Args: []any{"web1"}, Kwargs: value.DictOf("match", "web1")}
		if got := OnMaster(load(t, c.list).(*value.List).Items, c.form, call); got != c.want {
			t.Errorf("%s, %s %s: %v", c.list, c.form, c.fun, got)
		}
	}
}
