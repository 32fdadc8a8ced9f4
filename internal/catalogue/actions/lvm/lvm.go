// Package lvm implements the execution module and the states lvm: it shows and
// changes volumes in Salt's format.
package lvm

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Volumes runs the programs of lvm(8).
type Volumes struct{ M *host.Machine }

// run runs a program and returns its output. said is its error output.
func (l Volumes) run(ctx context.Context, program string, args ...string) (out, said string, ok bool, err error) {
	o, err := l.M.Do(ctx, program, args...)
	if err != nil {
		return "", "", false, fn.Errorf("cannot run %s: %w", program, err)
	}
	return o.Stdout, strings.TrimSpace(o.Stderr), o.Exit == 0, nil
}

// change runs a program that changes something. It returns success if the program
// succeeds, else its error output.
func (l Volumes) change(ctx context.Context, success, program string, args ...string) (said string, err error) {
	_, said, ok, err := l.run(ctx, program, args...)
	if ok {
		said = success
	}
	return said, err
}

// FullVersion implements lvm.fullversion.
func (l Volumes) FullVersion(ctx context.Context, _ *fn.Call, _ struct{}) (*value.Dict, error) {
	out, _, _, err := l.run(ctx, "lvm", "version")
	all := value.NewDict(4)
	for line := range strings.Lines(out) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			v, _, _ = strings.Cut(v, ":")
			all.Set(strings.TrimSpace(k), strings.TrimSpace(v))
		}
	}
	return all, err
}

// Version implements lvm.version.
func (l Volumes) Version(ctx context.Context, c *fn.Call, n struct{}) (string, error) {
	d, err := l.FullVersion(ctx, c, n)
	return d.Str("LVM version"), err
}

// The columns of the programs' output.
var (
	pvFields = []string{"Physical Volume Device", "Volume Group Name", "Physical Volume Size (kB)", "Internal Physical Volume Number",
		"Physical Volume Status", "Physical Volume (not) Allocatable",
		"Current Logical Volumes Here", "Physical Extent Size (kB)", "Total Physical Extents", "Free Physical Extents", "Allocated Physical Extents"}
	vgFields = []string{"Volume Group Name", "Volume Group Access", "Volume Group Status", "Internal Volume Group Number", "Maximum Logical Volumes",
		"Current Logical Volumes", "Open Logical Volumes",
		"Maximum Logical Volume Size", "Maximum Physical Volumes", "Current Physical Volumes", "Actual Physical Volumes", "Volume Group Size (kB)",
		"Physical Extent Size (kB)", "Total Physical Extents",
		"Allocated Physical Extents", "Free Physical Extents", "UUID"}
	lvFields = []string{"Logical Volume Name", "Volume Group Name", "Logical Volume Access", "Logical Volume Status", "Internal Logical Volume Number",
		"Open Logical Volumes", "Logical Volume Size",
		"Current Logical Extents Associated", "Allocated Logical Extents", "Allocation Policy", "Read Ahead Sectors", "Major Device Number",
		"Minor Device Number"}
)

// display parses the output of a program about one object or all of them, by the
// first column. The result is empty if the program fails.
func (l Volumes) display(ctx context.Context, program, name string, fields []string) (*value.Dict, error) {
	args := []string{"-c"}
	if name != "" {
		args = append(args, host.Operands(name)...)
	}
	out, _, ok, err := l.run(ctx, program, args...)
	all := value.NewDict(2)
	if err != nil || !ok {
		return all, err
	}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < len(fields) || strings.Contains(line, "is a new physical volume") {
			continue
		}
		d := value.NewDict(len(fields))
		for i, name := range fields {
			d.Set(name, f[i])
		}
		all.Set(f[0], d)
	}
	return all, nil
}

// PvdisplayArgs are the arguments of Pvdisplay.
type PvdisplayArgs struct {
	Name  string `salt:"pvname" doc:"path of the device" default:""`
	Real  bool   `salt:"real" doc:"follow links in the names of devices" default:"false"`
	Quiet bool   `salt:"quiet" ignored:"a failure is not logged" default:"false"`
}

// Pvdisplay implements lvm.pvdisplay.
func (l Volumes) Pvdisplay(ctx context.Context, _ *fn.Call, a PvdisplayArgs) (*value.Dict, error) {
	d, err := l.display(ctx, "pvdisplay", a.Name, pvFields)
	if err != nil || !a.Real {
		return d, err
	}
	real := value.NewDict(d.Len())
	for k, v := range d.All() {
		device := value.Str(k)
		if path, err := filepath.EvalSymlinks(device); err == nil {
			device = path
		}
		pv := v.(*value.Dict)
		pv.Set("Real Physical Volume Device", device)
		real.Set(device, pv)
	}
	return real, nil
}

// VgdisplayArgs are the arguments of Vgdisplay.
type VgdisplayArgs struct {
	Name  string `salt:"vgname" doc:"volume group" default:""`
	Quiet bool   `salt:"quiet" ignored:"a failure is not logged" default:"false"`
}

// Vgdisplay implements lvm.vgdisplay.
func (l Volumes) Vgdisplay(ctx context.Context, _ *fn.Call, a VgdisplayArgs) (*value.Dict, error) {
	return l.display(ctx, "vgdisplay", a.Name, vgFields)
}

// LvdisplayArgs are the arguments of Lvdisplay.
type LvdisplayArgs struct {
	Name  string `salt:"lvname" doc:"path of the logical volume" default:""`
	Quiet bool   `salt:"quiet" ignored:"a failure is not logged" default:"false"`
}

// Lvdisplay implements lvm.lvdisplay.
func (l Volumes) Lvdisplay(ctx context.Context, _ *fn.Call, a LvdisplayArgs) (*value.Dict, error) {
	return l.display(ctx, "lvdisplay", a.Name, lvFields)
}

func (l Volumes) isPV(ctx context.Context, device string) (bool, error) {
	d, err := l.display(ctx, "pvdisplay", device, pvFields)
	return d.Len() > 0, err
}

// quietOr returns the option that keeps programs from asking questions.
func quietOr(force bool) string {
	if force {
		return "--yes"
	}
	return "-qq"
}

// options converts keywords to options of a program. The options in bare have no
// value.
func options(kw fn.Kwargs, valid, bare string) (args []string) {
	for k, v := range kw.Clean().All() {
		name := value.Str(k)
		switch {
		case !value.Truth(v):
		case slices.Contains(strings.Fields(bare), name):
			args = append(args, "--"+name)
		case slices.Contains(strings.Fields(valid), name):
			args = append(args, "--"+name, value.Str(v))
		}
	}
	return args
}

// PvcreateArgs are the arguments of Pvcreate.
type PvcreateArgs struct {
	Devices  any       `salt:"devices" doc:"devices, as a list or a text with commas"`
	Override bool      `salt:"override" doc:"go on if one is a physical volume already" default:"true"`
	Force    bool      `salt:"force" doc:"overwrite what is there" default:"true"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// Pvcreate implements lvm.pvcreate.
func (l Volumes) Pvcreate(ctx context.Context, _ *fn.Call, a PvcreateArgs) (any, error) {
	devices := value.Commas(a.Devices)
	if len(devices) == 0 {
		return "Error: at least one device is required", nil
	}
	var due []string
	for _, d := range devices {
		if !l.M.Exists(d) {
			return d + " does not exist", nil
		}
		is, err := l.isPV(ctx, d)
		switch {
		case err != nil:
			return nil, err
		case !is:
			due = append(due, d)
		case !a.Override:
			return `Device "` + d + `" is already an LVM physical volume.`, nil
		}
	}
	if len(due) == 0 {
		return true, nil
	}
	args := []string{quietOr(a.Force)}
	args = append(args, options(a.Kwargs, "metadatasize dataalignment dataalignmentoffset pvmetadatacopies metadatacopies metadataignore restorefile "+
		"labelsector setphysicalvolumesize", "norestorefile")...)
	_, said, ok, err := l.run(ctx, "pvcreate", append(args, host.Operands(due...)...)...)
	if err != nil || !ok {
		return said, err
	}
	for _, d := range devices {
		if is, err := l.isPV(ctx, d); err != nil || !is {
			return `Device "` + d + `" was not affected.`, err
		}
	}
	return true, nil
}

// PvArgs are the arguments of Pvremove, Pvresize, each.
type PvArgs struct {
	Devices  any  `salt:"devices" doc:"devices, as a list or a text with commas"`
	Override bool `salt:"override" doc:"go on if one is no physical volume" default:"true"`
	Force    bool `salt:"force" doc:"do not ask" default:"true"`
}

// each runs a program on those devices that are physical volumes.
func (l Volumes) each(ctx context.Context, program string, a PvArgs) (any, error) {
	var due []string
	for _, d := range value.Commas(a.Devices) {
		is, err := l.isPV(ctx, d)
		switch {
		case err != nil:
			return nil, err
		case is:
			due = append(due, d)
		case !a.Override:
			return d + " is not a physical volume", nil
		}
	}
	if len(due) == 0 {
		return true, nil
	}
	_, said, ok, err := l.run(ctx, program, append([]string{quietOr(a.Force)}, host.Operands(due...)...)...)
	if err != nil || !ok {
		return said, err
	}
	return true, nil
}

// Pvremove implements lvm.pvremove.
func (l Volumes) Pvremove(ctx context.Context, _ *fn.Call, a PvArgs) (any, error) {
	v, err := l.each(ctx, "pvremove", a)
	if err != nil || v != true {
		return v, err
	}
	for _, d := range value.Commas(a.Devices) {
		if is, err := l.isPV(ctx, d); err != nil || is {
			return `Device "` + d + `" was not affected.`, err
		}
	}
	return true, nil
}

// Pvresize implements lvm.pvresize.
func (l Volumes) Pvresize(ctx context.Context, _ *fn.Call, a PvArgs) (any, error) {
	return l.each(ctx, "pvresize", a)
}

// VgcreateArgs are the arguments of Vgcreate.
type VgcreateArgs struct {
	Name    string    `salt:"vgname" doc:"volume group"`
	Devices any       `salt:"devices" doc:"physical volumes, as a list or a text with commas"`
	Force   bool      `salt:"force" doc:"answer all questions with yes" default:"false"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

const lvmNeedsBoth = "Error: vgname and device(s) are both required"

// Vgcreate implements lvm.vgcreate.
func (l Volumes) Vgcreate(ctx context.Context, _ *fn.Call, a VgcreateArgs) (any, error) {
	if a.Name == "" || !value.Truth(a.Devices) {
		return lvmNeedsBoth, nil
	}
	args := append([]string{quietOr(a.Force)}, options(a.Kwargs,
		"addtag alloc autobackup clustered maxlogicalvolumes maxphysicalvolumes metadatatype vgmetadatacopies metadatacopies physicalextentsize zero", "")...)
	args = append(args, host.Operands(append([]string{a.Name}, value.Commas(a.Devices)...)...)...)
	said, err := l.change(ctx, `Volume group "`+a.Name+`" successfully created`, "vgcreate", args...)
	if err != nil {
		return nil, err
	}
	d, err := l.display(ctx, "vgdisplay", a.Name, vgFields)
	d.Set("Output from vgcreate", said)
	return d, err
}

// VgextendArgs are the arguments of Vgextend.
type VgextendArgs struct {
	Name    string `salt:"vgname" doc:"volume group"`
	Devices any    `salt:"devices" doc:"physical volumes, as a list or a text with commas"`
	Force   bool   `salt:"force" doc:"answer all questions with yes" default:"false"`
}

// Vgextend implements lvm.vgextend.
func (l Volumes) Vgextend(ctx context.Context, _ *fn.Call, a VgextendArgs) (any, error) {
	if a.Name == "" || !value.Truth(a.Devices) {
		return lvmNeedsBoth, nil
	}
	said, err := l.change(ctx, `Volume group "`+a.Name+`" successfully extended`, "vgextend",
		append([]string{quietOr(a.Force)}, host.Operands(append([]string{a.Name}, value.Commas(a.Devices)...)...)...)...)
	return value.DictOf("Output from vgextend", said), err
}

// VgremoveArgs are the arguments of Vgremove.
type VgremoveArgs struct {
	Name  string `salt:"vgname" doc:"volume group"`
	Force bool   `salt:"force" doc:"do not ask" default:"true"`
}

// Vgremove implements lvm.vgremove.
func (l Volumes) Vgremove(ctx context.Context, _ *fn.Call, a VgremoveArgs) (string, error) {
	return l.change(ctx, `Volume group "`+a.Name+`" successfully removed`, "vgremove", append([]string{quietOr(a.Force)}, host.Operands(a.Name)...)...)
}

// LvremoveArgs are the arguments of Lvremove.
type LvremoveArgs struct {
	Name  string `salt:"lvname" doc:"logical volume"`
	Group string `salt:"vgname" doc:"its volume group"`
	Force bool   `salt:"force" doc:"do not ask" default:"true"`
}

// Lvremove implements lvm.lvremove.
func (l Volumes) Lvremove(ctx context.Context, _ *fn.Call, a LvremoveArgs) (string, error) {
	return l.change(ctx, `Logical volume "`+a.Name+`" successfully removed`, "lvremove",
		append([]string{quietOr(a.Force)}, host.Operands(a.Group+"/"+a.Name)...)...)
}

// LvcreateArgs are the arguments of Lvcreate.
type LvcreateArgs struct {
	Name     string    `salt:"lvname" doc:"logical volume"`
	Group    string    `salt:"vgname" doc:"its volume group"`
	Size     any       `salt:"size" doc:"size, such as 10G" default:"null"`
	Extents  any       `salt:"extents" doc:"size in extents, or a share such as 50%FREE" default:"null"`
	Snapshot any       `salt:"snapshot" doc:"logical volume to make a snapshot of" default:"null"`
	PV       any       `salt:"pv" doc:"physical volume to lie on" default:"null"`
	Thin     bool      `salt:"thinvolume" doc:"make a thin volume; the group is GROUP/POOL" default:"false"`
	Pool     bool      `salt:"thinpool" doc:"make a pool for thin volumes" default:"false"`
	Force    bool      `salt:"force" doc:"answer all questions with yes" default:"false"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

// Lvcreate implements lvm.lvcreate.
func (l Volumes) Lvcreate(ctx context.Context, _ *fn.Call, a LvcreateArgs) (any, error) {
	size, extents := value.Truth(a.Size), value.Truth(a.Extents)
	switch {
	case size && extents:
		return "Error: Please specify only one of size or extents", nil
	case a.Thin && a.Pool:
		return "Error: Please set only one of thinvolume or thinpool to True", nil
	case extents && a.Thin:
		return "Error: Thin volume size cannot be specified as extents", nil
	case !size && !extents:
		return "Error: Either size or extents must be specified", nil
	}
	var last []string
	args := []string{"-n", a.Name}
	switch {
	case a.Thin:
		args = []string{"--thin", "-n", a.Name}
	case a.Pool:
		args = []string{"--thinpool", a.Name}
	}
	if value.Truth(a.Snapshot) {
		args = append(args, "-s", a.Group+"/"+value.Str(a.Snapshot))
	} else {
		last = append(last, a.Group)
	}
	switch {
	case size && a.Thin:
		args = append(args, "-V", value.Str(a.Size))
	case size:
		args = append(args, "-L", value.Str(a.Size))
	default:
		args = append(args, "-l", value.Str(a.Extents))
	}
	if value.Truth(a.PV) {
		last = append(last, value.Str(a.PV))
	}
	args = append(args, options(a.Kwargs, "activate chunksize contiguous discards stripes stripesize minor persistent mirrors monitor permission "+
		"poolmetadatasize readahead regionsize type virtualsize zero",
		"nosync noudevsync ignoremonitoring thin")...)
	_, said, ok, err := l.run(ctx, "lvcreate", append(append(args, quietOr(a.Force)), host.Operands(last...)...)...)
	if err != nil {
		return nil, err
	}
	if ok {
		said = `Logical volume "` + a.Name + `" created.`
	}
	d, err := l.display(ctx, "lvdisplay", "/dev/"+a.Group+"/"+a.Name, lvFields)
	d.Set("Output from lvcreate", said)
	return d, err
}

// LvresizeArgs are the arguments of Resize.
type LvresizeArgs struct {
	Size    any    `salt:"size" doc:"new size, or + and what to add" default:"null"`
	Path    string `salt:"lvpath" doc:"path of the logical volume" default:"null"`
	Extents any    `salt:"extents" doc:"size in extents" default:"null"`
	Force   bool   `salt:"force" doc:"do not ask" default:"false"`
	FS      bool   `salt:"resizefs" doc:"change the file system, too" default:"false"`
}

// Resize returns a function that implements lvm.lvresize or lvm.lvextend.
func (l Volumes) Resize(program, done, force string) func(context.Context, *fn.Call, LvresizeArgs) (*value.Dict, error) {
	return func(ctx context.Context, c *fn.Call, a LvresizeArgs) (*value.Dict, error) {
		if value.Truth(a.Size) == value.Truth(a.Extents) {
			c.Log.Error("Error: Either size or extents must be specified, and only one of them")
			return value.NewDict(0), nil
		}
		args := []string{"-qq"}
		if a.Force {
			args = []string{force}
		}
		if a.FS {
			args = append(args, "--resizefs")
		}
		if value.Truth(a.Size) {
			args = append(args, "-L", value.Str(a.Size))
		} else {
			args = append(args, "-l", value.Str(a.Extents))
		}
		said, err := l.change(ctx, `Logical volume "`+a.Path+`" successfully `+done+`.`, program, append(args, host.Operands(a.Path)...)...)
		return value.DictOf("Output from "+program, said), err
	}
}
