// Package mounts implements the execution module and the state mount: mounted file
// systems, fstab and swap.
package mounts

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/disk"
	"brine/internal/host/mount"
	"brine/internal/py/value"
)

// Table reads and changes the mounted file systems and the fstab of a machine.
type Table struct{ M *host.Machine }

// opts returns mount options as Salt shows them, with numbers instead of user and group
// names.
func (x Table) opts(ctx context.Context, list []string) *value.List {
	l := &value.List{}
	for _, o := range list {
		switch k, v, _ := strings.Cut(o, "="); {
		case k == "uid" && strings.Trim(v, "0123456789") != "":
			if u, ok := account.ByName(ctx, x.M, v); ok {
				o = fmt.Sprintf("uid=%d", u.UID)
			}
		case k == "gid" && strings.Trim(v, "0123456789") != "":
			if g, ok := account.GroupByName(ctx, x.M, v); ok {
				o = fmt.Sprintf("gid=%d", g.GID)
			}
		}
		l.Append(strings.ReplaceAll(o, `\040`, `\ `))
	}
	return l
}

// ActiveArgs are the arguments of Active.
type ActiveArgs struct {
	Extended bool `salt:"extended" doc:"tell more of each" default:"false"`
}

// Active implements mount.active.
func (x Table) Active(ctx context.Context, _ *fn.Call, a ActiveArgs) (*value.Dict, error) {
	all, err := mount.Active(x.M)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	listed := x.listed(ctx)
	out := value.NewDict(len(all))
	ids := map[string][2]string{}
	if a.Extended {
		ids = x.identities(ctx)
	}
	for _, e := range all {
		name := e.Name
		d := value.DictOf("device", e.Device, "alt_device", text(listed[name]), "fstype", e.Type)
		if a.Extended {
			d = value.DictOf("mountid", e.MountID, "parentid", e.ParentID, "major", e.Major, "minor", e.Minor, "root", e.Root, "opts", x.opts(ctx, e.Opts),
				"fstype", e.Type, "device", strings.ReplaceAll(e.Device, `\040`, `\ `), "alt_device", text(listed[name]), "superopts",
				x.opts(ctx, e.SuperOpts),
				"device_uuid", text(strings.ToLower(ids[e.Device][0])), "device_label", text(ids[e.Device][1]))
		} else {
			d.Set("opts", x.opts(ctx, together(e.Opts, e.SuperOpts)))
		}
		out.Set(name, d)
	}
	return out, nil
}

// together merges the options of a mount and of its file system into the order of
// /proc/self/mounts: rw or ro, then those of the mount, then those of the file system.
func together(opts, super []string) []string {
	if len(opts) == 0 {
		return super
	}
	out := append([]string{}, opts...)
	if len(super) > 0 && super[0] == "ro" {
		out[0] = "ro"
	}
	rest := super
	if len(rest) > 0 && (rest[0] == "rw" || rest[0] == "ro") {
		rest = rest[1:]
	}
	return append(out, rest...)
}

func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// listed returns the devices that mount(8) lists, by mount point.
func (x Table) listed(ctx context.Context) map[string]string {
	out := map[string]string{}
	list, _, err := x.M.Run(ctx, "mount", "-l")
	if err != nil {
		return out // the kernel's list has the same devices, except names
	}
	for line := range strings.SplitSeq(list, "\n") {
		if f := strings.Fields(line); len(f) >= 3 {
			out[f[2]] = f[0]
		}
	}
	return out
}

// identities returns the UUID and the label of each device.
func (x Table) identities(ctx context.Context) map[string][2]string {
	out := map[string][2]string{}
	found, err := disk.Identities(ctx, x.M)
	if err != nil {
		return out // blkid needs root
	}
	for _, id := range found {
		var names [2]string
		for _, f := range id.Facts {
			switch f[0] {
			case "UUID":
				names[0] = f[1]
			case "LABEL":
				names[1] = f[1]
			}
		}
		out[id.Device] = names
	}
	return out
}

// FstabArgs are the arguments of Fstab.
type FstabArgs struct {
	Config string `salt:"config" doc:"the file" default:"/etc/fstab"`
}

// Fstab implements mount.fstab.
func (x Table) Fstab(_ context.Context, _ *fn.Call, a FstabArgs) (*value.Dict, error) {
	out := value.NewDict(0)
	for _, e := range mount.ReadFstab(x.M, a.Config) {
		name := e.Name
		for out.Has(name) {
			name += "_"
		}
		out.Set(name, value.DictOf("device", e.Device, "fstype", e.Type, "opts", value.Strings(e.Opts), "dump", e.Dump, "pass", e.Pass))
	}
	return out, nil
}

// SetFstabArgs are the arguments of SetFstab.
type SetFstabArgs struct {
	Name      string    `salt:"name" doc:"directory to mount on"`
	Device    string    `salt:"device" doc:"what to mount"`
	Type      string    `salt:"fstype" doc:"type of the file system"`
	Opts      any       `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	Dump      any       `salt:"dump" doc:"whether dump(8) looks at it" default:"0"`
	Pass      any       `salt:"pass_num" doc:"when fsck(8) looks at it" default:"0"`
	Config    string    `salt:"config" doc:"the file" default:"/etc/fstab"`
	Test      any       `salt:"test" doc:"only say what would be done" default:"false"`
	MatchOn   any       `salt:"match_on" doc:"fields by which an entry is found: name, device, fstype, opts, dump, pass_num; auto for what fits the type" default:"auto"`
	NotChange bool      `salt:"not_change" doc:"leave an entry that is found alone" default:"false"`
	Kwargs    fn.Kwargs `salt:"kwargs"`
}

// SetFstab implements mount.set_fstab.
func (x Table) SetFstab(_ context.Context, c *fn.Call, a SetFstabArgs) (string, error) {
	blanks := strings.NewReplacer(`\ `, `\040`, " ", `\040`)
	e := mount.Entry{Device: blanks.Replace(a.Device), Name: blanks.Replace(a.Name), Type: a.Type, Opts: commaList(a.Opts), Dump: value.Str(a.Dump),
		Pass: value.Str(a.Pass)}
	for i := range e.Opts {
		e.Opts[i] = blanks.Replace(e.Opts[i])
	}
	by := mount.MatchFor(a.Type)
	if a.MatchOn != "auto" {
		by = mount.Match{}
		for _, f := range commaList(a.MatchOn) {
			field := map[string]*bool{"name": &by.Name, "device": &by.Device, "fstype": &by.Type, "opts": &by.Opts, "dump": &by.Dump, "pass_num": &by.Pass}[f]
			if field == nil {
				return "", fn.Errorf("Unrecognized keys in match_on: %q", f)
			}
			*field = true
		}
	}
	test := value.Truth(a.Test) || value.Truth(c.Config.Get("test"))
	if !x.M.IsFile(a.Config) {
		return "", fn.Errorf("Bad config file %q", a.Config)
	}
	done, err := mount.SetFstab(x.M, a.Config, e, by, a.NotChange, test)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	return done, nil
}

// commaList reads a list, or a string with commas.
func commaList(v any) []string {
	if v == "" || v == false {
		return nil
	}
	return value.Commas(v)
}

// RmFstabArgs are the arguments of RmFstab.
type RmFstabArgs struct {
	Name   string `salt:"name" doc:"directory"`
	Device string `salt:"device" doc:"device"`
	Config string `salt:"config" doc:"the file" default:"/etc/fstab"`
}

// RmFstab implements mount.rm_fstab.
func (x Table) RmFstab(_ context.Context, _ *fn.Call, a RmFstabArgs) (bool, error) {
	if _, err := mount.RemoveFstab(x.M, a.Config, a.Name, a.Device); err != nil {
		return false, fn.Errorf("%w", err)
	}
	return true, nil
}

// MountArgs are the arguments of Mount.
type MountArgs struct {
	Name   string `salt:"name" doc:"directory to mount on"`
	Device any    `salt:"device" doc:"what to mount; false for what fstab says" default:"false"`
	Mkmnt  bool   `salt:"mkmnt" doc:"make the directory" default:"false"`
	Type   string `salt:"fstype" doc:"type of the file system" default:""`
	Opts   any    `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
	Util   string `salt:"util" doc:"only mount is known" default:"mount"`
}

// as returns a function that lets a program run as a user.
func as(ctx context.Context, m *host.Machine, name string) func(*host.Cmd) error {
	if name == "" {
		return nil
	}
	return func(c *host.Cmd) error {
		u, ok := account.ByName(ctx, m, name)
		if !ok {
			return fmt.Errorf("there is no user %q", name)
		}
		if u.UID == os.Geteuid() {
			return nil
		}
		c.As = &syscall.Credential{Uid: uint32(u.UID), Gid: uint32(u.GID)}
		return nil
	}
}

// Mount implements mount.mount. wrong is the error message, "" on success.
func (x Table) Mount(ctx context.Context, _ *fn.Call, a MountArgs) (wrong string, err error) {
	if a.Mkmnt && !x.M.Exists(a.Name) {
		if err := x.makeDir(ctx, a.Name, a.User); err != nil {
			return "", fn.Errorf("cannot make the directory: %w", err)
		}
	}
	device := ""
	if value.Truth(a.Device) {
		device = value.Str(a.Device)
	}
	if err := mount.Mount(ctx, x.M, device, a.Name, mount.Options{Type: a.Type, Opts: commaList(a.Opts), As: as(ctx, x.M, a.User)}); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// makeDir creates a mount point owned by a user; "" means the user of this process.
func (x Table) makeDir(ctx context.Context, name, user string) error {
	if err := os.MkdirAll(x.M.Path(name), 0o755); err != nil || user == "" {
		return err
	}
	u, ok := account.ByName(ctx, x.M, user)
	if !ok {
		return fmt.Errorf("there is no user %q", user)
	}
	return os.Chown(x.M.Path(name), u.UID, u.GID)
}

// RemountArgs are the arguments of Remount.
type RemountArgs struct {
	Name   string `salt:"name" doc:"directory to mount on"`
	Device string `salt:"device" doc:"what to mount"`
	Mkmnt  bool   `salt:"mkmnt" doc:"make the directory" default:"false"`
	Type   string `salt:"fstype" doc:"type of the file system" default:""`
	Opts   any    `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
}

// Remount implements mount.remount. wrong is the error message, "" on success.
func (x Table) Remount(ctx context.Context, c *fn.Call, a RemountArgs) (wrong string, err error) {
	on, err := mount.Is(x.M, a.Name)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	opts := commaList(a.Opts)
	if on && !strings.Contains(strings.Join(opts, ","), "remount") {
		opts = append(opts, "remount")
	}
	return x.Mount(ctx, c, MountArgs{Name: a.Name, Device: a.Device, Mkmnt: a.Mkmnt, Type: a.Type, Opts: value.Strings(opts), User: a.User})
}

// UmountArgs are the arguments of Umount.
type UmountArgs struct {
	Name   string `salt:"name" doc:"directory"`
	Device string `salt:"device" doc:"device in place of the directory" default:"null"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
	Util   string `salt:"util" doc:"only mount is known" default:"mount"`
	Lazy   bool   `salt:"lazy" doc:"detach now, and clean up when it is not used any more" default:"false"`
}

// Umount implements mount.umount. wrong is the error message, "" on success.
func (x Table) Umount(ctx context.Context, _ *fn.Call, a UmountArgs) (wrong string, err error) {
	if a.Util != "mount" && a.Util != "" {
		return "", fn.Errorf("cannot unmount %s by %s: only mount is known", a.Name, a.Util)
	}
	on, err := mount.Is(x.M, a.Name)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	if !on {
		return a.Name + " does not have anything mounted", nil
	}
	what := a.Name
	if a.Device != "" {
		what = a.Device
	}
	if err := mount.Unmount(ctx, x.M, what, a.Lazy, as(ctx, x.M, a.User)); err != nil {
		return err.Error(), nil
	}
	return "", nil
}

// Swaps implements mount.swaps.
func (x Table) Swaps(context.Context, *fn.Call, struct{}) (*value.Dict, error) {
	out := value.NewDict(0)
	for _, s := range mount.Swaps(x.M) {
		out.Set(s.Name, value.DictOf("type", s.Type, "size", s.Size, "used", s.Used, "priority", s.Priority))
	}
	return out, nil
}

// SwapOnArgs are the arguments of SwapOn.
type SwapOnArgs struct {
	Name     string `salt:"name" doc:"file or device"`
	Priority any    `salt:"priority" doc:"which one is used first" default:"null"`
}

// SwapOn implements mount.swapon.
func (x Table) SwapOn(ctx context.Context, c *fn.Call, a SwapOnArgs) (*value.Dict, error) {
	before, _ := x.Swaps(ctx, c, struct{}{})
	if stats, ok := before.Get(a.Name); ok {
		return value.DictOf("stats", stats, "new", false), nil
	}
	priority := ""
	if value.Truth(a.Priority) {
		priority = value.Str(a.Priority)
	}
	if err := mount.SwapOn(ctx, x.M, a.Name, priority); err != nil {
		c.Log.Error("cannot activate swap", "name", a.Name, "err", err)
	}
	after, _ := x.Swaps(ctx, c, struct{}{})
	if stats, ok := after.Get(a.Name); ok {
		return value.DictOf("stats", stats, "new", true), nil
	}
	return value.NewDict(0), nil
}
