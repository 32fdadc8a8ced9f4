package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/catalogue"
	"brine/internal/catalogue/actions/sdb"
	"brine/internal/catalogue/grains"
	"brine/internal/daemons/usermodules"
	"brine/internal/files/extmods"
	"brine/internal/py/value"
)

// sdbLimit bounds the time in which all references are looked up.
const sdbLimit = 2 * time.Minute

// ResolveSDB replaces references such as sdb://profile/key in the values of options by what they refer
// to. As in Salt the profiles are options. It leaves references as they are whose profile or driver does
// not exist; Unsupported names them.
func ResolveSDB(ctx context.Context, t *Tree) error {
	var keys []any
	for k, v := range t.Values.All() {
		if holdsSDB(v, 0) {
			keys = append(keys, k)
		}
	}
	if keys == nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sdbLimit, fmt.Errorf("looking up sdb:// references took more than %v", sdbLimit))
	defer cancel()
	own, err := sdbModules(t)
	if err != nil {
		return err
	}
	defer own.Close()
	machine := &machineGrains{ctx: ctx, id: t.Values.Str("id"), tree: t}
	c := (&fn.Call{ID: machine.id, Log: t.log, Config: fn.Tree{Dict: t.Values}, Grains: machine, SDB: own.SDB()}).Prepare()
	if c.Funcs, err = fn.NewRegistry(machine, catalogue.Modules()...); err != nil {
		return err
	}
	var faults []error
	for _, k := range keys {
		v, _ := t.Values.Get(k)
		v, err := references{t}.resolved(ctx, c, v, 0)
		if err != nil {
			faults = append(faults, t.fault(value.Str(k), err))
			continue
		}
		t.Values.Set(k, v)
	}
	return errors.Join(faults...)
}

// sdbModules returns the user's drivers.
func sdbModules(t *Tree) (*usermodules.Modules, error) {
	var o struct {
		Python python.Options
		Sync   extmods.Options
	}
	if err := Decode(t, &o); err != nil {
		return nil, err
	}
	cache, dir := moduleDirs(t)
	call := func() *fn.Call { return &fn.Call{Log: t.log, Config: fn.Tree{Dict: t.Values}} }
	return usermodules.New(usermodules.Config{
		Kinds: usermodules.SDBKinds, One: true, Options: o.Python, Sync: o.Sync, CacheDir: cache, ExtensionModules: dir, ID: t.Values.Str("id"), Opts: t.Values,
		OwnGrains: value.NewDict(0), SaltFile: func(string) string { return "" }, Call: call, Log: t.log,
	}), nil
}

// machineGrains are the grains of this machine, for functions that drivers call.
type machineGrains struct {
	ctx  context.Context
	id   string
	tree *Tree
	all  *value.Dict
}

// Get implements fn.Reader.
func (g *machineGrains) Get(key string) any { return g.All().At(key) }

// All implements fn.Reader.
func (g *machineGrains) All() *value.Dict {
	if g.all == nil {
		var err error
		if g.all, err = grains.Collect(g.ctx, grains.Options{ID: g.id, NoDNS: true}, g.tree.log); err != nil {
			g.tree.log.Warn("cannot collect some grains", "err", err)
		}
	}
	return g.all
}

// Late implements fn.Late.
func (*machineGrains) Late() {}

// references are the references in the options.
type references struct{ t *Tree }

// resolved returns a value with what its references refer to.
func (r references) resolved(ctx context.Context, c *fn.Call, v any, depth int) (any, error) {
	if depth > maxSDB || !holdsSDB(v, depth) {
		return v, nil
	}
	switch v := v.(type) {
	case string:
		if r.problem(v) != "" {
			return v, nil
		}
		if err := r.checkUser(v); err != nil {
			return nil, err
		}
		found, err := sdb.Get(ctx, c, v, false)
		if err != nil {
			return nil, fmt.Errorf("cannot look up %s: %w", v, err)
		}
		return found, nil
	case *value.Dict:
		for k, w := range v.Clone().All() {
			found, err := r.resolved(ctx, c, w, depth+1)
			if err != nil {
				return nil, err
			}
			v.Set(k, found)
		}
		return v, nil
	case *value.List:
		for i, w := range v.Items {
			found, err := r.resolved(ctx, c, w, depth+1)
			if err != nil {
				return nil, err
			}
			v.Items[i] = found
		}
		return v, nil
	}
	return v, nil
}

// checkUser returns an error if a driver in Python would run as root although the daemon has another
// user, who may write the directory with the module.
func (r references) checkUser(uri string) error {
	user, driver := r.t.Values.Str("user"), r.driver(uri)
	if os.Geteuid() != 0 || user == "" || user == "root" || len(r.t.ownClaims("sdb")[driver]) == 0 {
		return nil
	}
	return fmt.Errorf("cannot look up %s: the driver %s is a module in Python, which does not run as root for the user %s: start the program as this user",
		uri, driver, user)
}

// driver returns the driver of a reference, or "" if it has no profile.
func (r references) driver(uri string) string {
	name, key, _ := strings.Cut(strings.TrimPrefix(uri, sdb.Prefix), "/")
	if key == "" {
		return ""
	}
	profile, _ := r.t.Values.At(name).(*value.Dict)
	return value.Str(orEmpty(profile.At("driver")))
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

// problem returns why a reference cannot be looked up, or "".
func (r references) problem(uri string) string {
	driver := r.driver(uri)
	switch {
	case driver == "":
		return "no option is its profile, a map with a driver"
	case slices.Contains(sdb.Names(), driver), len(r.t.ownClaims("sdb")[driver]) > 0:
		return ""
	}
	return fmt.Sprintf("there is no driver %q; use one of %s, or a module of your own (docs/python-modules.md)", driver, strings.Join(sdb.Names(), ", "))
}

// maxSDB bounds the depth to which a value is searched.
const maxSDB = 20

// holdsSDB reports whether a value has references.
func holdsSDB(v any, depth int) bool {
	return findSDB(v, depth, func(string) bool { return true }) != ""
}

// findSDB returns the first reference in v that is wanted.
func findSDB(v any, depth int, wanted func(uri string) bool) string {
	if depth > maxSDB {
		return ""
	}
	switch v := v.(type) {
	case string:
		if strings.HasPrefix(v, sdb.Prefix) && wanted(v) {
			return v
		}
	case *value.Dict:
		for _, w := range v.All() {
			if s := findSDB(w, depth+1, wanted); s != "" {
				return s
			}
		}
	case *value.List:
		for _, w := range v.Items {
			if s := findSDB(w, depth+1, wanted); s != "" {
				return s
			}
		}
	}
	return ""
}
