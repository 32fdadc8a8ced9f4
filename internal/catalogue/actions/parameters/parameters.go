// Package parameters implements the execution module and the state sysctl.
package parameters

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

// Kernel reads and sets kernel parameters of a machine.
type Kernel struct{ M *host.Machine }

// ShowArgs are the arguments of Show.
type ShowArgs struct {
	File any `salt:"config_file" doc:"file to show instead of what the kernel has" default:"false"`
}

// Show implements sysctl.show.
func (k Kernel) Show(_ context.Context, _ *fn.Call, a ShowArgs) (any, error) {
	if !value.Truth(a.File) {
		all := sysctl.All(k.M)
		d := value.NewDict(len(all))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			d.Set(name, all[name])
		}
		return d, nil
	}
	entries, err := sysctl.ReadFile(k.M, value.Str(a.File))
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

// NameArgs are the arguments of Get.
type NameArgs struct {
	Name string `salt:"name" doc:"name of the parameter"`
}

// Get implements sysctl.get.
func (k Kernel) Get(_ context.Context, _ *fn.Call, a NameArgs) (string, error) {
	v, err := sysctl.Get(k.M, a.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fn.Errorf("sysctl %s does not exist", a.Name)
	}
	if err != nil {
		return "", fn.Errorf("cannot read sysctl %s: %w", a.Name, err)
	}
	return v, nil
}

// AssignArgs are the arguments of Assign.
type AssignArgs struct {
	Name  string `salt:"name" doc:"name of the parameter"`
	Value any    `salt:"value" doc:"the value"`
}

func (k Kernel) set(name, v string) error {
	if _, err := k.Get(context.Background(), nil, NameArgs{name}); err != nil {
		return err
	}
	if err := sysctl.Set(k.M, name, v); err != nil {
		return fn.Errorf("sysctl -w failed: %w", refusal(name, err))
	}
	return nil
}

// refusal returns sysctl(8)'s message for a value that the kernel rejects.
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

// Assign implements sysctl.assign.
func (k Kernel) Assign(_ context.Context, _ *fn.Call, a AssignArgs) (*value.Dict, error) {
	v := value.Str(a.Value)
	return value.DictOf(a.Name, v), k.set(a.Name, v)
}

// PersistArgs are the arguments of Persist.
type PersistArgs struct {
	Name   string `salt:"name" doc:"name of the parameter"`
	Value  any    `salt:"value" doc:"the value"`
	Config any    `salt:"config" doc:"file to keep it in; null for the usual one" default:"null"`
}

// Persist implements sysctl.persist.
func (k Kernel) Persist(_ context.Context, _ *fn.Call, a PersistArgs) (string, error) {
	v, file := value.Str(a.Value), sysctl.DefaultFile(k.M)
	if value.Truth(a.Config) {
		file = value.Str(a.Config)
	}
	changed, err := sysctl.Keep(k.M, file, a.Name, v)
	if err != nil {
		return "", fn.Errorf("cannot write %s: %w", file, err)
	}
	if !changed {
		if now, err := sysctl.Get(k.M, a.Name); err == nil && sysctl.Same(now, v) {
			return "Already set", nil
		}
	}
	return "Updated", k.set(a.Name, v)
}
