package system

import (
	"context"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/mounts"
	"brine/internal/host"
	"brine/internal/host/mount"
)

// mountFuncs has the functions that states do not use.
type mountFuncs struct{ m *host.Machine }

func init() { units.Register("mount", mountModule) }

func mountModule(m *host.Machine) fn.Module {
	x, t := mountFuncs{m}, mounts.Table{M: m}
	return fn.Module{Name: "mount", Doc: `What is mounted, and what is to be mounted at boot.`, Funcs: append(x.cached(), []fn.Func{
		fn.Of("active", t.Active, `Return what is mounted, by directory.`, fn.Example("salt '*' mount.active extended=True")),
		fn.Of("is_mounted", x.isMounted, `Say whether something is mounted on a directory.`, fn.Example("salt '*' mount.is_mounted /mnt/share")),
		fn.Of("fstab", t.Fstab, `Return the entries of fstab by directory.`, fn.Example("salt '*' mount.fstab")),
		fn.Of("set_fstab", t.SetFstab, `Put an entry into fstab, and say whether it is new, was changed or was present.`,
			fn.Example("salt '*' mount.set_fstab /mnt/foo /dev/sdz1 ext4")),
		fn.Of("rm_fstab", t.RmFstab, `Remove an entry from fstab.`, fn.Example("salt '*' mount.rm_fstab /mnt/foo /dev/sdg")),
		fn.Of("mount", x.mount, `Mount a device. Returns true, or what is wrong.`, fn.Example("salt '*' mount.mount /mnt/foo /dev/sdz1 True")),
		fn.Of("remount", x.remount, `Mount again with other options what is mounted, or mount it.`,
			fn.Example("salt '*' mount.remount /mnt/foo /dev/sdz1 True")),
		fn.Of("umount", x.umount, `Unmount a directory. Returns true, or what is wrong.`, fn.Example("salt '*' mount.umount /mnt/foo")),
		fn.Of("swaps", t.Swaps, `Return what memory is swapped to.`, fn.Example("salt '*' mount.swaps")),
		fn.Of("swapon", t.SwapOn, `Begin to swap to a file or device.`, fn.Example("salt '*' mount.swapon /root/swapfile")),
		fn.Of("swapoff", x.swapOff, `Stop to swap to a file or device.`, fn.Example("salt '*' mount.swapoff /root/swapfile")),
		fn.Of("is_fuse_exec", x.isFuse, `Say whether a program is linked with libfuse.`, fn.Example("salt '*' mount.is_fuse_exec sshfs")),
		fn.Of("get_mount_from_path", x.fromPath, `Return the directory that the file system of a path is mounted on.`,
			fn.Example("salt '*' mount.get_mount_from_path /opt/some/path")),
		fn.Of("get_device_from_path", x.device, `Return the device that holds a path.`, fn.Example("salt '*' mount.get_device_from_path /opt/some/path")),
	}...)}
}

type nameArgs struct {
	Name string `salt:"name" doc:"directory, or a file or device to swap to"`
}

func (x mountFuncs) isMounted(_ context.Context, _ *fn.Call, a nameArgs) (bool, error) {
	on, err := mount.Is(x.m, a.Name)
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	return on, nil
}

func (x mountFuncs) swapOff(ctx context.Context, c *fn.Call, a nameArgs) (any, error) {
	t := mounts.Table{M: x.m}
	before, _ := t.Swaps(ctx, c, none{})
	if !before.Has(a.Name) {
		return nil, nil
	}
	if err := mount.SwapOff(ctx, x.m, a.Name); err != nil {
		c.Log.Error("cannot deactivate swap", "name", a.Name, "err", err)
	}
	after, _ := t.Swaps(ctx, c, none{})
	return !after.Has(a.Name), nil
}

// trueOr returns true, or the message of what is wrong.
func trueOr(wrong string, err error) (any, error) {
	switch {
	case err != nil:
		return nil, err
	case wrong != "":
		return wrong, nil
	}
	return true, nil
}

func (x mountFuncs) mount(ctx context.Context, c *fn.Call, a mounts.MountArgs) (any, error) {
	if a.Util != "mount" {
		return false, nil
	}
	return trueOr(mounts.Table{M: x.m}.Mount(ctx, c, a))
}

func (x mountFuncs) remount(ctx context.Context, c *fn.Call, a mounts.RemountArgs) (any, error) {
	return trueOr(mounts.Table{M: x.m}.Remount(ctx, c, a))
}

func (x mountFuncs) umount(ctx context.Context, c *fn.Call, a mounts.UmountArgs) (any, error) {
	return trueOr(mounts.Table{M: x.m}.Umount(ctx, c, a))
}

type cmdArgs struct {
	Cmd string `salt:"cmd" doc:"program"`
}

func (x mountFuncs) isFuse(ctx context.Context, _ *fn.Call, a cmdArgs) (bool, error) {
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

func (x mountFuncs) fromPath(_ context.Context, _ *fn.Call, a mountPathArgs) (string, error) {
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

func (x mountFuncs) device(ctx context.Context, c *fn.Call, a mountPathArgs) (any, error) {
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
