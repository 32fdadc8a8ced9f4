package usermodules

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/py/value"
)

// AuthKinds are the kinds that a helper of a master loads to authenticate users. These
// helpers do nothing else, so that users who sign in do not wait for other calls.
var AuthKinds = []string{kindAuth, kindModules, "utils", "serializers"}

// Systems returns the user's modules that the option external_auth may name.
func (m *Modules) Systems() Systems { return Systems{m} }

// Systems implements auth.Modules.
type Systems struct{ m *Modules }

// Has implements auth.Modules. It reads the source of the module only.
func (s Systems) Has(name string) bool { return s.m.has(kindAuth, name) }

// System implements auth.Modules.
func (s Systems) System(name string) auth.System { return &system{source{s.m, kindAuth}, name} }

// system is an authentication module. Its function auth decides, and groups and acl return
// what the user may do. Each gets those of the parameters username, password and eauth that
// it declares, and further fields of the request, such as token, as in Salt.
type system struct {
	source
	name string
}

// Slots returns how many checks can run at the same time.
func (s *system) Slots() int { return s.m.pool.Slots() }

// Authenticate implements auth.System.
func (s *system) Authenticate(ctx context.Context, c auth.Credentials) (v auth.Vouched, err error) {
	if !utf8.ValidString(c.Name) || !utf8.ValidString(c.Password) {
		return v, auth.ErrRefused
	}
	switch ok, found, err := s.ask(ctx, "auth", c); {
	case err != nil:
		return v, err
	case !found:
		return v, fmt.Errorf("the Python module %s cannot be loaded, or has no function auth", s.name)
	case !value.Truth(ok):
		return v, auth.ErrRefused
	}
	groups, _, err := s.ask(ctx, "groups", c)
	if err != nil {
		return v, err
	}
	for _, g := range value.Items(groups) {
		if name, ok := g.(string); ok {
			v.Groups = append(v.Groups, name)
		}
	}
	granted, _, err := s.ask(ctx, "acl", c)
	if err != nil || granted == nil {
		return v, err
	}
	l, ok := granted.(*value.List)
	if !ok {
		return v, fmt.Errorf("the function acl of the Python module %s returned a %s, not a list of permissions or None", s.name, value.TypeName(granted))
	}
	v.Entries, v.Only = l.Items, true
	return v, nil
}

// ask calls a function of the module with the parameters that it declares. An exception is
// an error, so that a user whose permissions cannot be determined is refused.
func (s *system) ask(ctx context.Context, function string, c auth.Credentials) (v any, found bool, err error) {
	f := s.Find(s.name+"."+function, true)
	if f == nil {
		return nil, false, nil
	}
	kwargs := value.NewDict(3)
	for _, word := range [][2]string{{"username", c.Name}, {"password", c.Password}, {"eauth", c.System}} {
		if takes(f, word[0]) {
			kwargs.Set(word[0], word[1])
		}
	}
	for k, v := range c.More.All() {
		if name, ok := k.(string); ok && !kwargs.Has(name) && (takes(f, name) || f.TakesKwargs() && foreign(name)) {
			kwargs.Set(name, v)
		}
	}
	v, _, err = s.m.pool.Call(ctx, s.m.env(s.m.call(), nil), kindAuth, s.name+"."+function, nil, kwargs)
	if err != nil {
		err = s.failure(function, err)
	}
	return v, true, err
}

// ofRequests are the fields of requests that are none of credentials.
var ofRequests = []string{"arg", "client", "cmd", "fun", "jid", "key", "kwarg", "ret", "tgt", "tgt_type", "token_expire", "user"}

// foreign reports whether a field of a request is one that only a module can mean.
func foreign(name string) bool {
	return !strings.HasPrefix(name, "_") && !slices.Contains(ofRequests, name)
}

// takes reports whether a function has a parameter of a name.
func takes(f *fn.Func, name string) bool {
	_, ok := f.Param(name)
	return ok
}

// failure returns the error of a call without the text of an exception, which may contain
// the password.
func (s *system) failure(function string, err error) error {
	var raised *python.Error
	if !errors.As(err, &raised) || len(raised.Names) == 0 {
		return err
	}
	at := ""
	for line := range strings.Lines(raised.Trace) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, `File "`) {
			at = " at " + line
		}
	}
	return fmt.Errorf("the function %s of the Python module %s raised %s%s (its message is not shown, since it may have the password)",
		function, s.name, raised.Names[0], at)
}

var _ auth.Modules = Systems{}
