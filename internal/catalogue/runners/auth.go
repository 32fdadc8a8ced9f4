package runners

import (
	"context"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Tokens creates and deletes tokens of external_auth.
type Tokens interface {
	// NewToken returns nil if the credentials are wrong.
	NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error)
	// DropToken deletes a token and reports whether it existed.
	DropToken(token string) (bool, error)
	// Rules returns the configured permissions that allow what q asks for, and the reason if
	// publisher_acl_blacklist forbids it in any case.
	Rules(q Question) (rules []Rule, forbidden string)
	// Grants returns all configured permissions.
	Grants() []Grant
	// Roles returns the roles of permission_roles.
	Roles() []RoleView
}

// The forms of functions that a Question can name.
const (
	FormMinions = "minions"
	FormRunner  = "runner"
	FormWheel   = "wheel"
)

// Question asks whether a user may call a function.
type Question struct {
	User   string
	Groups []string
	// EAuth is one system of external_auth, publisher_acl, or "" for all of them.
	EAuth string
	// Form is FormMinions, FormRunner or FormWheel.
	Form string
	Fun  string
	// Args have keyword arguments as in a job: as "name=value".
	Args []any
	// Tgt and TgtType select the minions; only for FormMinions.
	Tgt     any
	TgtType string
}

// Rule is an entry of the configuration that gives a permission.
type Rule struct {
	// Source is "external_auth: SYSTEM" or "publisher_acl".
	Source string
	// Entry is the entry in the user's list.
	Entry any
	// Role is the role that the entry comes from, "" for an entry of the user's own list.
	Role string
}

// RoleView describes a role.
type RoleView struct {
	Name, Description string
	// Entries are its permissions.
	Entries []any
	// Who are the users and groups whose lists name it.
	Who []Grant
	// Cannot are abilities that it does not include, and Partly those with conditions, such as a target.
	Cannot, Partly []string
}

// Grant is the configured permissions of one user or group.
type Grant struct {
	// Source is as in a Rule.
	Source string
	// Who is the name of the user or group, which can be a pattern; "*" is every user of the source.
	Who   string
	Group bool
	// Entries is the list in the configuration.
	Entries []any
}

type tokens struct{ made Tokens }

func init() { runners.Register("auth", authModule) }

func authModule(d Deps) fn.Module {
	t := tokens{d.Tokens}
	return fn.Module{Name: "auth", Doc: `Tokens of external_auth.`, Funcs: []fn.Func{
		fn.Of("mk_token", t.make, `Create a token for username, password and eauth and return it; an empty map if they are wrong.
			token_expire is its lifetime in seconds, if token_expire_user_override allows it.`,
			fn.Example("salt-run auth.mk_token username=saltdev password=saltdev eauth=auto")),
		fn.Of("can", t.can, `Return whether a user may call a function, and the entries of external_auth and publisher_acl that allow it.

The master's current configuration decides, with the minions' cached grains and pillars for a target. Groups and permissions that
an authentication system itself gives a user at sign-in are unknown here: name the groups. root and the account of the master may do everything.`,
			fn.Example("salt-run auth.can user=alice fun=pkg.install tgt='web*'"),
			fn.Example("salt-run auth.can user=bob fun=jobs.list_jobs form=runner eauth=ldap groups=ops")),
		fn.Of("permissions", t.permissions, `Return the permissions that external_auth and publisher_acl give, by user and group.

Permissions that an authentication system itself gives at sign-in are unknown here.`,
			fn.Example("salt-run auth.permissions")),
		fn.Of("roles", t.roles, `Return the roles of permission_roles: their permissions, who has them, and what they do not include.

cannot are important abilities that a role does not include, partly those that it includes under conditions, such as a target.`,
			fn.Example("salt-run auth.roles")),
		fn.Of("del_token", t.remove, `Delete a token and return whether it existed.`, fn.Example("salt-run auth.del_token 6556760736e4077daa601baec2b67c24")),
	}}
}

type tokenArgs struct {
	Load fn.Kwargs `salt:"load"`
}

func (t tokens) make(ctx context.Context, _ *fn.Call, a tokenArgs) (*value.Dict, error) {
	d, err := t.made.NewToken(ctx, a.Load.Clean())
	if d == nil {
		d = value.NewDict(0)
	}
	return d, err
}

type delTokenArgs struct {
	Token string `salt:"token" doc:"the token"`
}

func (t tokens) remove(_ context.Context, _ *fn.Call, a delTokenArgs) (bool, error) {
	return t.made.DropToken(a.Token)
}

type canArgs struct {
	User    string `salt:"user" doc:"name of the user"`
	Fun     string `salt:"fun" doc:"name of the function"`
	Tgt     any    `salt:"tgt" doc:"target of the call" default:"*"`
	TgtType string `salt:"tgt_type" doc:"type of the target" default:"glob"`
	Arg     any    `salt:"arg" doc:"list of the arguments of the call" default:"null"`
	Form    string `salt:"form" doc:"minions for a function of minions, runner or wheel" default:"minions"`
	EAuth   string `salt:"eauth" doc:"a system of external_auth, or publisher_acl; empty: all" default:""`
	Groups  any    `salt:"groups" doc:"groups of the user, as a list or separated by commas" default:"null"`
}

func (t tokens) can(_ context.Context, _ *fn.Call, a canArgs) (*value.Dict, error) {
	if a.Form != FormMinions && a.Form != FormRunner && a.Form != FormWheel {
		return nil, salt.Errorf(salt.Invalid, "form must be %s, %s or %s", FormMinions, FormRunner, FormWheel)
	}
	q := Question{User: a.User, EAuth: a.EAuth, Form: a.Form, Fun: a.Fun, Tgt: a.Tgt, TgtType: a.TgtType}
	if l, ok := a.Arg.(*value.List); ok {
		q.Args = l.Items
	} else if a.Arg != nil {
		q.Args = []any{a.Arg}
	}
	if a.Groups != nil {
		q.Groups = value.Split(a.Groups)
	}
	found, forbidden := t.made.Rules(q)
	rules := &value.List{}
	for _, r := range found {
		d := value.DictOf("source", r.Source, "entry", r.Entry)
		if r.Role != "" {
			d.Set("role", r.Role)
		}
		rules.Append(d)
	}
	d := value.DictOf("allowed", len(found) > 0 && forbidden == "", "rules", rules)
	if forbidden != "" {
		d.Set("forbidden", forbidden)
	}
	return d, nil
}

func (t tokens) roles(context.Context, *fn.Call, struct{}) (*value.List, error) {
	out := &value.List{}
	for _, r := range t.made.Roles() {
		who := &value.List{}
		for _, g := range r.Who {
			who.Append(value.DictOf("source", g.Source, "who", g.Who, "group", g.Group))
		}
		out.Append(value.DictOf("name", r.Name, "description", r.Description, "entries", value.ListOf(r.Entries...), "who", who,
			"cannot", value.Strings(r.Cannot), "partly", value.Strings(r.Partly)))
	}
	return out, nil
}

func (t tokens) permissions(context.Context, *fn.Call, struct{}) (*value.List, error) {
	out := &value.List{}
	for _, g := range t.made.Grants() {
		out.Append(value.DictOf("source", g.Source, "who", g.Who, "group", g.Group, "entries", value.ListOf(g.Entries...)))
	}
	return out, nil
}
