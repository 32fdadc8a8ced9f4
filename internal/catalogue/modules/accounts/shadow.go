package accounts

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/py/value"
)

type shadow struct{ m *host.Machine }

func init() { units.Register("shadow", shadowModule) }

func shadowModule(m *host.Machine) fn.Module {
	s := shadow{m}
	mod := fn.Module{Name: "shadow", Doc: `Passwords of users and when they expire.`, Funcs: []fn.Func{
		fn.Of("info", s.info, `Return the entry of a user in /etc/shadow; all is empty if there is none.`, fn.Example("salt '*' shadow.info root")),
		fn.Of("list_users", s.listUsers, `Return the names of all users with a password entry.`, fn.Example("salt '*' shadow.list_users")),
		fn.Of("default_hash", s.defaultHash, `Return the hash of a user without password.`, fn.Example("salt '*' shadow.default_hash")),
		fn.Of("gen_password", s.genPassword, `Return the hash of a password.`,
			fn.Example("salt '*' shadow.gen_password 'I_am_password' crypt_salt=I_am_salt algorithm=sha256")),
		fn.Of("set_password", s.setPassword, `Set the hash of a user's password.`,
			fn.Example("salt '*' shadow.set_password root '$1$UYCIxa628.9qXjpQCjM4a..'")),
		fn.Of("del_password", s.delPassword, `Let a user in without password.`, fn.Example("salt '*' shadow.del_password username")),
		fn.Of("lock_password", s.lock(true), `Lock a user's password.`, fn.Example("salt '*' shadow.lock_password username")),
		fn.Of("unlock_password", s.lock(false), `Let a user in by the password again.`, fn.Example("salt '*' shadow.unlock_password username")),
	}}
	for _, f := range []struct{ name, param, key, option, doc string }{
		{"set_inactdays", "inactdays", "inact", "-I", "the days after which a user with an expired password is shut out"},
		{"set_maxdays", "maxdays", "max", "-M", "the days for which a password is good"},
		{"set_mindays", "mindays", "min", "-m", "the days that must be between two changes of a password"},
		{"set_warndays", "warndays", "warn", "-W", "the days for which a user is warned that the password expires"},
		{"set_date", "date", "lstchg", "-d", "the day on which a password was changed, as a date or in days since 1970"},
		{"set_expire", "expire", "expire", "-E", "the day on which a user is shut out, as a date or in days since 1970; -1 is never"},
	} {
		mod.Funcs = append(mod.Funcs, fn.Of(f.name, s.set(f.key, f.option), `Set `+f.doc+`.`, fn.Params("name", f.param, "root"),
			fn.Example("salt '*' shadow."+f.name+" username 7")))
	}
	return mod
}

func (s shadow) entry(m *host.Machine, name string) (account.Shadow, bool, error) {
	all, err := account.Shadows(m)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return account.Shadow{}, false, fn.Errorf("%w", err)
	}
	i := slices.IndexFunc(all, func(e account.Shadow) bool { return e.Name == name })
	if i < 0 {
		return account.Shadow{}, false, nil
	}
	return all[i], true, nil
}

func (s shadow) info(_ context.Context, _ *fn.Call, a userArgs) (*value.Dict, error) {
	e, ok, err := s.entry(a.below(s.m), a.Name)
	if err != nil {
		return nil, err
	}
	d := describeShadow(e)
	if !ok {
		for _, k := range d.Keys() {
			d.Set(k, "")
		}
	}
	return d, nil
}

func describeShadow(e account.Shadow) *value.Dict {
	return value.DictOf("name", e.Name, "passwd", e.Password, "lstchg", e.Changed, "min", e.Min, "max", e.Max, "warn", e.Warn, "inact", e.Inactive, "expire",
		e.Expire)
}

func (s shadow) listUsers(_ context.Context, _ *fn.Call, a rootArg) (*value.List, error) {
	all, err := account.Shadows(a.below(s.m))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	var names []string
	for _, e := range all {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return value.Strings(names), nil
}

func (shadow) defaultHash(context.Context, *fn.Call, none) (string, error) { return "!", nil }

type genArgs struct {
	Password  any `salt:"password" doc:"the password"`
	Salt      any `salt:"crypt_salt" doc:"salt of the hash; a random one if null" default:"null"`
	Algorithm any `salt:"algorithm" doc:"sha512, sha256 or md5" default:"sha512"`
}

func (shadow) genPassword(ctx context.Context, c *fn.Call, a genArgs) (any, error) {
	return c.Funcs.Call(ctx, c, "random.shadow_hash", []any{a.Salt, a.Password, a.Algorithm}, nil)
}

type setPasswordArgs struct {
	Name       string `salt:"name" doc:"name of the user"`
	Password   string `salt:"password" doc:"hash of the password"`
	UseUsermod any    `salt:"use_usermod" doc:"have usermod(8) set it; other users can then see the hash for a moment" default:"false"`
	rootArg
}

func (s shadow) setPassword(ctx context.Context, c *fn.Call, a setPasswordArgs) (bool, error) {
	m := a.below(s.m)
	if _, ok := account.ByName(ctx, m, a.Name); !ok {
		c.Log.Warn("cannot set password: no such user", "user", a.Name)
		return false, nil
	}
	if text, _ := a.UseUsermod.(string); value.Truth(a.UseUsermod) && !strings.EqualFold(text, "false") {
		if _, err := do(ctx, c, s.m, "usermod", append(a.change("-R"), "-p", a.Password, "--", a.Name)...); err != nil {
			return false, err
		}
	} else if err := account.SetPassword(ctx, m, a.Name, a.Password, time.Now()); err != nil {
		return false, fn.Errorf("%w", err)
	}
	e, _, err := s.entry(m, a.Name)
	return e.Password == a.Password, err
}

func (s shadow) delPassword(ctx context.Context, c *fn.Call, a userArgs) (bool, error) {
	if _, err := do(ctx, c, s.m, "passwd", append(a.change("-R"), "-d", "--", a.Name)...); err != nil {
		return false, err
	}
	e, ok, err := s.entry(a.below(s.m), a.Name)
	return ok && e.Password == "", err
}

func (s shadow) lock(on bool) func(context.Context, *fn.Call, userArgs) (bool, error) {
	option := "-u"
	if on {
		option = "-l"
	}
	return func(ctx context.Context, c *fn.Call, a userArgs) (bool, error) {
		m := a.below(s.m)
		e, ok, err := s.entry(m, a.Name)
		if err != nil || !ok || strings.HasPrefix(e.Password, "!") == on {
			return ok, err
		}
		if _, err := do(ctx, c, s.m, "passwd", append(a.change("-R"), option, "--", a.Name)...); err != nil {
			return false, err
		}
		e, _, err = s.entry(m, a.Name)
		return strings.HasPrefix(e.Password, "!") == on, err
	}
}

type daysArgs struct {
	Name      string `salt:"name" doc:"name of the user"`
	Inactdays any    `salt:"inactdays" doc:"number of days"`
	Maxdays   any    `salt:"maxdays" doc:"number of days"`
	Mindays   any    `salt:"mindays" doc:"number of days"`
	Warndays  any    `salt:"warndays" doc:"number of days"`
	Date      any    `salt:"date" doc:"date, or days since 1970"`
	Expire    any    `salt:"expire" doc:"date, or days since 1970"`
	rootArg
}

// set returns a function that sets one number with an option of chage(1). For
// dates, only the exit status shows success.
func (s shadow) set(key, option string) func(context.Context, *fn.Call, daysArgs) (bool, error) {
	return func(ctx context.Context, c *fn.Call, a daysArgs) (bool, error) {
		v := map[string]any{"inact": a.Inactdays, "max": a.Maxdays, "min": a.Mindays, "warn": a.Warndays, "lstchg": a.Date, "expire": a.Expire}[key]
		m := a.below(s.m)
		e, ok, err := s.entry(m, a.Name)
		if err != nil || !ok {
			return false, err
		}
		if value.Equal(describeShadow(e).At(key), v) {
			return true, nil
		}
		out, err := do(ctx, c, s.m, "chage", append(a.change("-R"), option, value.Str(v), "--", a.Name)...)
		if err != nil || key == "lstchg" || key == "expire" {
			return err == nil && out.Exit == 0, err
		}
		e, _, err = s.entry(m, a.Name)
		return value.Equal(describeShadow(e).At(key), v), err
	}
}
