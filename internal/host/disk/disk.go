// Package disk reads the storage of a machine: block devices, software RAID,
// volume groups, ZFS pools, its names in storage networks, and the usage of
// mounted file systems.
package disk

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/host"
)

// Device is a physical block device.
type Device struct {
	Name       string // "sda"
	Rotational bool   // a hard disk, according to the kernel
}

// Devices returns the block devices sorted by name, without virtual ones such
// as loop devices and volumes.
func Devices(m *host.Machine) []Device {
	var out []Device
	for _, name := range m.List("/sys/block") {
		link, err := os.Readlink(m.Path("/sys/block/" + name))
		if err != nil || strings.HasPrefix(link, "../devices/virtual/") {
			continue
		}
		switch flag := m.Text("/sys/block/" + name + "/queue/rotational"); {
		case strings.HasPrefix(flag, "0"):
			out = append(out, Device{Name: name})
		case strings.HasPrefix(flag, "1"):
			out = append(out, Device{Name: name, Rotational: true})
		}
	}
	return out
}

// RAID returns the sorted names of the software RAID arrays. ok is false when
// the kernel has no support for them.
func RAID(m *host.Machine) (names []string, ok bool) {
	text, err := m.ReadFile("/proc/mdstat")
	if err != nil {
		return nil, false
	}
	names = []string{}
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "Personalities : ") || strings.HasPrefix(line, "unused devices:") {
			continue
		}
		if name, _, found := strings.Cut(line, " : "); found {
			names = append(names, strings.ToValidUTF8(name, "\ufffd"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// Group is an LVM volume group with its volumes.
type Group struct {
	Name    string
	Volumes []string
}

// Groups returns the LVM volume groups. ok is false when the machine has no
// LVM tools. Without root there are no groups.
func Groups(ctx context.Context, m *host.Machine) (groups []Group, ok bool) {
	if m.Which("lvm") == "" {
		return nil, false
	}
	if m.Live() && unlabelled(m) {
		return nil, true
	}
	vgs, _, _ := m.Run(ctx, "lvm", "vgs", "-o", "vg_name", "--noheadings")
	for line := range strings.SplitSeq(vgs, "\n") {
		if name := strings.TrimSpace(line); name != "" {
			groups = append(groups, Group{Name: name})
		}
	}
	if len(groups) == 0 {
		return nil, true
	}
	lvs, _, _ := m.Run(ctx, "lvm", "lvs", "-o", "vg_name,lv_name", "--noheadings")
	for line := range strings.SplitSeq(lvs, "\n") {
		f := strings.Fields(line)
		i := slices.IndexFunc(groups, func(g Group) bool { return len(f) == 2 && g.Name == f[0] })
		if i >= 0 {
			groups[i].Volumes = append(groups[i].Volumes, f[1])
		}
	}
	return groups, true
}

// ZFS reports whether the machine can use ZFS: support in the kernel or by
// FUSE, and the zpool program.
func ZFS(m *host.Machine) bool {
	return (m.Exists("/sys/module/zfs") || m.Which("zfs-fuse") != "") && m.Which("zpool") != ""
}

// Pool is a ZFS pool.
type Pool struct {
	Name string
	Size string // as zpool prints it: "9.94G"
}

// Pools returns the imported ZFS pools.
func Pools(ctx context.Context, m *host.Machine) []Pool {
	out, _, _ := m.Run(ctx, "zpool", "list", "-H", "-o", "name,size")
	var pools []Pool
	for line := range strings.SplitSeq(out, "\n") {
		if f := strings.Fields(line); len(f) >= 2 {
			pools = append(pools, Pool{Name: f[0], Size: f[1]})
		}
	}
	return pools
}

// ISCSINames returns the machine's iSCSI initiator names.
func ISCSINames(m *host.Machine) []string {
	var out []string
	for _, line := range m.Lines("/etc/iscsi/initiatorname.iscsi") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "InitiatorName="); ok {
			out = append(out, name)
		}
	}
	return out
}

// NVMeNames returns the machine's NVMe qualified names.
func NVMeNames(m *host.Machine) []string {
	var out []string
	for _, line := range m.Lines("/etc/nvme/hostnqn") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "nqn.") {
			out = append(out, line)
		}
	}
	return out
}

// FibreChannelPorts returns the world wide names of the Fibre Channel ports,
// in hexadecimal digits.
func FibreChannelPorts(m *host.Machine) []string {
	var out []string
	for _, port := range m.List("/sys/class/fc_host") {
		for _, line := range m.Lines("/sys/class/fc_host/" + port + "/port_name") {
			out = append(out, strings.TrimPrefix(strings.TrimSpace(line), "0x"))
		}
	}
	return out
}

// Usage is the usage of a file system, as printed by df(1).
type Usage struct {
	Device                         string
	Total, Used, Available, Filled string
	Mount                          string
}

// Usages runs df(1) with these options, in its portable format.
func Usages(ctx context.Context, m *host.Machine, options ...string) ([]Usage, error) {
	out, err := m.Do(ctx, "df", append([]string{"-P"}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("cannot run df: %w", err)
	}
	return parseUsages(out.Stdout), nil // df also fails if only one file system does
}

func parseUsages(text string) []Usage {
	var out []Usage
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "Filesystem") {
			continue
		}
		f := strings.Fields(line)
		device := 1 // number of words in the device's name, which may contain blanks
		for device < len(f) && !isNumber(f[device]) && f[device] != "-" {
			device++
		}
		if len(f) < device+5 {
			continue
		}
		out = append(out, Usage{Device: strings.Join(f[:device], " "), Total: f[device], Used: f[device+1], Available: f[device+2],
			Filled: f[device+3], Mount: f[device+4]})
	}
	return out
}

func isNumber(s string) bool { return s != "" && strings.Trim(s[:1], "0123456789") == "" }

// Mount is a mounted file system.
type Mount struct{ Device, Path, Type, Options string }

// Mounts returns the mounted file systems in the kernel's order.
func Mounts(m *host.Machine) []Mount {
	blanks := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []Mount
	for _, line := range m.Lines("/proc/mounts") {
		if f := strings.Fields(line); len(f) >= 4 {
			out = append(out, Mount{blanks.Replace(f[0]), blanks.Replace(f[1]), f[2], f[3]})
		}
	}
	return out
}

// Space is the size of a file system in bytes.
type Space struct {
	Total, Free int64
	Available   int64 // available to users other than root
}

// SpaceAt returns the size of the file system that holds a path.
func SpaceAt(m *host.Machine, path string) (Space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(m.Path(path), &st); err != nil {
		return Space{}, fmt.Errorf("cannot read the size of %s: %w", path, err)
	}
	size := int64(st.Bsize)
	return Space{Total: int64(st.Blocks) * size, Free: int64(st.Bfree) * size, Available: int64(st.Bavail) * size}, nil
}

// Identity holds the output of blkid(8) for a block device: its UUID, label,
// type.
type Identity struct {
	Device string
	Facts  [][2]string // names and values, in order
}

var fact = regexp.MustCompile(`([A-Z0-9_]+)="([^"]*)"`)

// Identities runs blkid(8) with these arguments. It may find nothing.
func Identities(ctx context.Context, m *host.Machine, args ...string) ([]Identity, error) {
	out, exit, err := m.Run(ctx, "blkid", args...)
	if err != nil {
		return nil, fmt.Errorf("cannot run blkid: %w", err)
	}
	var found []Identity
	for line := range strings.SplitSeq(out, "\n") {
		device, rest, ok := strings.Cut(line, ": ")
		if !ok || exit != 0 {
			continue
		}
		id := Identity{Device: device}
		for _, f := range fact.FindAllStringSubmatch(rest, -1) {
			id.Facts = append(id.Facts, [2]string{f[1], f[2]})
		}
		found = append(found, id)
	}
	return found, nil
}
