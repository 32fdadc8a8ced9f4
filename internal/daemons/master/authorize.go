package master

import (
	"context"
	"crypto/subtle"
	"fmt"
	"strings"

	"brine/internal/call/acl"
	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// The authentication methods of clear requests, with Salt's names.
const (
	byKey   = "user"  // the key in a file that only one user of this machine can read
	byToken = "token" // a token that was issued before
	byEAuth = "eauth" // a name and password
)

// access authenticates the sender of a clear request and decides what it may
// do.
type access struct {
	ctx      func() context.Context
	settings *settings
	targets  *targets
	local    localKeys
	// user is the configured account of the master process.
	user string
}

// caller is the authenticated sender of a clear request.
type caller struct {
	how  string
	name string
	// all permits everything; otherwise list has the permissions.
	all  bool
	list []any
	// approver is the second user who approved the request, "" if none had to.
	approver string
}

// authListKey is Salt's key for the permissions of a limited user. Jobs for
// syndics contain it, and so do the requests of syndics.
const authListKey = "auth_list"

// limited returns the caller with the permissions in a syndic's request, which
// the master above put there; the syndic's own key permits everything. If there
// are none, the user of the master above may do everything, as in Salt.
func (c *caller) limited(above any) *caller {
	l, ok := above.(*value.List)
	if above == nil || ok && l.Len() == 0 {
		return c
	}
	if !ok {
		return &caller{how: c.how, name: c.name} // malformed: no permission
	}
	return &caller{how: c.how, name: c.name, list: l.Items}
}

// external returns the map in a request with credentials for external
// authentication, or nil. If there are any, no other method is tried.
func external(load *value.Dict) *value.Dict {
	for _, d := range []*value.Dict{load, load.Dict("kwargs")} {
		if d.Has("eauth") || d.Has("token") {
			return d
		}
	}
	return nil
}

// howOf returns the authentication method that a request uses.
func howOf(load *value.Dict) string {
	switch d := external(load); {
	case d == nil:
		return byKey
	case d.Has("token"):
		return byToken
	}
	return byEAuth
}

// showsPassword reports whether a request has a password, which is slow to check.
func showsPassword(load *value.Dict) bool {
	return load.Has("eauth") || load.Dict("kwargs").Has("eauth")
}

// credentials reads the credentials for external authentication.
func credentials(d *value.Dict) auth.Credentials {
	var in wire.Credentials
	wire.View(d, &in)
	more := value.NewDict(in.Rest.Len() + 1)
	more.Update(in.Rest)
	if in.Token != nil {
		more.Set("token", in.Token)
	}
	return auth.Credentials{System: in.System(), Name: in.Name(), Password: in.Secret(), More: more}
}

// sender returns the authenticated sender of a clear request, or nil.
func (a *access) sender(c *channel.Call) *caller {
	if who, ok := c.Sender.(*caller); ok {
		return who
	}
	return a.identify(a.ctx(), c.Load)
}

// identify authenticates the sender of a clear request. It returns nil on failure.
func (a *access) identify(ctx context.Context, load *value.Dict) *caller {
	d := external(load)
	var u *auth.User
	var err error
	how := howOf(load)
	switch how {
	case byKey:
		return a.byKey(load)
	case byToken:
		var in wire.TokenRequest
		wire.View(d, &in)
		u, err = a.settings.auth().ByToken(in.Token)
	case byEAuth:
		u, err = a.settings.auth().Authenticate(ctx, credentials(d))
	}
	if err != nil {
		return nil
	}
	return &caller{how: how, name: u.Name, list: a.settings.auth().Rights(u)}
}

// byKey returns the user whose key a request has, or nil. The key decides, not
// the user name in the request: Salt trusts that name, so that any user of
// publisher_acl can claim to be sudo_root.
func (a *access) byKey(load *value.Dict) *caller {
	var in wire.Clear
	wire.View(load, &in)
	given := in.Key
	owner := ""
	for name, k := range a.local {
		if subtle.ConstantTimeCompare([]byte(k), given) == 1 {
			owner = name
		}
	}
	if owner == "" || len(given) == 0 {
		return nil
	}
	name := in.User
	options := a.settings.options()
	grants, _ := options.PublisherACL.(*value.Dict)
	if !a.commands(owner) {
		if list := acl.Users(grants, owner); len(list) > 0 && (name == owner || name == "") {
			return &caller{how: byKey, name: owner, list: acl.Expand(list, options.Roles)}
		}
		return nil
	}
	if behind, ok := strings.CutPrefix(name, "sudo_"); ok && options.SudoACL && grants.Len() > 0 {
		if list := acl.Users(grants, behind); len(list) > 0 {
			return &caller{how: byKey, name: name, list: acl.Expand(list, options.Roles)}
		}
		return nil
	}
	return &caller{how: byKey, name: name, all: true}
}

// commands reports whether a user of this machine may do everything: root and
// the account of the master process may.
func (a *access) commands(owner string) bool {
	return owner == "root" || owner == a.user || owner == processUser()
}

// authorize reports whether a clear request comes from a user of this machine
// who may do everything.
func (a *access) authorize(load *value.Dict) bool {
	if external(load) != nil {
		return false
	}
	c := a.byKey(load)
	return c != nil && c.all
}

// mayPublish reports whether a caller may publish a job.
func (a *access) mayPublish(c *caller, o *order) bool {
	return a.mayPublishTo(c, o, func() ([]string, error) {
		minions, _, err := a.targets.resolve(o.targetType(), o.Tgt, o.kw.Delimiter)
		return minions, err
	})
}

// mayPublishTo is mayPublish for a job whose minions may be known to another master only.
func (a *access) mayPublishTo(c *caller, o *order, selected func() ([]string, error)) bool {
	calls, ok := callsOf(o)
	if !ok {
		return false
	}
	blacklist := a.settings.options().PublisherACLBlacklist
	for _, name := range []string{c.name, o.user()} {
		if acl.Blacklisted(blacklist, name, calls) {
			return false
		}
	}
	if c.all {
		return true
	}
	// A caller who may start a job may ask whether it still runs.
	if len(calls) == 1 && calls[0].Fun == "saltutil.find_job" {
		return true
	}
	minions, err := selected()
	return acl.Allowed(c.list, calls, func(tgt string) bool {
		if err != nil {
			return false // callers without target restrictions pass, and get an error from publish
		}
		return a.targets.within(minions, tgt)
	})
}

// callsOf reads the functions and arguments of a job. It treats the same
// arguments as keywords as minions do.
func callsOf(o *order) ([]acl.Call, bool) {
	args, ok := o.Arg.(*value.List)
	if !ok && o.Arg != nil {
		return nil, false
	}
	if args == nil {
		args = &value.List{}
	}
	switch fun := o.Fun.(type) {
	case string:
		return []acl.Call{jobCall(fun, args.Items)}, fun != ""
	case *value.List:
		calls := make([]acl.Call, 0, fun.Len())
		if fun.Len() == 0 || len(args.Items) < fun.Len() {
			return nil, false
		}
		for i, f := range fun.Items {
			name, ok := f.(string)
			if !ok || name == "" {
				return nil, false
			}
			var its []any
			switch a := args.Items[i].(type) {
			case *value.List:
				its = a.Items
			case nil:
			default:
				return nil, false
			}
			calls = append(calls, jobCall(name, its))
		}
		return calls, true
	}
	return nil, false
}

// jobCall separates keyword from positional arguments, in the same order as
// minions. Keywords are maps with __kwarg__ and strings of the form name=value.
func jobCall(fun string, given []any) acl.Call {
	c := acl.Call{Fun: fun, Kwargs: value.NewDict(0)}
	for _, a := range given {
		switch x := a.(type) {
		case string:
			if _, kw := fn.ParseWords([]string{x}, nil); kw.Len() > 0 {
				c.Kwargs.Update(kw)
				continue
			}
		case *value.Dict:
			if fn.Keywords(x) != nil {
				c.Kwargs.Update(x)
				continue
			}
		}
		c.Args = append(c.Args, a)
	}
	fn.Unmark(c.Kwargs)
	return c
}

// refused is the reply to a job of an unauthenticated sender.
func refused() *value.Dict {
	return failure("AuthenticationError", "Authentication error occurred.")
}

// forbidden is the reply to a job of a sender without permission for it.
func forbidden() *value.Dict {
	return failure("AuthorizationError", "Authorization error occurred.")
}

func failure(name, message string) *value.Dict {
	return value.DictOf("error", value.DictOf("name", name, "message", message))
}

// refusedOnMaster is the reply to a function of the master if the sender is
// unauthenticated (c is nil) or has no permission.
func refusedOnMaster(load *value.Dict, c *caller) *value.Dict {
	how := howOf(load)
	name := map[string]string{byKey: "UserAuthenticationError", byToken: "TokenAuthenticationError", byEAuth: "EauthAuthenticationError"}[how]
	text := fmt.Sprintf("Authentication failure of type \"%s\" occurred", how)
	switch {
	case c != nil:
		// Salt reports an authentication failure in this case, too. Users read the
		// message on a terminal, and API clients compare it.
		text += " for user " + c.name + "."
		if how == byKey {
			text += "\nThe user is authenticated, but not authorized to run " + fmt.Sprintf("%.80s", readOrder(load).fun()) +
				": external_auth permits runners (@runner) and wheel functions (@wheel), publisher_acl none of them."
		}
	case how == byEAuth:
		text += fmt.Sprintf(" for user %.100s.", credentials(external(load)).Name)
	case how == byToken:
		text += "."
	}
	return failure(name, text)
}

// mayRun returns nil if a caller may run a function of the master, otherwise the
// error reply.
func mayRun(c *caller, form, fun string, args []any, kwargs *value.Dict, load *value.Dict) (reply *value.Dict) {
	switch {
	case c == nil:
		return refusedOnMaster(load, nil)
	case c.all:
		return nil
	case len(c.list) > 0 && strings.Count(fun, ".") != 1:
		return failure("SaltInvocationError", "A command invocation error occurred: Check syntax.")
	case acl.OnMaster(c.list, form, acl.Call{Fun: fun, Args: args, Kwargs: kwargs}):
		return nil
	}
	return refusedOnMaster(load, c)
}
