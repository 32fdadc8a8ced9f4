package files

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("mknod", f.mknod, `Keep a pipe or a device, which is made if there is nothing in its place.`)}
	})
}

type mknodArgs struct {
	Name  string `salt:"name" doc:"path"`
	Type  string `salt:"ntype" doc:"p: a pipe, c: a character device, b: a block device"`
	Major int64  `salt:"major" doc:"number of the device's driver" default:"0"`
	Minor int64  `salt:"minor" doc:"number of the device" default:"0"`
	User  any    `salt:"user" doc:"owner" default:"null"`
	Group any    `salt:"group" doc:"group" default:"null"`
	Mode  any    `salt:"mode" doc:"mode" default:"0600"`
}

func (f file) mknod(ctx context.Context, e *state.Env, a mknodArgs) (state.Plan, error) {
	name := filesys.ExpandUser(a.Name)
	if name == "" {
		return state.Plan{}, fn.Errorf("Must provide name to file.mknod")
	}
	kind, ok := map[string]string{"c": "character device", "b": "block device", "p": "fifo pipe"}[a.Type]
	if !ok {
		return state.Plan{}, fn.Errorf("Node type unavailable: '%s'. Available node types are character ('c'), block ('b'), and pipe ('p')", a.Type)
	}
	title := strings.ToUpper(kind[:1]) + kind[1:] + " " + name
	own, err := f.owner(ctx, a.User, a.Group, filesys.NormalizeMode(a.Mode))
	if err != nil {
		return state.Plan{}, err
	}
	is := map[string]string{"c": "file.is_chrdev", "b": "file.is_blkdev", "p": "file.is_fifo"}[a.Type]
	there, err := e.Exec(ctx, is, nil, name)
	switch {
	case err != nil:
		return state.Plan{}, err
	case filesys.IsFile(name):
		return state.Plan{}, fn.Errorf("File %s exists and is not a %s. Refusing to continue", name, kind)
	case there != true:
		return state.Plan{Steps: []state.Step{{
			Change: state.Change{Comment: title + " is set to be created"},
			Do:     func(ctx context.Context) (state.Change, error) { return f.makeNode(ctx, e, name, a) },
		}}}, nil
	}
	if a.Type != "p" {
		v, err := e.Exec(ctx, "file.get_devmm", nil, name)
		if err != nil {
			return state.Plan{}, err
		}
		if n, ok := numbersOf(v); !ok || n != [2]int64{a.Major, a.Minor} {
			return state.Plan{}, fn.Errorf("%s exists and has a different major/minor %d/%d. Refusing to continue", title, n[0], n[1])
		}
	}
	// As in Salt, the owner and mode of a device that a link leads to are left alone.
	now, err := filesys.Look(f.m, name, false)
	if err != nil {
		return state.Plan{}, fn.Errorf("%s: %w", name, atomicfile.Cause(err))
	}
	changes := own.Differs(now)
	if changes.Len() == 0 {
		return state.Plan{Comment: title + " is in the correct state"}, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Diff: changes}, Do: func(context.Context) (state.Change, error) {
		if err := own.Available(); err != nil {
			return state.Change{}, err
		}
		d, err := own.Apply(f.m, name, false)
		return state.Change{Diff: d}, err
	}}}}, nil
}

// numbersOf parses the major and minor number of a device.
func numbersOf(v any) (n [2]int64, ok bool) {
	var items []any
	switch v := v.(type) {
	case *value.List:
		items = v.Items
	case value.Tuple:
		items = v
	}
	if len(items) != 2 {
		return n, false
	}
	for i, it := range items {
		if _, err := fmt.Sscan(value.Str(it), &n[i]); err != nil {
			return n, false
		}
	}
	return n, true
}

func (f file) makeNode(ctx context.Context, e *state.Env, name string, a mknodArgs) (state.Change, error) {
	v, err := e.Exec(ctx, "file.mknod", nil, name, a.Type, a.Major, a.Minor, a.User, a.Group, a.Mode)
	if err != nil {
		return state.Change{}, err
	}
	ret, _ := v.(*value.Dict)
	if !ret.Bool("result") {
		return state.Change{}, fn.Errorf("%s", ret.Str("comment"))
	}
	return state.Change{Diff: ret.Dict("changes"), Comment: ret.Str("comment")}, nil
}
