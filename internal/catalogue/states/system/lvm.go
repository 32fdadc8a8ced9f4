package system

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	when := func(fn.Reader) (string, bool) { return "lvm command not found", (&host.Machine{}).Which("lvm") != "" }
	units.Add(state.Module{Name: "lvm", When: when, Doc: `Keep physical volumes, volume groups and logical volumes. Further arguments are options of pvcreate, vgcreate and lvcreate.`, Funcs: []state.Func{
		state.Of("pv_present", pvPresent, `Have a device be a physical volume.`),
		state.Of("pv_absent", pvAbsent, `Have a device be no physical volume.`),
		state.Of("vg_present", vgPresent, `Have a volume group with physical volumes.`),
		state.Of("vg_absent", vgAbsent, `Have no such volume group.`),
		state.Of("lv_present", lvPresent, `Have a logical volume.`),
		state.Of("lv_absent", lvAbsent, `Have no such logical volume.`),
	}})
}

// displayed is what a function of the module lvm shows of something.
func displayed(ctx context.Context, e *state.Env, fun, name string) (*value.Dict, error) {
	v, err := e.Exec(ctx, "lvm."+fun, value.DictOf("quiet", true), name)
	d, _ := v.(*value.Dict)
	return d, err
}

// lvmThing makes or removes something that a function shows.
type lvmThing struct {
	show, name, noun string // noun is how the thing is called, with its name
	made             bool   // make it, and do not remove it
	do               func(ctx context.Context) (any, error)
}

// plan is that of a thing that is not as it is to be.
func (t lvmThing) plan(e *state.Env) state.Plan {
	word, key, fails := "created", "created", "create"
	if !t.made {
		word, key, fails = "removed", "removed", "remove"
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: t.noun + " is set to be " + word}, Do: func(ctx context.Context) (state.Change, error) {
		v, err := t.do(ctx)
		if err != nil {
			return state.Change{}, err
		}
		d, err := displayed(ctx, e, t.show, t.name)
		switch {
		case err != nil:
			return state.Change{}, err
		case d.Len() > 0 != t.made:
			text := "Failed to " + fails + " " + t.noun
			if out, _ := v.(*value.Dict); out.Has("Output from lvcreate") {
				text += ". Error: " + out.Str("Output from lvcreate")
			} else if said, ok := v.(string); ok && t.show == "lvdisplay" && t.made {
				text += ". " + said
			}
			return state.Change{}, state.Errorf("%s", text)
		}
		return state.Change{Diff: value.DictOf(key, v), Comment: strings.ToUpper(word[:1]) + word[1:] + " " + t.noun}, nil
	}}}}
}

type pvPresentArgs struct {
	Name   string    `salt:"name" doc:"path of the device"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func pvPresent(ctx context.Context, e *state.Env, a pvPresentArgs) (state.Plan, error) {
	noun := "Physical Volume " + a.Name
	d, err := displayed(ctx, e, "pvdisplay", a.Name)
	if err != nil || d.Len() > 0 {
		return state.Plan{Comment: noun + " already present"}, err
	}
	return lvmThing{"pvdisplay", a.Name, noun, true, func(ctx context.Context) (any, error) {
		return e.Exec(ctx, "lvm.pvcreate", a.Kwargs.Clean(), a.Name)
	}}.plan(e), nil
}

type lvmNameArgs struct {
	Name string `salt:"name" doc:"name"`
}

func pvAbsent(ctx context.Context, e *state.Env, a lvmNameArgs) (state.Plan, error) {
	noun := "Physical Volume " + a.Name
	d, err := displayed(ctx, e, "pvdisplay", a.Name)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " does not exist"}, err
	}
	return lvmThing{"pvdisplay", a.Name, noun, false, func(ctx context.Context) (any, error) { return e.Exec(ctx, "lvm.pvremove", nil, a.Name) }}.plan(e), nil
}

type vgPresentArgs struct {
	Name    string    `salt:"name" doc:"volume group"`
	Devices any       `salt:"devices" doc:"physical volumes, as a list or a text with commas" default:"null"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (a vgPresentArgs) devices() []string {
	if text, ok := a.Devices.(string); ok {
		return strings.Split(text, ",")
	}
	return value.Texts(a.Devices)
}

func vgPresent(ctx context.Context, e *state.Env, a vgPresentArgs) (state.Plan, error) {
	noun := "Volume Group " + a.Name
	d, err := displayed(ctx, e, "vgdisplay", a.Name)
	switch {
	case err != nil:
		return state.Plan{}, err
	case d.Len() > 0:
		return a.extended(ctx, e)
	}
	return lvmThing{"vgdisplay", a.Name, noun, true, func(ctx context.Context) (any, error) {
		return e.Exec(ctx, "lvm.vgcreate", a.Kwargs.Clean(), a.Name, value.Strings(a.devices()))
	}}.plan(e), nil
}

// extended is the plan for a volume group that is there.
func (a vgPresentArgs) extended(ctx context.Context, e *state.Env) (state.Plan, error) {
	comment, failed := "Volume Group "+a.Name+" already present", false
	note := func(text string, fault bool) {
		comment += "\n" + text
		failed = failed || fault
	}
	var p state.Plan
	for _, device := range a.devices() {
		group, there, err := groupOf(ctx, e, device)
		switch {
		case err != nil:
			return state.Plan{}, err
		case !there:
			note("pv "+device+" is not present", true)
		case group == a.Name:
			note(device+" is part of Volume Group", false)
		case group != "" && group != "#orphans_lvm2":
			note(device+" is part of "+group, true)
		default:
			diff := value.DictOf(device, "added to "+a.Name)
			p.Steps = append(p.Steps, state.Step{Change: state.Change{Diff: diff}, Do: func(ctx context.Context) (state.Change, error) {
				if _, err := e.Exec(ctx, "lvm.vgextend", nil, a.Name, device); err != nil {
					return state.Change{}, err
				}
				if now, _, err := groupOf(ctx, e, device); err != nil || now != a.Name {
					note(device+" could not be added", true)
					return state.Change{}, err
				}
				return state.Change{Diff: diff}, nil
			}})
		}
	}
	if failed && len(p.Steps) == 0 {
		return state.Plan{}, state.Errorf("%s", comment)
	}
	if len(p.Steps) > 0 { // the words come last, with what failed
		p.Steps = append(p.Steps, state.Step{Change: state.Change{Comment: comment}, Do: func(context.Context) (state.Change, error) {
			if failed {
				return state.Change{}, state.Errorf("%s", comment)
			}
			return state.Change{Comment: comment}, nil
		}})
	}
	p.Comment = comment
	return p, nil
}

// groupOf returns the volume group of a device, and whether that is a physical
// volume at all.
func groupOf(ctx context.Context, e *state.Env, device string) (group string, there bool, err error) {
	real := device
	if path, err := filepath.EvalSymlinks(device); err == nil {
		real = path
	}
	v, err := e.Exec(ctx, "lvm.pvdisplay", value.DictOf("real", true), real)
	d, _ := v.(*value.Dict)
	return d.Dict(real).Str("Volume Group Name"), d.Has(real), err
}

func vgAbsent(ctx context.Context, e *state.Env, a lvmNameArgs) (state.Plan, error) {
	noun := "Volume Group " + a.Name
	d, err := displayed(ctx, e, "vgdisplay", a.Name)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " already absent"}, err
	}
	return lvmThing{"vgdisplay", a.Name, noun, false, func(ctx context.Context) (any, error) { return e.Exec(ctx, "lvm.vgremove", nil, a.Name) }}.plan(e), nil
}

type lvPresentArgs struct {
	Name     string    `salt:"name" doc:"logical volume"`
	Group    string    `salt:"vgname" doc:"its volume group; of a thin volume GROUP/POOL" default:"null"`
	Size     any       `salt:"size" doc:"size, such as 10G; megabytes without a unit" default:"null"`
	Extents  any       `salt:"extents" doc:"size in extents, or a share such as 50%FREE" default:"null"`
	Snapshot any       `salt:"snapshot" doc:"name of a snapshot to make of the logical volume" default:"null"`
	PV       any       `salt:"pv" doc:"physical volume to lie on" default:""`
	Thin     bool      `salt:"thinvolume" doc:"make a thin volume" default:"false"`
	Pool     bool      `salt:"thinpool" doc:"make a pool for thin volumes" default:"false"`
	Force    bool      `salt:"force" doc:"answer all questions with yes, and make it smaller if need be" default:"false"`
	FS       bool      `salt:"resizefs" doc:"change the size of the file system, too" default:"false"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// megabytes reads a size. Sectors are of 512 bytes.
func megabytes(size any) (float64, error) {
	text := strings.ToLower(value.Str(size))
	number := strings.TrimRight(strings.TrimSuffix(text, "b"), "smgtp")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || number == "" {
		return 0, fn.Errorf("Size %s is invalid.", text)
	}
	switch strings.TrimSuffix(text[len(number):], "b") {
	case "s":
		return float64(n) / 2048, nil
	case "", "m":
		return float64(n), nil
	case "g":
		return float64(n << 10), nil
	case "t":
		return float64(n << 20), nil
	case "p":
		return float64(n << 30), nil
	}
	return 0, fn.Errorf("Unit %s is invalid.", text[len(number):])
}

func lvPresent(ctx context.Context, e *state.Env, a lvPresentArgs) (state.Plan, error) {
	if value.Truth(a.Extents) && value.Truth(a.Size) {
		return state.Plan{}, state.Errorf("Only one of extents or size can be specified.")
	}
	name, of := a.Name, any(nil)
	if value.Truth(a.Snapshot) {
		name, of = value.Str(a.Snapshot), a.Name
	}
	group := a.Group
	if a.Thin {
		group, _, _ = strings.Cut(group, "/")
	}
	path := "/dev/" + group + "/" + name
	d, err := displayed(ctx, e, "lvdisplay", path)
	if err != nil {
		return state.Plan{}, err
	}
	if now := d.Dict(path); now != nil {
		return a.resized(ctx, e, name, path, now)
	}
	if value.Truth(a.Size) {
		if _, err := megabytes(a.Size); err != nil {
			return state.Plan{}, err
		}
	}
	return lvmThing{"lvdisplay", path, "Logical Volume " + name, true, func(ctx context.Context) (any, error) {
		kw := a.Kwargs.Clean()
		kw.Update(value.DictOf("size", a.Size, "extents", a.Extents, "snapshot", of, "pv", a.PV, "thinvolume", a.Thin, "thinpool", a.Pool, "force", a.Force))
		return e.Exec(ctx, "lvm.lvcreate", kw, name, a.Group)
	}}.plan(e), nil
}

// resized is the plan for a logical volume that is there.
func (a lvPresentArgs) resized(ctx context.Context, e *state.Env, name, path string, now *value.Dict) (state.Plan, error) {
	noun := "Logical Volume " + name
	there := state.Plan{Comment: noun + " already present"}
	if !value.Truth(a.Size) && !value.Truth(a.Extents) {
		return there, nil
	}
	had, err := megabytes(now.Str("Logical Volume Size") + "s")
	if err != nil {
		return there, err
	}
	was := float64(now.Int("Current Logical Extents Associated"))
	if n, err := strconv.ParseFloat(now.Str("Current Logical Extents Associated"), 64); err == nil {
		was = n
	}
	size, extents := had, was
	kw := value.DictOf("lvpath", path, "resizefs", a.FS, "force", a.Force)
	switch {
	case value.Truth(a.Size):
		if size, err = megabytes(a.Size); err != nil {
			return there, err
		}
		kw.Set("size", a.Size)
	case strings.Contains(value.Str(a.Extents), "%"):
		there.Comment += ", " + value.Str(a.Extents) + " won't be resized."
	default:
		if extents, err = strconv.ParseFloat(value.Str(a.Extents), 64); err != nil {
			return there, fn.Errorf("extents is a number or a share such as 50%%FREE, not %s", value.Repr(a.Extents))
		}
		kw.Set("extents", a.Extents)
	}
	switch {
	case !a.Force && (size < had || extents < was):
		return state.Plan{}, state.Errorf("To reduce a Logical Volume option 'force' must be True.")
	case size == had && extents == was:
		return there, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: noun + " is set to be resized"}, Do: func(ctx context.Context) (state.Change, error) {
		v, err := e.Exec(ctx, "lvm.lvresize", kw)
		if err != nil {
			return state.Change{}, err
		}
		d, err := displayed(ctx, e, "lvdisplay", path)
		if err != nil {
			return state.Change{}, err
		}
		if has, err := megabytes(d.Dict(path).Str("Logical Volume Size") + "s"); err != nil || has == had {
			said, _ := v.(*value.Dict)
			return state.Change{}, state.Errorf("Failed to resize %s.\nError: %s", noun, said.Str("Output from lvresize"))
		}
		return state.Change{Diff: value.DictOf("resized", v), Comment: "Resized " + noun}, nil
	}}}}, nil
}

type lvAbsentArgs struct {
	Name  string `salt:"name" doc:"logical volume"`
	Group string `salt:"vgname" doc:"its volume group" default:"null"`
}

func lvAbsent(ctx context.Context, e *state.Env, a lvAbsentArgs) (state.Plan, error) {
	noun, path := "Logical Volume "+a.Name, "/dev/"+a.Group+"/"+a.Name
	d, err := displayed(ctx, e, "lvdisplay", path)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " already absent"}, err
	}
	return lvmThing{"lvdisplay", path, noun, false, func(ctx context.Context) (any, error) { return e.Exec(ctx, "lvm.lvremove", nil, a.Name, a.Group) }}.plan(e), nil
}
