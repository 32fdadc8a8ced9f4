package shell

import (
	"context"
	"errors"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

// user returns the user to run as; nil means the minion's own user.
func (a *args) user(ctx context.Context) (*proc.User, error) {
	if a.Runas == "" && a.Group == "" {
		return nil, nil
	}
	u := &proc.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	if groups, err := os.Getgroups(); err == nil {
		for _, g := range groups {
			u.Groups = append(u.Groups, uint32(g))
		}
	}
	if a.Runas != "" {
		var err error
		u, err = proc.LookupUser(ctx, a.Runas)
		if errors.Is(err, proc.ErrNoUser) {
			return nil, fn.Errorf("User '%s' is not available", a.Runas)
		} else if err != nil {
			return nil, fn.Errorf("%w", err)
		}
	}
	if a.Group != "" {
		gid, err := proc.LookupGroup(ctx, a.Group)
		if errors.Is(err, proc.ErrNoGroup) {
			return nil, fn.Errorf("Group '%s' is not available", a.Group)
		} else if err != nil {
			return nil, fn.Errorf("%w", err)
		}
		u.GID = gid
	}
	if os.Getuid() != 0 && (int(u.UID) != os.Getuid() || int(u.GID) != os.Getgid()) {
		return nil, fn.Errorf("the minion does not run as root, so it cannot run commands as another user or group")
	}
	return u, nil
}

// locale lists the variables that determine language and format of output.
var locale = []string{
	"LC_CTYPE", "LC_NUMERIC", "LC_TIME", "LC_COLLATE", "LC_MONETARY", "LC_MESSAGES", "LC_PAPER", "LC_NAME", "LC_ADDRESS",
	"LC_TELEPHONE", "LC_MEASUREMENT", "LC_IDENTIFICATION", "LANGUAGE",
}

// vars is an environment in the order in which names were first set.
type vars struct{ *value.Dict }

func (v vars) add(list []string) {
	for _, e := range list {
		if name, val, ok := strings.Cut(e, "="); ok && name != "" {
			v.Set(name, val)
		}
	}
}

// environment builds the environment from that of the minion (unless clean_env
// is set), that of the user, and env, in this order.
func (a *args) environment(ctx context.Context, c *fn.Call, as *proc.User, shell string) ([]string, error) {
	all, own := vars{value.NewDict(64)}, envDict(a.Env)
	if !a.CleanEnv {
		all.add(os.Environ())
	}
	if a.Runas != "" {
		login, err := proc.LoginEnv(ctx, a.Runas, shell)
		if err != nil {
			c.Log.Error("cannot read the environment of a user", "user", a.Runas, "err", err)
		}
		all.add(login)
	}
	if a.ResetLocale {
		for _, name := range locale {
			all.Set(name, "C")
		}
	}
	for k, v := range own.All() {
		if v == nil {
			c.Log.Error("environment variable has no value; setting it to an empty string", "name", value.Str(k))
			v = ""
		}
		all.Set(value.Str(k), value.Str(v))
	}
	if a.Runas != "" {
		all.Set("USER", a.Runas)
		all.Set("HOME", as.Home)
	}
	if a.PrependPath != "" {
		all.Set("PATH", a.PrependPath+":"+all.Str("PATH"))
	}
	if !own.Has("NOTIFY_SOCKET") {
		all.Delete("NOTIFY_SOCKET") // a child must not notify systemd for the minion
	}
	list := make([]string, 0, all.Len())
	for k, v := range all.All() {
		name, val := k.(string), v.(string)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(val, "\x00") {
			return nil, fn.Errorf("%q cannot be an environment variable", name)
		}
		list = append(list, name+"="+val)
	}
	return list, nil
}

// envDict reads env: a map, or a list of single-entry maps and bare names.
func envDict(v any) *value.Dict {
	switch x := v.(type) {
	case *value.Dict:
		return x
	case *value.List:
		d := value.NewDict(len(x.Items))
		for _, it := range x.Items {
			if one, ok := it.(*value.Dict); ok {
				if one.Len() != 1 {
					return nil
				}
				d.Update(one)
				continue
			}
			if !value.Hashable(it) || it == nil {
				return nil
			}
			d.Set(it, nil)
		}
		return d
	}
	return nil
}
