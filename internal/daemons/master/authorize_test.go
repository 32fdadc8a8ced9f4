package master

import (
	"fmt"
	"runtime"
	"testing"

	"brine/internal/call/acl"
	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// TestCallersByKey: the key of a request identifies the sender, not the user name
// in it; publisher_acl limits users other than root.
func TestCallersByKey(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, func(c *Config) {
		c.Options.PublisherACL = value.DictOf("ann", value.ListOf("test.ping", value.DictOf("web*", value.ListOf("cmd.*"))))
		c.Options.SudoACL = true
		c.Options.PublisherACLBlacklist = value.DictOf("modules", value.ListOf("file.remove"))
	})
	for _, c := range []struct {
		name, key, user string
		known, all      bool
		fun, tgt        string
		may             bool
	}{
		{"root", "root's key", "root", true, true, "cmd.run", "*", true},
		{"root, what is forbidden to all", "root's key", "root", true, true, "file.remove", "*", false},
		{"a user with permissions", "ann's key", "ann", true, false, "test.ping", "*", true},
		{"a function that is granted for some minions", "ann's key", "ann", true, false, "cmd.run", "web*", true},
		{"the same on another minion", "ann's key", "ann", true, false, "cmd.run", "*", false},
		{"a question whether a job runs", "ann's key", "ann", true, false, "saltutil.find_job", "*", true},
		{"another name beside the key", "ann's key", "root", false, false, "", "", false},
		{"a user without permissions", "eve's key", "eve", false, false, "", "", false},
		{"a user of sudo with permissions", "root's key", "sudo_ann", true, false, "cmd.run", "*", false},
		{"a user of sudo without", "root's key", "sudo_eve", false, false, "", "", false},
		{"no key", "", "root", false, false, "", "", false},
		{"a wrong key", "guessed", "root", false, false, "", "", false},
	} {
		load := value.DictOf("key", c.key, "user", c.user, "fun", c.fun, "tgt", c.tgt, "tgt_type", "glob", "arg", &value.List{})
		who := p.access.identify(t.Context(), load)
		if (who != nil) != c.known || who != nil && who.all != c.all || p.access.authorize(load) != c.all {
			t.Errorf("%s: %+v", c.name, who)
			continue
		}
		if who != nil && p.access.mayPublish(who, readOrder(load)) != c.may {
			t.Errorf("%s may publish %s: %t", c.name, c.fun, !c.may)
		}
	}
	if p.access.authorize(value.DictOf("key", "root's key", "user", "root", "token", "x")) {
		t.Error("a request with a token is judged by its key")
	}
	if who := p.access.identify(t.Context(), value.DictOf("kwargs", value.DictOf("token", "unknown"))); who != nil {
		t.Errorf("an unknown token is %+v", who)
	}
}

// TestUnknownSendersAreRefusedFirst: the arguments of a runner or wheel function are
// not copied for an unauthenticated client.
func TestUnknownSendersAreRefusedFirst(t *testing.T) {
	p := newParts(t, nil, nil)
	many := value.NewDict(0)
	for i := range 100_000 {
		many.Set(fmt.Sprint("k", i), int64(i))
	}
	r := &runs{access: p.access, recorder: p.recorder, calls: &runnerCalls{registry: echoRunner(t)}, rateLimitedLog: p.limited}
	w := &wheels{access: p.access, recorder: p.recorder, calls: p.Master.wheels, rateLimitedLog: p.limited}
	for name, handle := range map[string]func(*channel.Call){"runner": r.start, "wheel": w.run} {
		load := value.DictOf("fun", "test.arg", "kwarg", many, "key", "guessed")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d := answer(t, handle, "", name, load)
		runtime.ReadMemStats(&after)
		if !d.Has("error") {
			t.Errorf("%s: the answer is %s", name, value.Repr(d))
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: %d bytes are allocated", name, n)
		}
	}
}

// TestCallsOfJobs: permissions treat an argument as a keyword if minions do, and
// a job of several functions needs arguments for each.
func TestCallsOfJobs(t *testing.T) {
	kwargs := value.DictOf("__kwarg__", true, "shell", "sh")
	calls, ok := callsOf(readOrder(value.DictOf("fun", "cmd.run", "arg", value.ListOf("ls", "cwd=/tmp", kwargs))))
	if !ok || len(calls) != 1 || len(calls[0].Args) != 1 || calls[0].Kwargs.Str("cwd") != "/tmp" || calls[0].Kwargs.Str("shell") != "sh" ||
		calls[0].Kwargs.Has("__kwarg__") {
		t.Errorf("%+v %t", calls, ok)
	}
	calls, ok = callsOf(readOrder(value.DictOf("fun", value.ListOf("a.b", "c.d"), "arg", value.ListOf(value.ListOf("x"), nil))))
	if !ok || len(calls) != 2 || calls[0].Fun != "a.b" || len(calls[0].Args) != 1 || len(calls[1].Args) != 0 {
		t.Errorf("%+v %t", calls, ok)
	}
	for _, bad := range []*value.Dict{
		value.DictOf("fun", "", "arg", nil), value.DictOf("fun", "a.b", "arg", "text"), value.DictOf("fun", value.ListOf(), "arg", nil),
		value.DictOf("fun", value.ListOf("a.b"), "arg", value.ListOf()), value.DictOf("fun", value.ListOf("a.b"), "arg", value.ListOf("x")),
		value.DictOf("fun", value.ListOf(int64(1)), "arg", value.ListOf(nil)), value.DictOf("fun", nil),
	} {
		if calls, ok := callsOf(readOrder(bad)); ok {
			t.Errorf("%s is %+v", value.Repr(bad), calls)
		}
	}
}

// TestFunctionsOfTheMaster: a refusal has Salt's error name and message, which
// clients compare.
func TestFunctionsOfTheMaster(t *testing.T) {
	limited := &caller{how: byEAuth, name: "ann", list: []any{"@runner", value.DictOf("@wheel", value.ListOf("key.list"))}}
	for _, c := range []struct {
		name      string
		who       *caller
		form, fun string
		load      *value.Dict
		want      string
	}{
		{"all", &caller{all: true}, acl.Runner, "jobs.active", value.NewDict(0), ""},
		{"a runner", limited, acl.Runner, "jobs.active", value.NewDict(0), ""},
		{"a wheel function", limited, acl.Wheel, "key.list", value.NewDict(0), ""},
		{"another one", limited, acl.Wheel, "key.delete", value.DictOf("eauth", "x", "username", "ann"), "EauthAuthenticationError"},
		{"no function", limited, acl.Runner, "jobs", value.NewDict(0), "SaltInvocationError"},
		{"an unknown caller by key", nil, acl.Runner, "jobs.active", value.NewDict(0), "UserAuthenticationError"},
		{"an unknown caller by token", nil, acl.Runner, "jobs.active", value.DictOf("token", "x"), "TokenAuthenticationError"},
		{"an unknown caller by password", nil, acl.Runner, "jobs.active", value.DictOf("eauth", "x"), "EauthAuthenticationError"},
	} {
		reply := mayRun(c.who, c.form, c.fun, nil, value.NewDict(0), c.load)
		if got := reply.Dict("error").Str("name"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
