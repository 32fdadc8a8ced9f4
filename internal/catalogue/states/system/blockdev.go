package system

import (
	"context"
	"os"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("blockdev", func() state.Module {
		return state.Module{Name: "blockdev", Doc: `Keep block devices tuned and formatted.`, Funcs: []state.Func{
			state.Of("tuned", blockTuned, `Have attributes of a device: read-ahead, filesystem-read-ahead, read-only, read-write.`),
			state.Of("formatted", blockFormatted, `Have a file system on a device. What another one held is lost.`),
		}}
	})
}

type blockTunedArgs struct {
	Name   string    `salt:"name" doc:"path of the device"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// tunable maps attributes to blockdev's option that reads them.
var tunable = map[string]string{"read-ahead": "getra", "filesystem-read-ahead": "getfra", "read-only": "getro", "read-write": "getro"}

func blockTuned(_ context.Context, e *state.Env, a blockTunedArgs) (state.Plan, error) {
	info, err := os.Stat(a.Name)
	if err != nil || info.Mode()&(os.ModeDevice|os.ModeCharDevice) != os.ModeDevice {
		return state.Plan{}, state.Errorf("Changes to %s cannot be applied. Not a block device.", a.Name)
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Changes to " + a.Name + " will be applied "},
		Do: func(ctx context.Context) (state.Change, error) {
			before, err := e.Exec(ctx, "disk.dump", nil, a.Name)
			if err != nil {
				return state.Change{}, err
			}
			after, err := e.Exec(ctx, "disk.tune", a.Kwargs.Clean(), a.Name)
			if err != nil {
				return state.Change{}, err
			}
			if !value.Truth(after) {
				return state.Change{}, state.Errorf("Failed to modify block device %s", a.Name)
			}
			old, _ := before.(*value.Dict)
			now, _ := after.(*value.Dict)
			diff := value.NewDict(1)
			for k, v := range a.Kwargs.Clean().All() {
				what, ok := tunable[value.Str(k)]
				if !ok || value.Equal(old.At(what), now.At(what)) {
					continue
				}
				was, is := value.Str(old.At(what)), value.Str(now.At(what))
				if _, isBool := v.(bool); isBool {
					yes := func(text string) string { return value.Str((text == "1") != (k == "read-write")) }
					was, is = yes(was), yes(is)
				}
				diff.Set(k, "Changed from "+was+" to "+is)
			}
			if diff.Len() == 0 {
				return state.Change{Comment: "Block device " + a.Name + " already in correct state"}, nil
			}
			return state.Change{Diff: diff, Comment: "Block device " + a.Name + " successfully modified "}, nil
		}}}}, nil
}

type blockFormattedArgs struct {
	Name   string    `salt:"name" doc:"path of the device"`
	Type   string    `salt:"fs_type" doc:"type of the file system" default:"ext4"`
	Force  bool      `salt:"force" doc:"format without questions (xfs, btrfs, ext)" default:"false"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// signature returns the type of file system that blkid finds on a device.
func signature(ctx context.Context, name string) (string, error) {
	out, err := (&host.Machine{}).Do(ctx, "blkid", "-o", "value", "-s", "TYPE", name)
	if err != nil {
		return "", fn.Errorf("cannot run blkid: %w", err)
	}
	return strings.TrimSpace(out.Stdout), nil
}

func blockFormatted(ctx context.Context, e *state.Env, a blockFormattedArgs) (state.Plan, error) {
	if _, err := os.Stat(a.Name); err != nil {
		return state.Plan{}, state.Errorf("%s does not exist", a.Name)
	}
	now, err := signature(ctx, a.Name)
	switch {
	case err != nil:
		return state.Plan{}, err
	case now == a.Type:
		return state.Plan{Comment: a.Name + " already formatted with " + a.Type}, nil
	case (&host.Machine{}).Which("mkfs."+a.Type) == "":
		return state.Plan{}, state.Errorf("Invalid fs_type: %s", a.Type)
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: "Changes to " + a.Name + " will be applied "},
		Do: func(ctx context.Context) (state.Change, error) {
			kw := a.Kwargs.Clean()
			kw.Set("force", a.Force)
			if _, err := e.Exec(ctx, "disk.format", kw, a.Name, a.Type); err != nil {
				return state.Change{}, err
			}
			for range 10 {
				found, err := signature(ctx, a.Name)
				switch {
				case err != nil:
					return state.Change{}, err
				case found == a.Type: // Salt reports the new type as the old one, too
					return state.Change{Diff: value.DictOf("new", a.Type, "old", found), Comment: a.Name + " has been formatted with " + a.Type}, nil
				case found != "":
					return state.Change{}, state.Errorf("Failed to format %s", a.Name)
				}
				if !wait.Sleep(ctx, 3*time.Second) {
					return state.Change{}, context.Cause(ctx)
				}
			}
			return state.Change{}, state.Errorf("Failed to format %s", a.Name)
		}}}}, nil
}
