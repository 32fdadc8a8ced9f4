package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/py/value"
)

// logins starts and ends sessions, and issues tokens.
type logins struct {
	s        *Settings
	log      *slog.Logger
	master   Master
	sessions *sessions
	limits   *limits
}

func (l *logins) loginPrompt(c *call) (any, error) {
	c.w.Header().Set("Www-Authenticate", "Session")
	return value.DictOf("status", nil, "return", "Please log in"), nil
}

// errEmpty is the error of a login without a body.
var errEmpty = errors.New("a login without a body")

func (l *logins) login(c *call) (any, error) {
	d, ok := c.body.data.(*value.Dict)
	if several, isList := c.body.data.(*value.List); isList && several.Len() > 0 {
		d, ok = several.Items[0].(*value.Dict)
	}
	switch {
	case c.body.data == nil:
		return nil, errEmpty
	case !ok:
		return nil, &failure{http.StatusBadRequest, "A login must be a map"}
	}
	user := value.Str(d.At("username"))
	addr := c.address()
	end, err := l.limits.attempt(c, d)
	if err != nil {
		return nil, err
	}
	refuse := func(why string) (any, error) {
		end(wrong)
		l.log.Warn("audit", "user", fmt.Sprintf("%.80s", user), "from", addr, "login", "refused", "reason", why)
		return nil, &failure{http.StatusUnauthorized, textBadLogin}
	}
	if !l.mayTry(user, addr) {
		return refuse("api_acl does not let this user in from this address")
	}
	for _, k := range []string{"username", "password", "eauth"} {
		if k == "username" && d.Str("eauth") == "oidc" && !d.Has(k) {
			continue // the token determines the user
		}
		if token, ok := d.At("token").(string); ok && token != "" && k == "password" && !d.Has(k) {
			continue // modules of the user may ask for a token instead
		}
		if _, ok := d.At(k).(string); !ok {
			return refuse(k + " is missing or no text")
		}
	}
	tok, err := l.master.NewToken(c.r.Context(), d)
	if salt.KindOf(err) == salt.Denied && err != nil {
		return refuse("the name or password is wrong")
	}
	end(judged(err, false))
	if err != nil {
		return nil, err
	}
	expire, _ := tok.At("expire").(float64)
	// Use a new id for every login, so that no client can choose another client's session
	// id in advance.
	start, _ := tok.At("start").(float64)
	of := &session{Token: tok.Str("token"), Expire: expire, User: tok.Str("name"), Start: start, From: addr}
	if c.r.Header.Get(consoleHeader) != "" {
		of.Forgery = newID()
	}
	if c.id, err = l.sessions.add(of); err != nil {
		return nil, err
	}
	c.of = of
	l.log.Info("audit", "user", fmt.Sprintf("%.80s", of.User), "from", addr, "login", "done")
	c.w.Header().Set("X-Auth-Token", c.id)
	answer := value.DictOf("token", c.id, "expire", tok.At("expire"), "start", tok.At("start"),
		"user", tok.At("name"), "eauth", tok.At("eauth"), "perms", perms(tok.List("perms")))
	if of.Forgery != "" {
		answer.Set("csrf", of.Forgery)
	}
	return value.DictOf("return", value.ListOf(answer)), nil
}

// mayTry checks api_acl.
func (l *logins) mayTry(user, addr string) bool {
	if !l.s.hasACL {
		return true
	}
	for _, name := range []string{user, "*"} {
		for _, v := range list(l.s.ACL.At(name)) {
			if s := value.Str(v); s == "*" || s == addr {
				return true
			}
		}
	}
	return false
}

// perms sorts permissions and drops duplicates: strings first, then maps by their keys.
// Without permissions it returns an empty map.
func perms(rights []any) any {
	var texts, maps []any
	for _, r := range rights {
		to := &maps
		if _, ok := r.(string); ok {
			to = &texts
		}
		if !slices.ContainsFunc(*to, func(o any) bool { return value.Equal(o, r) }) {
			*to = append(*to, r)
		}
	}
	key := func(v any) string {
		if d, ok := v.(*value.Dict); ok && d.Len() > 0 {
			k, _ := d.Entry(0)
			return value.Str(k)
		}
		return value.Str(v)
	}
	for _, l := range [][]any{texts, maps} {
		slices.SortStableFunc(l, func(a, b any) int { return strings.Compare(key(a), key(b)) })
	}
	if len(texts)+len(maps) == 0 {
		return value.NewDict(0)
	}
	return value.ListOf(append(texts, maps...)...)
}

func (l *logins) logout(c *call) (any, error) {
	if err := l.master.DropToken(c.r.Context(), c.of.Token); err != nil {
		l.log.Warn("session ended, but its token stays valid until it expires", "err", err)
	}
	l.sessions.drop(c.id)
	c.id, c.gone = newID(), true
	return value.DictOf("return", "Your token has been cleared"), nil
}

func (l *logins) token(c *call) (any, error) {
	chunks, err := lowstate(c.body.data)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(l.s.Clients, "runner") { // a runner, as in Salt
		return nil, salt.Errorf(salt.Invalid, "Client disabled: 'runner'. Add to 'netapi_enable_clients' master config option to enable.")
	}
	out := &value.List{}
	for _, d := range chunks {
		for _, k := range []string{"username", "password", "eauth"} {
			if !d.Has(k) {
				return nil, &failure{http.StatusBadRequest, `Require "username", "password", and "eauth" params`}
			}
		}
		end, err := l.limits.attempt(c, d)
		if err != nil {
			return nil, err
		}
		tok, err := l.master.NewToken(c.r.Context(), d)
		end(judged(err, salt.KindOf(err) == salt.Denied))
		if err != nil {
			return nil, err
		}
		tok.Delete("perms")
		out.Append(tok)
	}
	return out, nil
}

// judged derives the result of a password check from the master's answer. A password is
// right only if the answer shows that the master accepted it: some requests fail before the
// master sees them. An answer that the client or this program did not wait for counts as
// wrong (late), because refusals are slow.
func judged(err error, refused bool) verdict {
	var r *client.Refused
	switch {
	case err == nil, errors.As(err, &r) && r.Name == "AuthorizationError":
		return right
	case refused:
		return wrong
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), salt.KindOf(err) == salt.Timeout:
		return late
	}
	return unjudged
}

// refusedLogin reports whether the master rejected a password.
func refusedLogin(err error) bool {
	var r *client.Refused
	return errors.As(err, &r) && (r.Name == "AuthenticationError" || r.Name == "EauthAuthenticationError")
}
