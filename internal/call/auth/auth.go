// Package auth authenticates users: by a name and password that an external system checks (option
// external_auth), or by a token issued earlier. Package acl decides what users may do.
//
// Each system is in one file. It gets the credentials and its own part of external_auth, where keys
// that begin with ^ are its settings.
//
// Secrets are compared in constant time, all refusals take about the same time, and no error or log
// record holds a password or a token.
package auth

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/registry"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/call/acl"
	"brine/internal/py/value"
)

// Options are Salt's settings of external authentication.
type Options struct {
	External       *value.Dict   `salt:"external_auth" default:"null" doc:"authentication systems by name, and the permissions of each user" change:"live"`
	Roles          *value.Dict   `salt:"permission_roles" default:"null" doc:"roles: named lists of permissions, which lists of external_auth and publisher_acl give by @role:NAME (Brine only)" change:"live"`
	TokenExpire    time.Duration `salt:"token_expire" default:"43200" doc:"lifetime of a token in seconds" change:"live"`
	ExpireOverride any           `salt:"token_expire_user_override" default:"false" doc:"users who may choose the lifetime of their tokens: True for all, or a map of system to names" change:"live"`
	KeepACL        bool          `salt:"keep_acl_in_token" default:"false" doc:"store a user's permissions in the token, so that later changes have no effect on it; always on with the system rest" change:"live"`
	PermissiveACL  bool          `salt:"permissive_acl" default:"false" doc:"apply the entry * of external_auth also to users who have entries of their own" change:"live"`
	SharedSecret   string        `salt:"sharedsecret" default:"" doc:"password for all users of the system sharedsecret" change:"live"`
	PAMService     string        `salt:"auth.pam.service" default:"login" doc:"PAM service that the system pam uses" change:"live"`
	PAMHelper      string        `salt:"auth.pam.helper" default:"" doc:"helper program for PAM; empty: brine-pam in the directory of this program, or that of the package brine-pam (Brine only)" change:"live"`

	LDAPOptions
}

// Check reports roles that cannot be granted.
func (o *Options) Check() error {
	if err := acl.CheckRoles(o.Roles); err != nil {
		return salt.Errorf(salt.Invalid, "%s: %w", acl.RolesOption, err)
	}
	for system, v := range o.External.All() {
		users, _ := v.(*value.Dict)
		if err := acl.CheckGrants(users, o.Roles); err != nil {
			return salt.Errorf(salt.Invalid, "external_auth: %s: %w", value.Str(system), err)
		}
	}
	return nil
}

// Credentials are what a client presents to sign in.
type Credentials struct {
	System, Name, Password string
	// More has further fields of the request, such as token, for a system that uses them.
	More *value.Dict
}

// maxField bounds a name or password in bytes. It leaves room for a certificate of the system pki.
const maxField = 64 << 10

// User is an authenticated user.
type User struct {
	Name, System string
	Groups       []string
	// own are permissions granted by the system itself; kept means that there are no others.
	own  []any
	kept bool
}

// System is an authentication system of the option external_auth.
type System interface {
	// Authenticate returns data about the user, ErrRefused, or why the system is unusable now.
	Authenticate(ctx context.Context, c Credentials) (Vouched, error)
}

// checked is a System that uses files or other parts of the machine. An error of Check is reported at
// the start, but the system is used nevertheless: what is missing may appear later.
type checked interface{ Check() error }

// namer is a System whose credentials contain the user name.
type namer interface{ NamesUsers() }

// Modules provides systems from the user's own modules. They take precedence over built-in ones of
// the same name.
type Modules interface {
	// Has reports whether a system with the name exists.
	Has(name string) bool
	// System returns the system with the name. It is started at its first check.
	System(name string) System
}

// slotted is a System with a limited number of concurrent checks.
type slotted interface{ Slots() int }

// Vouched is the data that a system returns about a user.
type Vouched struct {
	// Name replaces the name in the credentials unless it is "".
	Name   string
	Groups []string
	// Entries are permissions, as a list in the form of external_auth.
	Entries []any
	// Only means that the user has no permissions but Entries. Tokens store them.
	Only bool
}

// ErrRefused means that name and password do not match. It does not reveal which is wrong.
var ErrRefused error = &salt.Error{Kind: salt.Denied, Err: refusal{}}

type refusal struct{}

func (refusal) Error() string { return "wrong user name or password" }

// systems are the constructors by name in external_auth. Each gets its part of that option.
var systems = registry.New[func(conf *value.Dict, o *Options) (System, error)]("authentication system")

// Systems returns the names of the supported systems, sorted.
func Systems() []string { return systems.Names() }

// Service authenticates users.
type Service struct {
	o       Options
	used    map[string]System
	broken  map[string]error // configured, but unusable
	tokens  *Tokens
	log     *slog.Logger
	limiter *limiter
	// slowest is the typical time of a refusal, so that timing reveals nothing.
	slowest time.Duration
	// slots bounds the checks of systems that have few slots of their own. One name gets at most
	// half of them.
	slots map[string]*limiter

	mu sync.Mutex
}

// refusalTime is the approximate minimum time of a refusal.
const refusalTime = time.Second

// longRefusal bounds the time that a slow system adds to it.
const longRefusal = 3 * time.Second

// New returns the service. own may be nil. Unknown systems and those with invalid settings accept
// no users; errs names them.
func New(o Options, own Modules, tokens *Tokens, log *slog.Logger) (s *Service, errs []error) {
	s = &Service{o: o, used: map[string]System{}, broken: map[string]error{}, tokens: tokens, log: log, limiter: newLimiter(maxAsked, maxAskedOfOne),
		slowest: refusalTime, slots: map[string]*limiter{}}
	switch o.ExpireOverride.(type) {
	case nil, bool, *value.Dict:
	default:
		errs = append(errs, fmt.Errorf("token_expire_user_override: expected True, False or a map of systems to names, got %s", value.TypeName(o.ExpireOverride)))
	}
	for k, v := range o.External.All() {
		name := value.Str(k)
		build, ok := systems.Lookup(name)
		conf, isDict := v.(*value.Dict)
		switch {
		case own != nil && own.Has(name):
			sys := own.System(name)
			s.used[name] = sys
			if few, ok := sys.(slotted); ok {
				s.slots[name] = newLimiter(few.Slots(), max(1, few.Slots()/2))
			}
		case !ok:
			errs = append(errs, fmt.Errorf("external_auth: unknown system %q; supported: %v", name, Systems()))
		case !isDict && v != nil:
			errs = append(errs, fmt.Errorf("external_auth: %s must be a map of users to permissions", name))
		default:
			sys, err := build(conf, &o)
			if err != nil {
				errs = append(errs, fmt.Errorf("external_auth: %s: %w", name, err))
				s.broken[name] = err
				continue
			}
			s.used[name] = sys
			if c, ok := sys.(checked); ok {
				if err := c.Check(); err != nil {
					errs = append(errs, fmt.Errorf("external_auth: %s: no user can sign in: %w", name, err))
				}
			}
			if err := unknownSettings(conf, settings[name]); err != nil {
				errs = append(errs, fmt.Errorf("external_auth: %s: %w", name, err))
			}
		}
	}
	return s, errs
}

// settings are the settings of each system in external_auth, without their ^. The keys of a system
// that is not listed are users alone.
var settings = map[string][]string{
	"file": {"field_separator", "filename", "filetype", "hashtype", "password_field", "realm", "username_field"},
	"oidc": {"ca_file", "client_id", "client_secret", "groups_claim", "issuer", "redirect_uri", "scopes", "username_claim"},
	"pki":  {"ca_file"},
	"rest": {"url"},
}

// unknownSettings returns an error about settings that a system does not have.
func unknownSettings(conf *value.Dict, known []string) error {
	for k := range conf.All() {
		name, ok := strings.CutPrefix(value.Str(k), "^")
		if ok && known != nil && !slices.Contains(known, name) {
			return salt.Errorf(salt.Invalid, "the setting ^%.80s has no effect; there are ^%s", name, strings.Join(known, ", ^"))
		}
	}
	return nil
}

// Authenticate identifies the user with these credentials. Its error is of kind Denied. A refusal
// is delayed without blocking other checks.
func (s *Service) Authenticate(ctx context.Context, c Credentials) (*User, error) {
	done, err := s.take(ctx, c)
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
		return &User{Name: v.Name, System: c.System, Groups: v.Groups, own: v.Entries, kept: v.Only}, nil
	}
	s.log.Warn("authentication failed", "eauth", fmt.Sprintf("%.40s", c.System), "user", fmt.Sprintf("%.80s", c.Name), "err", err)
	s.linger(ctx, began)
	return nil, ErrRefused
}

// take waits until a check may run. A check that waits for a slot of its own system does not occupy
// a slot of the others.
func (s *Service) take(ctx context.Context, c Credentials) (done func(), err error) {
	own := s.slots[c.System]
	if own == nil {
		return s.limiter.take(ctx, c.Name)
	}
	free, err := own.take(ctx, c.Name)
	if err != nil {
		return nil, err
	}
	ended, err := s.limiter.take(ctx, c.Name)
	if err != nil {
		free()
		return nil, err
	}
	return func() { ended(); free() }, nil
}

func (s *Service) ask(ctx context.Context, c Credentials) (Vouched, error) {
	sys, ok := s.used[c.System]
	if err := s.broken[c.System]; err != nil {
		return Vouched{}, salt.Errorf(salt.Denied, "the system is configured but unusable: %w", err)
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

// askTime is the timeout of a system.
const askTime = 30 * time.Second

// linger waits until the typical time of a refusal has passed.
func (s *Service) linger(ctx context.Context, began time.Time) {
	s.mu.Lock()
	s.slowest = max(s.slowest, min(time.Since(began), longRefusal))
	total := s.slowest
	s.mu.Unlock()
	total += time.Duration((rand.Float64() - 0.5) / 2 * float64(total))
	wait.Sleep(ctx, total-time.Since(began))
}

// Rights returns a user's permissions, in the form of package acl, with those of the user's roles.
func (s *Service) Rights(u *User) []any { return acl.Expand(s.Entries(u), s.o.Roles) }

// Roles returns the option permission_roles.
func (s *Service) Roles() *value.Dict { return s.o.Roles }

// Entries returns a user's permissions, with the names of roles as they are configured.
func (s *Service) Entries(u *User) []any {
	if u.kept {
		return u.own
	}
	conf := s.o.External.Dict(u.System)
	if len(u.own) > 0 && !s.o.PermissiveACL {
		conf = conf.Clone()
		conf.Delete("*") // applies only to users without entries of their own
	}
	return append(acl.External(conf, u.Name, u.Groups, s.o.PermissiveACL), u.own...)
}

// Configured returns the systems that external_auth names and that can be used, sorted.
func (s *Service) Configured() []string { return slices.Sorted(maps.Keys(s.used)) }

// Permissions returns the entry of a system in external_auth: lists of permissions by user, and by
// group with a final "%".
func (s *Service) Permissions(system string) *value.Dict { return s.o.External.Dict(system) }

// keepACL reports whether tokens store their users' permissions.
func (s *Service) keepACL() bool { return s.o.KeepACL || s.used["rest"] != nil }

// NewToken authenticates a user and issues a token: {start, expire, name, eauth, [auth_list],
// [groups], token}. expire is the requested lifetime in seconds, which only some users may choose;
// 0 means as configured.
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
	if s.keepACL() || u.kept {
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

// Token returns the data of a token, or nil if it is invalid or expired.
func (s *Service) Token(token string) *value.Dict {
	t, err := s.tokens.Get(token, time.Now())
	if err != nil {
		s.log.Warn("cannot read token", "err", err)
	}
	return t
}

// ByToken returns the user of a token. Its error is of kind Denied.
func (s *Service) ByToken(token string) (*User, error) {
	t := s.Token(token)
	if t == nil || s.used[t.Str("eauth")] == nil {
		return nil, ErrRefused
	}
	u := &User{Name: t.Str("name"), System: t.Str("eauth")}
	for _, g := range t.List("groups") {
		u.Groups = append(u.Groups, value.Str(g))
	}
	// A module grants permissions when the user signs in, so its tokens have them in any case.
	if l, ok := t.At("auth_list").(*value.List); ok && (s.keepACL() || s.slots[u.System] != nil) {
		u.own, u.kept = l.Items, true
	}
	return u, nil
}
