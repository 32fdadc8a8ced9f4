package system

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/lvm"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	when := func(fn.Reader) (string, bool) { return "lvm command not found", (&host.Machine{}).Which("lvm") != "" }
	units.Declare("lvm", func() state.Module {
		return state.Module{Name: "lvm", When: when,
			Doc: `Keep physical volumes, volume groups and logical volumes. Further arguments are options of pvcreate, vgcreate and lvcreate.`,
			Funcs: []state.Func{
				state.Of("pv_present", pvPresent, `Have a device be a physical volume.`),
				state.Of("pv_absent", pvAbsent, `Have a device be no physical volume.`),
				state.Of("vg_present", vgPresent, `Have a volume group with physical volumes.`),
				state.Of("vg_absent", vgAbsent, `Have no such volume group.`),
				state.Of("lv_present", lvPresent, `Have a logical volume.`),
				state.Of("lv_absent", lvAbsent, `Have no such logical volume.`),
			}}
	})
}

// volumes accesses the volumes of this machine.
func volumes() lvm.Volumes { return lvm.Volumes{M: machine} }

// Functions for binding the keywords that the user gave a state.
var (
	pvcreate = fn.Of("pvcreate", volumes().Pvcreate, "Make physical volumes.")
	vgcreate = fn.Of("vgcreate", volumes().Vgcreate, "Make a volume group.")
	lvcreate = fn.Of("lvcreate", volumes().Lvcreate, "Make a logical volume.")
)

// display shows an object by name.
type display func(ctx context.Context, e *state.Env, name string) (*value.Dict, error)

func shownPV(ctx context.Context, e *state.Env, name string) (*value.Dict, error) {
	return volumes().Pvdisplay(ctx, e.Call, lvm.PvdisplayArgs{Name: name})
}

func shownVG(ctx context.Context, e *state.Env, name string) (*value.Dict, error) {
	return volumes().Vgdisplay(ctx, e.Call, lvm.VgdisplayArgs{Name: name})
}

func shownLV(ctx context.Context, e *state.Env, name string) (*value.Dict, error) {
	return volumes().Lvdisplay(ctx, e.Call, lvm.LvdisplayArgs{Name: name})
}

// lvmThing creates or removes an LVM object.
type lvmThing struct {
	show       display
	name, noun string // noun is what messages call the object, with its name
	made       bool   // create it rather than remove it
	logical    bool   // it is a logical volume
	do         func(ctx context.Context) (any, error)
}

// plan returns the plan to create or remove the object.
func (t lvmThing) plan(e *state.Env) state.Plan {
	word, key, fails := "created", "created", "create"
	if !t.made {
		word, key, fails = "removed", "removed", "remove"
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: t.noun + " is set to be " + word},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := t.do(ctx)
			if err != nil {
				return state.Change{}, err
			}
			d, err := t.show(ctx, e, t.name)
			switch {
			case err != nil:
				return state.Change{}, err
			case d.Len() > 0 != t.made:
				text := "Failed to " + fails + " " + t.noun
				if out, _ := v.(*value.Dict); out.Has("Output from lvcreate") {
					text += ". Error: " + out.Str("Output from lvcreate")
				} else if said, ok := v.(string); ok && t.logical && t.made {
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
	d, err := shownPV(ctx, e, a.Name)
	if err != nil || d.Len() > 0 {
		return state.Plan{Comment: noun + " already present"}, err
	}
	return lvmThing{shownPV, a.Name, noun, true, false, func(ctx context.Context) (any, error) {
		return pvcreate.Call(ctx, e.Call, []any{a.Name}, a.Kwargs.Clean())
	}}.plan(e), nil
}

type lvmNameArgs struct {
	Name string `salt:"name" doc:"name"`
}

func pvAbsent(ctx context.Context, e *state.Env, a lvmNameArgs) (state.Plan, error) {
	noun := "Physical Volume " + a.Name
	d, err := shownPV(ctx, e, a.Name)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " does not exist"}, err
	}
	return lvmThing{shownPV, a.Name, noun, false, false, func(ctx context.Context) (any, error) {
		return volumes().Pvremove(ctx, e.Call, lvm.PvArgs{Devices: a.Name, Override: true, Force: true})
	}}.plan(e), nil
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
	d, err := shownVG(ctx, e, a.Name)
	switch {
	case err != nil:
		return state.Plan{}, err
	case d.Len() > 0:
		return a.extended(ctx, e)
	}
	return lvmThing{shownVG, a.Name, noun, true, false, func(ctx context.Context) (any, error) {
		return vgcreate.Call(ctx, e.Call, []any{a.Name, value.Strings(a.devices())}, a.Kwargs.Clean())
	}}.plan(e), nil
}

// extended returns the plan for an existing volume group.
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
				if _, err := volumes().Vgextend(ctx, e.Call, lvm.VgextendArgs{Name: a.Name, Devices: device}); err != nil {
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
	if len(p.Steps) > 0 { // the comment comes last, with the failures
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

// groupOf returns the volume group of a device, and whether it is a physical
// volume.
func groupOf(ctx context.Context, e *state.Env, device string) (group string, there bool, err error) {
	real := device
	if path, err := filepath.EvalSymlinks(device); err == nil {
		real = path
	}
	d, err := volumes().Pvdisplay(ctx, e.Call, lvm.PvdisplayArgs{Name: real, Real: true})
	return d.Dict(real).Str("Volume Group Name"), d.Has(real), err
}

func vgAbsent(ctx context.Context, e *state.Env, a lvmNameArgs) (state.Plan, error) {
	noun := "Volume Group " + a.Name
	d, err := shownVG(ctx, e, a.Name)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " already absent"}, err
	}
	return lvmThing{shownVG, a.Name, noun, false, false, func(ctx context.Context) (any, error) {
		return volumes().Vgremove(ctx, e.Call, lvm.VgremoveArgs{Name: a.Name, Force: true})
	}}.plan(e), nil
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

// megabytes parses a size. A sector has 512 bytes.
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
	d, err := shownLV(ctx, e, path)
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
	return lvmThing{shownLV, path, "Logical Volume " + name, true, true, func(ctx context.Context) (any, error) {
		kw := a.Kwargs.Clean()
		kw.Update(value.DictOf("size", a.Size, "extents", a.Extents, "snapshot", of, "pv", a.PV, "thinvolume", a.Thin, "thinpool", a.Pool, "force", a.Force))
		return lvcreate.Call(ctx, e.Call, []any{name, a.Group}, kw)
	}}.plan(e), nil
}

// resized returns the plan for an existing logical volume.
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
	due := lvm.LvresizeArgs{Path: path, FS: a.FS, Force: a.Force}
	switch {
	case value.Truth(a.Size):
		if size, err = megabytes(a.Size); err != nil {
			return there, err
		}
		due.Size = a.Size
	case strings.Contains(value.Str(a.Extents), "%"):
		there.Comment += ", " + value.Str(a.Extents) + " won't be resized."
	default:
		if extents, err = strconv.ParseFloat(value.Str(a.Extents), 64); err != nil {
			return there, fn.Errorf("extents is a number or a share such as 50%%FREE, not %s", value.Repr(a.Extents))
		}
		due.Extents = a.Extents
	}
	switch {
	case !a.Force && (size < had || extents < was):
		return state.Plan{}, state.Errorf("To reduce a Logical Volume option 'force' must be True.")
	case size == had && extents == was:
		return there, nil
	}
	return state.Plan{Steps: []state.Step{{Change: state.Change{Comment: noun + " is set to be resized"},
		Do: func(ctx context.Context) (state.Change, error) {
			v, err := volumes().Resize("lvresize", "resized", "--force")(ctx, e.Call, due)
			if err != nil {
				return state.Change{}, err
			}
			d, err := shownLV(ctx, e, path)
			if err != nil {
				return state.Change{}, err
			}
			if has, err := megabytes(d.Dict(path).Str("Logical Volume Size") + "s"); err != nil || has == had {
				return state.Change{}, state.Errorf("Failed to resize %s.\nError: %s", noun, v.Str("Output from lvresize"))
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
	d, err := shownLV(ctx, e, path)
	if err != nil || d.Len() == 0 {
		return state.Plan{Comment: noun + " already absent"}, err
	}
	return lvmThing{shownLV, path, noun, false, true, func(ctx context.Context) (any, error) {
		return volumes().Lvremove(ctx, e.Call, lvm.LvremoveArgs{Name: a.Name, Group: a.Group, Force: true})
	}}.plan(e), nil
}
