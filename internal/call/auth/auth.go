// Package auth says who somebody is: by a name and password that an external
// system vouches for (option external_auth), or by a token that was given out
// before. What somebody may do is package acl's to say.
//
// A system is one file. It gets what was sent, and its own part of
// external_auth, whose keys that begin with ^ are its settings.
//
// Secrets are compared in constant time, a refusal takes about as long
// whatever the reason, and no error or log record holds a password or a token.
package auth

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/py/value"
)

// Options are Salt's settings of external authentication.
type Options struct {
	External       *value.Dict   `salt:"external_auth" default:"null" doc:"systems that vouch for users, by name, and what each user may do" change:"live"`
	TokenExpire    time.Duration `salt:"token_expire" default:"43200" doc:"seconds that a token is good for" change:"live"`
	ExpireOverride any           `salt:"token_expire_user_override" default:"false" doc:"users who may choose how long their tokens are good for: True for all, or a map of system to names" change:"live"`
	KeepACL        bool          `salt:"keep_acl_in_token" default:"false" doc:"keep in a token what its user may do, so that later changes do not count; always so with the system rest" change:"live"`
	PermissiveACL  bool          `salt:"permissive_acl" default:"false" doc:"let the entry * of external_auth hold for users who have entries of their own as well" change:"live"`
	SharedSecret   string        `salt:"sharedsecret" default:"" doc:"password of all users of the system sharedsecret" change:"live"`
	PAMService     string        `salt:"auth.pam.service" default:"login" doc:"service of PAM that the system pam asks" change:"live"`
	PAMHelper      string        `salt:"auth.pam.helper" default:"" doc:"program that asks PAM; empty: brine-pam in the folder of this program (Brine only)" change:"live"`

	LDAPOptions
}

// Credentials are what somebody shows.
type Credentials struct {
	System, Name, Password string
}

// maxField bounds a name or password in bytes; a certificate of the system pki
// fits.
const maxField = 64 << 10

// User is somebody who has shown who they are.
type User struct {
	Name, System string
	Groups       []string
	// own are entries that the system itself granted; kept says that they are
	// all there are.
	own  []any
	kept bool
}

// System vouches for users.
type System interface {
	// Authenticate returns what is known of a user, or ErrRefused, or why the
	// system is of no use now.
	Authenticate(ctx context.Context, c Credentials) (Vouched, error)
}

// namer is a system whose users need not say who they are: what they show says
// it.
type namer interface{ NamesUsers() }

// Vouched is what a system knows of a user.
type Vouched struct {
	// Name is who it is if the system says it; "" is who was named.
	Name   string
	Groups []string
	// Entries are rights, as a list of external_auth has them.
	Entries []any
}

// ErrRefused says that a name and password do not belong together. It does not
// say which is wrong.
var ErrRefused error = &salt.Error{Kind: salt.Denied, Err: refusal{}}

type refusal struct{}

func (refusal) Error() string { return "the name or password is wrong" }

// systems makes a system of its part of external_auth.
var systems = map[string]func(conf *value.Dict, o *Options) (System, error){
	"auto":         newAuto,
	"file":         newFile,
	"ldap":         newLDAP,
	"oidc":         newOIDC,
	"pam":          newPAM,
	"pki":          newPKI,
	"rest":         newREST,
	"sharedsecret": newSharedSecret,
}

// Systems returns the names of the systems there are, sorted.
func Systems() []string {
	var names []string
	for n := range systems {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// Service authenticates.
type Service struct {
	o      Options
	used   map[string]System
	broken map[string]error // configured, but of no use
	tokens *Tokens
	log    *slog.Logger
	turns  *turns
	// slowest is what a refusal takes about, so that its time tells nothing.
	slowest time.Duration

	mu sync.Mutex
}

// refusalTime is the least time about which a refusal takes.
const refusalTime = time.Second

// longRefusal bounds what a system that once was slow adds to it.
const longRefusal = 3 * time.Second

// New returns the service. A system that is not known or whose settings are of
// no use lets nobody in; errs says which.
func New(o Options, tokens *Tokens, log *slog.Logger) (s *Service, errs []error) {
	s = &Service{o: o, used: map[string]System{}, broken: map[string]error{}, tokens: tokens, log: log, turns: newTurns(maxAsked, maxAskedOfOne), slowest: refusalTime}
	for k, v := range o.External.All() {
		name := value.Str(k)
		build, ok := systems[name]
		conf, isDict := v.(*value.Dict)
		switch {
		case !ok:
			errs = append(errs, fmt.Errorf("external_auth: the system %q is not known; there are: %v", name, Systems()))
		case !isDict && v != nil:
			errs = append(errs, fmt.Errorf("external_auth: %s must be a map of users to what they may do", name))
		default:
			sys, err := build(conf, &o)
			if err != nil {
				errs = append(errs, fmt.Errorf("external_auth: %s: %w", name, err))
				s.broken[name] = err
				continue
			}
			s.used[name] = sys
		}
	}
	return s, errs
}

// Authenticate finds out who shows these credentials. Its error is of kind
// Denied. Whoever is refused waits, but holds up nobody else's check.
func (s *Service) Authenticate(ctx context.Context, c Credentials) (*User, error) {
	done, err := s.turns.take(ctx, c.Name)
	if err != nil {
		return nil, ErrRefused
	}
	began := time.Now()
	v, err := s.ask(ctx, c)
	done()
	if err == nil {
		if v.Name == "" {
			v.Name = c.Name
		}
		return &User{Name: v.Name, System: c.System, Groups: v.Groups, own: v.Entries}, nil
	}
	s.log.Warn("somebody could not be authenticated", "eauth", fmt.Sprintf("%.40s", c.System), "user", fmt.Sprintf("%.80s", c.Name), "err", err)
	s.linger(ctx, began)
	return nil, ErrRefused
}

func (s *Service) ask(ctx context.Context, c Credentials) (Vouched, error) {
	sys, ok := s.used[c.System]
	if err := s.broken[c.System]; err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "the system is configured, but cannot be used: %w", err)
	}
	if !ok {
		return Vouched{}, salt.Errorf(salt.Denied, "no such system is configured in external_auth")
	}
	if _, names := sys.(namer); c.Name == "" && !names || len(c.Name) > maxField || len(c.Password) > maxField {
		return Vouched{}, ErrRefused
	}
	limited, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return sys.Authenticate(limited, c)
}

// askTime bounds how long a system may take.
const askTime = 30 * time.Second

// linger waits until about as much time has passed as refusals take.
func (s *Service) linger(ctx context.Context, began time.Time) {
	s.mu.Lock()
	s.slowest = max(s.slowest, min(time.Since(began), longRefusal))
	total := s.slowest
	s.mu.Unlock()
	total += time.Duration((rand.Float64() - 0.5) / 2 * float64(total))
	t := time.NewTimer(total - time.Since(began))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// Rights returns what a user may do, in the form of package acl.
func (s *Service) Rights(u *User) []any {
	if u.kept {
		return u.own
	}
	conf := s.o.External.Dict(u.System)
	if len(u.own) > 0 && !s.o.PermissiveACL {
		conf = conf.Clone()
		conf.Delete("*") // is for those who have nothing of their own
	}
	return append(acl.External(conf, u.Name, u.Groups, s.o.PermissiveACL), u.own...)
}

// keepACL says whether tokens hold what their users may do.
func (s *Service) keepACL() bool { return s.o.KeepACL || s.used["rest"] != nil }

// NewToken authenticates somebody and gives out a token: {start, expire, name,
// eauth, [auth_list], [groups], token}. expire is how long it is to be good
// for, in seconds, which only some may choose; 0 means as configured.
func (s *Service) NewToken(ctx context.Context, c Credentials, expire float64) (*value.Dict, error) {
	u, err := s.Authenticate(ctx, c)
	if err != nil {
		return nil, err
	}
	good := s.o.TokenExpire.Seconds()
	if expire > 0 && s.mayChoose(u) {
		good = expire
	}
	now := float64(time.Now().UnixNano()) / 1e9
	t := value.DictOf("start", now, "expire", now+good, "name", u.Name, "eauth", u.System)
	if s.keepACL() {
		t.Set("auth_list", &value.List{Items: s.Rights(u)})
	}
	if len(u.Groups) > 0 {
		t.Set("groups", value.Strings(u.Groups))
	}
	if err := s.tokens.Add(t); err != nil {
		s.log.Error("cannot store a token", "err", err)
		return nil, err
	}
	return t, nil
}

func (s *Service) mayChoose(u *User) bool {
	switch x := s.o.ExpireOverride.(type) {
	case bool:
		return x
	case *value.Dict:
		return slices.Contains(x.List(u.System), any(u.Name))
	}
	return false
}

// Token returns what is known of a token, or nil if it is not good (any more).
func (s *Service) Token(token string) *value.Dict {
	t, err := s.tokens.Get(token, time.Now())
	if err != nil {
		s.log.Warn("a token cannot be read", "err", err)
	}
	return t
}

// ByToken finds out who shows a token. Its error is of kind Denied.
func (s *Service) ByToken(token string) (*User, error) {
	t := s.Token(token)
	if t == nil || s.used[t.Str("eauth")] == nil {
		return nil, ErrRefused
	}
	u := &User{Name: t.Str("name"), System: t.Str("eauth")}
	for _, g := range t.List("groups") {
		u.Groups = append(u.Groups, value.Str(g))
	}
	if l, ok := t.At("auth_list").(*value.List); ok && s.keepACL() {
		u.own, u.kept = l.Items, true
	}
	return u, nil
}
