package master

import (
	"slices"
	"testing"

	"brine/internal/call/acl"
	"brine/internal/catalogue/runners"
	"brine/internal/py/value"
)

// TestRoles: roles hold for users of publisher_acl and of external_auth, never widen what the blacklist
// forbids, and are explained.
func TestRoles(t *testing.T) {
	p := newParts(t, []string{"alpha", "beta"}, func(c *Config) {
		roles := value.DictOf("ops", value.DictOf("permissions", value.ListOf(".*", "@wheel", value.DictOf("@runner", value.ListOf("jobs.active")))),
			"few", value.DictOf("permissions", value.ListOf(value.DictOf("alpha", value.ListOf("test.*", "state.apply")))))
		c.Auth.Roles, c.Options.Roles = roles, roles
		c.Auth.SharedSecret = "s"
		c.Auth.External = value.DictOf("sharedsecret", value.DictOf("bob", value.ListOf("@role:few"), "ops", value.ListOf("test.echo"),
			"eve", value.ListOf("@role:nosuch")))
		c.Options.PublisherACL = value.DictOf("ann", value.ListOf("@role:ops"), "eve", value.ListOf("@role:nosuch"))
		c.Options.PublisherACLBlacklist = value.DictOf("modules", value.ListOf("cmd.*"))
	})
	external := func(name string) *value.Dict {
		return value.DictOf("eauth", "sharedsecret", "username", name, "password", "s")
	}
	for _, c := range []struct {
		who      string
		load     *value.Dict
		fun, tgt string
		want     bool
	}{
		{"publisher_acl", value.DictOf("user", "ann", "key", "ann's key"), "test.ping", "*", true},
		{"the blacklist", value.DictOf("user", "ann", "key", "ann's key"), "cmd.run", "*", false},
		{"an unknown role", value.DictOf("user", "eve", "key", "eve's key"), "test.ping", "*", false},
		{"external_auth", external("bob"), "test.ping", "alpha", true},
		{"another minion", external("bob"), "test.ping", "beta", false},
		{"the name of a role", external("ops"), "test.ping", "alpha", false},
		{"an unknown role of external_auth", external("eve"), "test.ping", "alpha", false},
	} {
		who := p.access.identify(t.Context(), c.load)
		if who == nil {
			t.Fatalf("%s: not identified", c.who)
		}
		o := &order{}
		o.Fun, o.Tgt, o.TgtType = c.fun, c.tgt, "glob"
		if got := p.access.mayPublish(who, o); got != c.want {
			t.Errorf("%s: %t", c.who, got)
		}
	}
	who := p.access.identify(t.Context(), value.DictOf("user", "ann", "key", "ann's key"))
	for fun, want := range map[string]bool{"jobs.active": true, "jobs.list_jobs": false} {
		if got := mayRun(who, acl.Runner, fun, nil, value.NewDict(0), value.NewDict(0)) == nil; got != want {
			t.Errorf("runner %s: %t", fun, got)
		}
	}

	tokens := runnerTokens{settings: p.access.settings, access: p.access}
	rules, _ := tokens.Rules(runners.Question{User: "bob", Form: runners.FormMinions, Fun: "test.ping", Tgt: "alpha", TgtType: "glob"})
	if len(rules) != 1 || rules[0].Role != "few" || rules[0].Source != "external_auth: sharedsecret" {
		t.Errorf("%+v", rules)
	}
	_, forbidden := tokens.Rules(runners.Question{User: "ann", Form: runners.FormMinions, Fun: "cmd.run", Tgt: "*", TgtType: "glob"})
	if forbidden == "" {
		t.Error("the blacklist does not count")
	}
	roles := tokens.Roles()
	if len(roles) != 2 || len(roles[0].Who) != 1 || roles[0].Who[0].Who != "ann" || len(roles[1].Who) != 1 || roles[1].Who[0].Who != "bob" {
		t.Fatalf("%+v", roles)
	}
	if !slices.Contains(roles[0].Cannot, "run commands on minions (cmd.run)") || slices.Contains(roles[0].Cannot, "accept keys (key.accept)") ||
		!slices.Contains(roles[0].Cannot, "start orchestrations (state.orchestrate)") {
		t.Errorf("ops: %q", roles[0].Cannot)
	}
	if !slices.Equal(roles[1].Partly, []string{"apply states (state.apply)"}) || !slices.Contains(roles[1].Cannot, "accept keys (key.accept)") {
		t.Errorf("few: %q %q", roles[1].Partly, roles[1].Cannot)
	}
}
