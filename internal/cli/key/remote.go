package key

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/cli/frame"
	"brine/internal/cli/session"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// remote runs the requested action with wheel functions of a running master, as a user of an
// external authentication system. That user must be able to read the master's configuration, but no
// key.
type remote struct {
	*program
	client *client.Client
}

// checkRemote returns an error message for options that are invalid with --eauth, or "".
func (o *options) checkRemote() string {
	switch {
	case o.EAuth.EAuth == "" && (o.MakeToken || o.Username != "" || o.Password != ""):
		return "--make-token, --username and --password need --eauth"
	case o.EAuth.EAuth == "":
		return ""
	case o.GenKeys != "" || o.GenSignature:
		return "--gen-keys and --gen-signature work on local files: do not use --eauth"
	case o.Rotate != nil || o.Preserve != nil:
		return "with --eauth the master uses its options rotate_aes_key and preserve_minion_cache: do not use --rotate-aes-key and --preserve-minions"
	case o.User.User != "":
		return "--user is for local keys: with --eauth use --username"
	}
	return ""
}

// runRemote authenticates and runs the requested action.
func (p *program) runRemote(ctx context.Context, inv *frame.Invocation) int {
	o := &session.Options{Config: p.opts.Config, Saltfile: p.opts.Saltfile, HardCrash: p.opts.HardCrash, Logging: p.opts.Logging, Output: p.opts.Output,
		EAuth: p.opts.EAuth}
	if p.opts.Quiet {
		o.LogLevel = "quiet"
	}
	s, err := session.Open(p.env, inv, o, nil)
	if err != nil {
		return session.Fail(p.env, &command, err)
	}
	defer s.Close()
	p.log, p.show = s.Log, s.Show
	if err := s.Authenticate(ctx); err != nil {
		if errors.Is(err, session.ErrAuthentication) {
			p.env.Errorf("%s", err)
			return frame.ExitNoPerm
		}
		return p.exitCode(err)
	}
	return p.exitCode((&remote{program: p, client: s.Client}).do(ctx))
}

func (r *remote) do(ctx context.Context) error {
	o := &r.opts
	match := func(one string) any {
		if one == "" {
			return "*"
		}
		return one
	}
	switch {
	case o.List != "":
		return r.list(ctx, "key.list", o.List)
	case o.Print != "" || o.PrintAll:
		return r.list(ctx, "key.print", match(o.Print))
	case o.Accept != "" || o.AcceptAll:
		return r.change(ctx, accepting(o), match(o.Accept))
	case o.Reject != "" || o.RejectAll:
		return r.change(ctx, rejecting(o), match(o.Reject))
	case o.Delete != "" || o.DeleteAll:
		return r.change(ctx, deleting(o), match(o.Delete))
	case o.Finger != "" || o.FingerAll:
		return r.list(ctx, "key.finger", match(o.Finger))
	}
	return r.list(ctx, "key.list_all")
}

// call runs a wheel function and returns its result.
func (r *remote) call(ctx context.Context, fun string, kwargs *value.Dict, args ...any) (*value.Dict, error) {
	data, err := r.client.Wheel(ctx, fun, args, kwargs)
	if err != nil {
		return nil, err
	}
	d, ok := data.At("return").(*value.Dict)
	if !ok || !value.Truth(data.At("success")) {
		return nil, fmt.Errorf("the master failed to run %s: %s", fun, value.Str(data.At("return")))
	}
	return d, nil
}

// list shows the result of a function.
func (r *remote) list(ctx context.Context, fun string, args ...any) error {
	d, err := r.call(ctx, fun, nil, args...)
	if err != nil {
		return err
	}
	if fun != "key.finger" {
		d.Delete("local") // the master's own key files
	}
	return r.display(d)
}

// change shows the affected keys, asks, and makes the master change them.
func (r *remote) change(ctx context.Context, c change, match any) error {
	found, err := r.call(ctx, "key.name_match", nil, match)
	if err != nil {
		return err
	}
	var work []ids
	for _, st := range c.from {
		var all []string
		for _, id := range found.List(st.DirName()) {
			all = append(all, value.Str(id))
		}
		if len(all) > 0 {
			work = append(work, ids{st, all})
		}
	}
	if len(work) == 0 {
		r.say("The key glob '%s' does not match any %s keys.\n", value.Str(match), orList(c.named))
		return nil
	}
	r.say("The following keys are going to be %s:\n", c.past)
	if err := r.display(byDirectory(work)); err != nil {
		return err
	}
	if !r.opts.Yes {
		answer, err := r.ask(ctx, c.question, c.byDefault)
		if err != nil || answer != "y" {
			return err
		}
	}
	fun, arg, kwargs := r.order(c, work)
	now, err := r.call(ctx, fun, kwargs, arg)
	if err != nil {
		return err
	}
	return r.report(c, work, now)
}

// order returns the call for exactly the keys that were shown: by ids, for which users need the
// permission that Salt requires, or by a map of states if an id could be read as a glob or a list.
func (r *remote) order(c change, work []ids) (fun string, arg any, kwargs *value.Dict) {
	fun, kwargs = "key."+c.act, value.NewDict(0)
	for _, st := range c.from {
		switch {
		case c.act == "delete":
		case st == keystore.Rejected:
			kwargs.Set("include_rejected", true)
		case st == keystore.Accepted:
			kwargs.Set("include_accepted", true)
		case st == keystore.Denied:
			kwargs.Set("include_denied", true)
		}
	}
	var names []string
	for _, w := range work {
		names = append(names, w.ids...)
	}
	if slices.ContainsFunc(names, func(id string) bool { return strings.ContainsAny(id, `*?[\,`) }) {
		return fun + "_dict", byDirectory(work), kwargs
	}
	return fun, value.Strings(names), kwargs
}

// report prints for each key whether it has the expected state now.
func (r *remote) report(c change, work []ids, now *value.Dict) error {
	var left []string
	for _, w := range work {
		for _, id := range w.ids {
			var is bool
			switch c.act {
			case "accept":
				is = slices.Contains(now.List(keystore.Accepted.DirName()), any(id))
			case "reject":
				is = slices.Contains(now.List(keystore.Rejected.DirName()), any(id))
			default:
				is = !slices.ContainsFunc(states, func(st keystore.State) bool { return slices.Contains(now.List(st.DirName()), any(id)) })
			}
			if !is {
				left = append(left, id)
				continue
			}
			r.say("Key for minion %s %s.\n", id, c.past)
		}
	}
	if len(left) > 0 {
		return salt.Errorf(salt.Internal, "not %s: %s; the master's log says why", c.past, strings.Join(left, ", "))
	}
	return nil
}
