package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/mount"
	"brine/internal/py/value"
)

type mounts struct{ m *host.Machine }

func init() { units.Register("mount", mountModule) }

func mountModule(m *host.Machine) fn.Module {
	x := mounts{m}
	return fn.Module{Name: "mount", Doc: `What is mounted, and what is to be mounted at boot.`, Funcs: append(x.cached(), []fn.Func{
		fn.Of("active", x.active, `Return what is mounted, by directory.`, fn.Example("salt '*' mount.active extended=True")),
		fn.Of("is_mounted", x.isMounted, `Say whether something is mounted on a directory.`, fn.Example("salt '*' mount.is_mounted /mnt/share")),
		fn.Of("fstab", x.fstab, `Return the entries of fstab by directory.`, fn.Example("salt '*' mount.fstab")),
		fn.Of("set_fstab", x.setFstab, `Put an entry into fstab, and say whether it is new, was changed or was present.`,
			fn.Example("salt '*' mount.set_fstab /mnt/foo /dev/sdz1 ext4")),
		fn.Of("rm_fstab", x.rmFstab, `Remove an entry from fstab.`, fn.Example("salt '*' mount.rm_fstab /mnt/foo /dev/sdg")),
		fn.Of("mount", x.mount, `Mount a device. Returns true, or what is wrong.`, fn.Example("salt '*' mount.mount /mnt/foo /dev/sdz1 True")),
		fn.Of("remount", x.remount, `Mount again with other options what is mounted, or mount it.`,
			fn.Example("salt '*' mount.remount /mnt/foo /dev/sdz1 True")),
		fn.Of("umount", x.umount, `Unmount a directory. Returns true, or what is wrong.`, fn.Example("salt '*' mount.umount /mnt/foo")),
		fn.Of("swaps", x.swaps, `Return what memory is swapped to.`, fn.Example("salt '*' mount.swaps")),
		fn.Of("swapon", x.swapOn, `Begin to swap to a file or device.`, fn.Example("salt '*' mount.swapon /root/swapfile")),
		fn.Of("swapoff", x.swapOff, `Stop to swap to a file or device.`, fn.Example("salt '*' mount.swapoff /root/swapfile")),
		fn.Of("is_fuse_exec", x.isFuse, `Say whether a program is linked with libfuse.`, fn.Example("salt '*' mount.is_fuse_exec sshfs")),
		fn.Of("get_mount_from_path", x.fromPath, `Return the directory that the file system of a path is mounted on.`,
			fn.Example("salt '*' mount.get_mount_from_path /opt/some/path")),
		fn.Of("get_device_from_path", x.device, `Return the device that holds a path.`, fn.Example("salt '*' mount.get_device_from_path /opt/some/path")),
	}...)}
}

// opts are options as Salt shows them, with names of users and groups as
// numbers.
func (x mounts) opts(ctx context.Context, list []string) *value.List {
	l := &value.List{}
	for _, o := range list {
		switch k, v, _ := strings.Cut(o, "="); {
		case k == "uid" && strings.Trim(v, "0123456789") != "":
			if u, ok := account.ByName(ctx, x.m, v); ok {
				o = fmt.Sprintf("uid=%d", u.UID)
			}
		case k == "gid" && strings.Trim(v, "0123456789") != "":
			if g, ok := account.GroupByName(ctx, x.m, v); ok {
				o = fmt.Sprintf("gid=%d", g.GID)
			}
		}
		l.Append(strings.ReplaceAll(o, `\040`, `\ `))
	}
	return l
}

type extendedArgs struct {
	Extended bool `salt:"extended" doc:"tell more of each" default:"false"`
}

func (x mounts) active(ctx context.Context, _ *fn.Call, a extendedArgs) (*value.Dict, error) {
	all, err := mount.Active(x.m)
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

// together are the options as /proc/self/mounts has them: rw or ro of the
// mount or the file system, then those of the mount, then the others.
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

// listed are the devices as mount(8) lists them, by directory.
func (x mounts) listed(ctx context.Context) map[string]string {
	out := map[string]string{}
	list, _, err := x.m.Run(ctx, "mount", "-l")
	if err != nil {
		return out // it tells the same as the kernel's list, except names
	}
	for line := range strings.SplitSeq(list, "\n") {
		if f := strings.Fields(line); len(f) >= 3 {
			out[f[2]] = f[0]
		}
	}
	return out
}

// identities are UUID and label of devices.
func (x mounts) identities(ctx context.Context) map[string][2]string {
	out := map[string][2]string{}
	d, err := disk(x).blkid(ctx, nil, blkidArgs{})
	if err != nil {
		return out // only root may ask
	}
	for dev, v := range d.All() {
		if e, ok := v.(*value.Dict); ok {
			out[value.Str(dev)] = [2]string{e.Str("UUID"), e.Str("LABEL")}
		}
	}
	return out
}

type nameArgs struct {
	Name string `salt:"name" doc:"directory, or a file or device to swap to"`
}

func (x mounts) isMounted(_ context.Context, _ *fn.Call, a nameArgs) (bool, error) {
	on, err := mount.Is(x.m, a.Name)
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	return on, nil
}

type fstabArgs struct {
	Config string `salt:"config" doc:"the file" default:"/etc/fstab"`
}

func (x mounts) fstab(_ context.Context, _ *fn.Call, a fstabArgs) (*value.Dict, error) {
	out := value.NewDict(0)
	for _, e := range mount.ReadFstab(x.m, a.Config) {
		name := e.Name
		for out.Has(name) {
			name += "_"
		}
		out.Set(name, value.DictOf("device", e.Device, "fstype", e.Type, "opts", value.Strings(e.Opts), "dump", e.Dump, "pass", e.Pass))
	}
	return out, nil
}

type setFstabArgs struct {
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

func (x mounts) setFstab(_ context.Context, c *fn.Call, a setFstabArgs) (string, error) {
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
	if !x.m.IsFile(a.Config) {
		return "", fn.Errorf("Bad config file %q", a.Config)
	}
	done, err := mount.SetFstab(x.m, a.Config, e, by, a.NotChange, test)
	if err != nil {
		return "", fn.Errorf("%w", err)
	}
	return done, nil
}

// commaList reads a list, or a text with commas.
func commaList(v any) []string {
	if l, ok := v.(*value.List); ok {
		out := make([]string, 0, l.Len())
		for _, it := range l.Items {
			out = append(out, value.Str(it))
		}
		return out
	}
	if v == nil || v == "" || v == false {
		return nil
	}
	return strings.Split(value.Str(v), ",")
}

type rmFstabArgs struct {
	Name   string `salt:"name" doc:"directory"`
	Device string `salt:"device" doc:"device"`
	Config string `salt:"config" doc:"the file" default:"/etc/fstab"`
}

func (x mounts) rmFstab(_ context.Context, _ *fn.Call, a rmFstabArgs) (bool, error) {
	if _, err := mount.RemoveFstab(x.m, a.Config, a.Name, a.Device); err != nil {
		return false, fn.Errorf("%w", err)
	}
	return true, nil
}

type mountArgs struct {
	Name   string `salt:"name" doc:"directory to mount on"`
	Device any    `salt:"device" doc:"what to mount; false for what fstab says" default:"false"`
	Mkmnt  bool   `salt:"mkmnt" doc:"make the directory" default:"false"`
	Type   string `salt:"fstype" doc:"type of the file system" default:""`
	Opts   any    `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
	Util   string `salt:"util" doc:"only mount is known" default:"mount"`
}

// as gives a program the rights of a user.
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

func (x mounts) mount(ctx context.Context, _ *fn.Call, a mountArgs) (any, error) {
	if a.Util != "mount" {
		return false, nil
	}
	if a.Mkmnt && !x.m.Exists(a.Name) {
		if err := x.folder(ctx, a.Name, a.User); err != nil {
			return nil, fn.Errorf("cannot make the directory: %w", err)
		}
	}
	device := ""
	if value.Truth(a.Device) {
		device = value.Str(a.Device)
	}
	if err := mount.Mount(ctx, x.m, device, a.Name, mount.Options{Type: a.Type, Opts: commaList(a.Opts), As: as(ctx, x.m, a.User)}); err != nil {
		return err.Error(), nil
	}
	return true, nil
}

func (x mounts) folder(ctx context.Context, name, user string) error {
	if err := os.MkdirAll(x.m.Path(name), 0o755); err != nil || user == "" {
		return err
	}
	u, ok := account.ByName(ctx, x.m, user)
	if !ok {
		return fmt.Errorf("there is no user %q", user)
	}
	return os.Chown(x.m.Path(name), u.UID, u.GID)
}

type remountArgs struct {
	Name   string `salt:"name" doc:"directory to mount on"`
	Device string `salt:"device" doc:"what to mount"`
	Mkmnt  bool   `salt:"mkmnt" doc:"make the directory" default:"false"`
	Type   string `salt:"fstype" doc:"type of the file system" default:""`
	Opts   any    `salt:"opts" doc:"options, with commas or as a list" default:"defaults"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
}

func (x mounts) remount(ctx context.Context, c *fn.Call, a remountArgs) (any, error) {
	on, err := mount.Is(x.m, a.Name)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	opts := commaList(a.Opts)
	if on && !strings.Contains(strings.Join(opts, ","), "remount") {
		opts = append(opts, "remount")
	}
	return x.mount(ctx, c, mountArgs{Name: a.Name, Device: a.Device, Mkmnt: a.Mkmnt, Type: a.Type, Opts: value.Strings(opts), User: a.User, Util: "mount"})
}

type umountArgs struct {
	Name   string `salt:"name" doc:"directory"`
	Device string `salt:"device" doc:"device in place of the directory" default:"null"`
	User   string `salt:"user" doc:"user whose rights are used" default:"null"`
	Util   string `salt:"util" doc:"only mount is known" default:"mount"`
	Lazy   bool   `salt:"lazy" doc:"detach now, and clean up when it is not used any more" default:"false"`
}

func (x mounts) umount(ctx context.Context, _ *fn.Call, a umountArgs) (any, error) {
	if a.Util != "mount" {
		return nil, fn.Errorf("cannot unmount %s by %s: only mount is known", a.Name, a.Util)
	}
	on, err := mount.Is(x.m, a.Name)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	if !on {
		return a.Name + " does not have anything mounted", nil
	}
	what := a.Name
	if a.Device != "" {
		what = a.Device
	}
	if err := mount.Unmount(ctx, x.m, what, a.Lazy, as(ctx, x.m, a.User)); err != nil {
		return err.Error(), nil
	}
	return true, nil
}

func (x mounts) swaps(context.Context, *fn.Call, none) (*value.Dict, error) {
	out := value.NewDict(0)
	for _, s := range mount.Swaps(x.m) {
		out.Set(s.Name, value.DictOf("type", s.Type, "size", s.Size, "used", s.Used, "priority", s.Priority))
	}
	return out, nil
}

type swapOnArgs struct {
	Name     string `salt:"name" doc:"file or device"`
	Priority any    `salt:"priority" doc:"which one is used first" default:"null"`
}

func (x mounts) swapOn(ctx context.Context, c *fn.Call, a swapOnArgs) (*value.Dict, error) {
	before, _ := x.swaps(ctx, c, none{})
	if stats, ok := before.Get(a.Name); ok {
		return value.DictOf("stats", stats, "new", false), nil
	}
	priority := ""
	if value.Truth(a.Priority) {
		priority = value.Str(a.Priority)
	}
	if err := mount.SwapOn(ctx, x.m, a.Name, priority); err != nil {
		c.Log.Error("cannot swap to it", "name", a.Name, "err", err)
	}
	after, _ := x.swaps(ctx, c, none{})
	if stats, ok := after.Get(a.Name); ok {
		return value.DictOf("stats", stats, "new", true), nil
	}
	return value.NewDict(0), nil
}

func (x mounts) swapOff(ctx context.Context, c *fn.Call, a nameArgs) (any, error) {
	before, _ := x.swaps(ctx, c, none{})
	if !before.Has(a.Name) {
		return nil, nil
	}
	if err := mount.SwapOff(ctx, x.m, a.Name); err != nil {
		c.Log.Error("cannot stop to swap to it", "name", a.Name, "err", err)
	}
	after, _ := x.swaps(ctx, c, none{})
	return !after.Has(a.Name), nil
}

type cmdArgs struct {
	Cmd string `salt:"cmd" doc:"program"`
}

func (x mounts) isFuse(ctx context.Context, _ *fn.Call, a cmdArgs) (bool, error) {
	path := x.m.Which(a.Cmd)
	if path == "" {
		return false, nil
	}
	out, _, err := x.m.Run(ctx, "ldd", path)
	if err != nil {
		return false, fn.Errorf("cannot run ldd: %w", err)
	}
	return strings.Contains(out, "libfuse"), nil
}

type mountPathArgs struct {
	Path string `salt:"path" doc:"path"`
}

func (x mounts) fromPath(_ context.Context, _ *fn.Call, a mountPathArgs) (string, error) {
	path, err := filepath.Abs(a.Path)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	for ; path != "/"; path = filepath.Dir(path) {
		if on, err := mount.Is(x.m, path); err != nil || on {
			return path, err
		}
	}
	return path, nil
}

func (x mounts) device(ctx context.Context, c *fn.Call, a mountPathArgs) (any, error) {
	name, err := x.fromPath(ctx, c, a)
	if err != nil {
		return nil, err
	}
	all, err := mount.Active(x.m)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	var found any
	for _, e := range all {
		if mount.Unescape(e.Name) == name {
			found = e.Device
		}
	}
	return found, nil
}
