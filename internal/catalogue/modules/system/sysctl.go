package system

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"syscall"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/sysctl"
	"brine/internal/py/value"
)

type kernel struct{ m *host.Machine }

func init() { units.Register("sysctl", sysctlModule) }

func sysctlModule(m *host.Machine) fn.Module {
	k := kernel{m}
	return fn.Module{Name: "sysctl", Doc: `Parameters of the kernel.`, Funcs: []fn.Func{
		fn.Of("show", k.show, `Return all parameters, or those that a file sets.`, fn.Example("salt '*' sysctl.show")),
		fn.Of("get", k.get, `Return the value of a parameter.`, fn.Example("salt '*' sysctl.get net.ipv4.ip_forward")),
		fn.Of("assign", k.assign, `Set a parameter until the next boot.`, fn.Example("salt '*' sysctl.assign net.ipv4.ip_forward 1")),
		fn.Of("persist", k.persist, `Set a parameter now and at every boot.`, fn.Example("salt '*' sysctl.persist net.ipv4.ip_forward 1")),
		fn.Of("default_config", func(context.Context, *fn.Call, none) (string, error) { return sysctl.DefaultFile(m), nil },
			`Return the file that sysctl.persist writes.`, fn.Example("salt '*' sysctl.default_config")),
	}}
}

type sysctlShowArgs struct {
	File any `salt:"config_file" doc:"file to show instead of what the kernel has" default:"false"`
}

func (k kernel) show(_ context.Context, _ *fn.Call, a sysctlShowArgs) (any, error) {
	if !value.Truth(a.File) {
		all := sysctl.All(k.m)
		d := value.NewDict(len(all))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			d.Set(name, all[name])
		}
		return d, nil
	}
	entries, err := sysctl.ReadFile(k.m, value.Str(a.File))
	if errors.Is(err, fs.ErrNotExist) {
		return &value.List{}, nil
	}
	if err != nil {
		return nil, nil
	}
	d := value.NewDict(len(entries))
	for _, e := range entries {
		d.Set(e.Name, e.Value)
	}
	return d, nil
}

type sysctlNameArgs struct {
	Name string `salt:"name" doc:"name of the parameter"`
}

func (k kernel) get(_ context.Context, _ *fn.Call, a sysctlNameArgs) (string, error) {
	v, err := sysctl.Get(k.m, a.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fn.Errorf("sysctl %s does not exist", a.Name)
	}
	if err != nil {
		return "", fn.Errorf("cannot read sysctl %s: %w", a.Name, err)
	}
	return v, nil
}

type assignArgs struct {
	Name  string `salt:"name" doc:"name of the parameter"`
	Value any    `salt:"value" doc:"the value"`
}

func (k kernel) set(name, v string) error {
	if _, err := k.get(context.Background(), nil, sysctlNameArgs{name}); err != nil {
		return err
	}
	if err := sysctl.Set(k.m, name, v); err != nil {
		return fn.Errorf("sysctl -w failed: %w", refusal(name, err))
	}
	return nil
}

// refusal says in the words of sysctl(8) why the kernel does not take a value.
func refusal(name string, err error) error {
	var at *fs.PathError
	var no syscall.Errno
	switch {
	case !errors.As(err, &at) || !errors.As(err, &no):
		return err
	case at.Op == "open" && slices.Contains([]syscall.Errno{syscall.EACCES, syscall.EPERM, syscall.EROFS}, no):
		return fmt.Errorf("sysctl: permission denied on key %q", name)
	}
	text := no.Error()
	return fmt.Errorf("sysctl: setting key %q: %s", name, strings.ToUpper(text[:1])+text[1:])
}

func (k kernel) assign(_ context.Context, _ *fn.Call, a assignArgs) (*value.Dict, error) {
	v := value.Str(a.Value)
	return value.DictOf(a.Name, v), k.set(a.Name, v)
}

type persistArgs struct {
	Name   string `salt:"name" doc:"name of the parameter"`
	Value  any    `salt:"value" doc:"the value"`
	Config any    `salt:"config" doc:"file to keep it in; null for the usual one" default:"null"`
}

func (k kernel) persist(_ context.Context, _ *fn.Call, a persistArgs) (string, error) {
	v, file := value.Str(a.Value), sysctl.DefaultFile(k.m)
	if value.Truth(a.Config) {
		file = value.Str(a.Config)
	}
	changed, err := sysctl.Keep(k.m, file, a.Name, v)
	if err != nil {
		return "", fn.Errorf("cannot write %s: %w", file, err)
	}
	if !changed {
		if now, err := sysctl.Get(k.m, a.Name); err == nil && sysctl.Same(now, v) {
			return "Already set", nil
		}
	}
	return "Updated", k.set(a.Name, v)
}
