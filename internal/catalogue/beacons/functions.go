package beacons

import (
	"context"
	"errors"
	"fmt"

	"brine/internal/py/value"
)

func validPackages(c Config) error {
	if _, ok := c.Get("pkgs").(*value.List); !ok {
		return errors.New("it requires pkgs, a list")
	}
	return nil
}

func init() {
	kinds.Register("pkg", func(_ machine) Beacon {
		return Beacon{
			Settings: "pkgs refresh",
			Doc: "Report packages whose status has changed: installed, upgrade (a newer version is available) or not-installed. refresh " +
				"fetches the package lists first.",
			Example:  "- pkgs: [openssl, nginx]\n- refresh: true\n",
			Validate: validPackages, Look: packages,
		}
	})
}

// packages reports packages whose status has changed since the last look:
// installed, upgrade (a newer version is available) or not-installed.
func packages(ctx context.Context, l Look) (out []*value.Dict, err error) {
	ask := func(fun, name string, kwargs *value.Dict) (string, error) {
		v, err := l.Call.Funcs.Call(ctx, l.Call, fun, []any{name}, kwargs)
		if err != nil {
			return "", err
		}
		text, _ := v.(string)
		return text, nil
	}
	for _, name := range value.Texts(l.Config.Get("pkgs")) {
		status, version := "not-installed", any(nil)
		installed, err := ask("pkg.version", name, nil)
		if err != nil {
			return out, err
		}
		if installed != "" {
			status, version = "installed", installed
			latest, err := ask("pkg.latest_version", name, value.DictOf("refresh", l.Config.Flag("refresh", false)))
			if err != nil {
				return out, err
			}
			if latest != "" {
				status, version = "upgrade", latest
			}
		}
		if last := l.Memory.Str(name); last != "" && last != status {
			out = append(out, value.DictOf("pkg", name, "version", version, "status", status))
		}
		l.Memory.Set(name, status)
	}
	return out, nil
}

// monitored is a function that the beacon salt_monitor calls.
type monitored struct {
	fun    string
	args   *value.List
	kwargs *value.Dict
}

func monitoredFunctions(c Config) (all []monitored, single bool, err error) {
	switch x := c.Get("salt_fun").(type) {
	case string:
		return []monitored{{fun: x}}, true, nil
	case *value.List:
		for _, it := range x.Items {
			m, err := parseMonitored(it)
			if err != nil {
				return nil, false, fmt.Errorf("salt_fun: %w", err)
			}
			all = append(all, m)
		}
		return all, false, nil
	}
	return nil, false, errors.New("it requires salt_fun, a function or a list of functions")
}

func parseMonitored(it any) (m monitored, err error) {
	d, ok := it.(*value.Dict)
	if !ok {
		fun, ok := it.(string)
		if !ok {
			return m, fmt.Errorf("%s is not a function", value.Repr(it))
		}
		return monitored{fun: fun}, nil
	}
	for k, v := range d.All() {
		m.fun = value.Str(k)
		set, _ := v.(*value.Dict)
		for key, v := range set.All() {
			list, ok := v.(*value.List)
			if !ok {
				return m, fmt.Errorf("%s: %s: expected a list", m.fun, value.Str(key))
			}
			switch key {
			case "args":
				m.args = list
			case "kwargs":
				m.kwargs = value.NewDict(list.Len())
				for _, it := range list.Items {
					pair, ok := it.(*value.Dict)
					if !ok {
						return m, fmt.Errorf("%s: kwargs: %s is not a key with a value", m.fun, value.Repr(it))
					}
					m.kwargs.Update(pair)
				}
			default:
				return m, fmt.Errorf("%s: expected args or kwargs, got %s", m.fun, value.Repr(key))
			}
		}
		return m, nil
	}
	return m, errors.New("an empty map is not a function")
}

func validMonitor(c Config) error {
	_, _, err := monitoredFunctions(c)
	return err
}

func init() {
	kinds.Register("salt_monitor", func(_ machine) Beacon {
		return Beacon{
			Settings: "salt_fun",
			Doc:      "Call functions of the minion and report their results, of a list of functions only the true ones.",
			Example:  "- salt_fun:\n  - slsutil.renderer:\n      args: [salt://monitoring/checks.sls]\n  - test.ping\n",
			Validate: validMonitor, Look: monitor,
		}
	})
}

// monitor calls functions and reports their results. Of a list it reports only
// the true items.
func monitor(ctx context.Context, l Look) (out []*value.Dict, err error) {
	all, single, err := monitoredFunctions(l.Config)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		var args []any
		if m.args != nil {
			args = m.args.Items
		}
		ret, err := l.Call.Funcs.Call(ctx, l.Call, m.fun, args, m.kwargs)
		if err != nil {
			return out, fmt.Errorf("%s: %w", m.fun, err)
		}
		if !single && !value.Truth(ret) {
			continue
		}
		d := value.DictOf("salt_fun", m.fun, "ret", ret)
		if m.args.Len() > 0 {
			d.Set("args", m.args)
		}
		if m.kwargs.Len() > 0 {
			d.Set("kwargs", m.kwargs)
		}
		out = append(out, d)
	}
	return out, nil
}
