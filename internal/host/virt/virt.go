// Package virt collects evidence that a machine is virtual or a container. It
// draws no conclusion: evidence may be contradictory, and the caller decides.
package virt

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"brine/internal/host"
	"brine/internal/host/pci"
)

// Chroot reports whether the root directory differs from that of process 1.
func Chroot(m *host.Machine) bool {
	var self, first syscall.Stat_t
	if syscall.Stat(m.Path("/"), &self) != nil || syscall.Stat(m.Path("/proc/1/root/."), &first) != nil {
		return false
	}
	return self.Dev != first.Dev || self.Ino != first.Ino
}

// Role is the role of a machine in a kind of virtualisation.
type Role uint8

// The roles.
const (
	None  Role = iota
	Host       // it runs guests
	Guest      // it is a guest
)

var envID = regexp.MustCompile(`(?m)^envID:\s+(\d+)$`)

// OpenVZ returns the machine's role in OpenVZ.
func OpenVZ(m *host.Machine) Role {
	role := None
	switch {
	case m.IsFile("/proc/vz/version"):
		role = Host
	case m.IsFile("/proc/vz/veinfo"):
		role = Guest
	}
	if id := envID.FindStringSubmatch(m.Text("/proc/self/status")); id != nil {
		role = Guest
		if n, err := strconv.Atoi(id[1]); err == nil && n == 0 {
			role = Host
		}
	}
	return role
}

// Xen is the role of a machine in Xen.
type Xen uint8

// The roles. XenUnknown is a kernel with Xen support and no other sign.
const (
	NoXen Xen = iota
	XenUnknown
	XenDom0
	XenHVM
	XenPV
)

// ReadXen returns the role in Xen, given the product name from the firmware.
func ReadXen(m *host.Machine, product string) Xen {
	if !m.IsDir("/proc/sys/xen") && !m.IsDir("/sys/bus/xen") && !m.IsDir("/proc/xen") {
		return NoXen
	}
	switch capabilities, err := m.ReadFile("/proc/xen/capabilities"); {
	case m.IsFile("/proc/xen/xsd_kva"):
		return XenDom0
	case product == "HVM domU":
		return XenHVM
	case err == nil && strings.Contains(string(capabilities), "control_d"):
		return XenDom0
	case err == nil, m.IsDir("/sys/bus/xen/drivers/xenconsole"):
		return XenPV
	}
	return XenUnknown
}

// Hypervisor is Xen's description of itself. Fields may be empty.
type Hypervisor struct {
	Major, Minor, Extra string
	Features            string // hexadecimal digits, a bit per feature
}

// ReadHypervisor reads /sys/hypervisor.
func ReadHypervisor(m *host.Machine) Hypervisor {
	read := func(name string) string { return strings.TrimSpace(m.Text("/sys/hypervisor/" + name)) }
	return Hypervisor{Major: read("version/major"), Minor: read("version/minor"), Extra: read("version/extra"), Features: read("properties/features")}
}

// Cgroup returns the control groups of process 1, where containers show.
func Cgroup(m *host.Machine) string { return m.Text("/proc/1/cgroup") }

// LXC reports whether the environment of process 1 names an LXC container. Only
// root can read that.
func LXC(m *host.Machine) bool {
	return strings.Contains(m.Text("/proc/1/environ"), "container=lxc")
}

// SystemdDetect returns the output of systemd-detect-virt: "kvm", "docker",
// "none" and so on. ok is false if it is not installed or finds nothing.
func SystemdDetect(ctx context.Context, m *host.Machine) (name string, ok bool) {
	out, exit, err := m.Run(ctx, "systemd-detect-virt")
	return out, err == nil && exit == 0
}

// What returns the output lines of virt-what. installed reports whether it is
// installed, ok whether it succeeded, which needs root.
func What(ctx context.Context, m *host.Machine) (lines []string, installed, ok bool) {
	if m.Which("virt-what") == "" {
		return nil, false, false
	}
	out, exit, err := m.Run(ctx, "virt-what")
	return strings.Split(out, "\n"), true, err == nil && exit == 0
}

// Maker is a manufacturer of virtual PCI devices.
type Maker uint8

// The manufacturers.
const (
	NoMaker Maker = iota
	VMware
	VirtualBox
	QEMU // includes others that use its devices or virtio
)

// PCIMaker returns the manufacturer of the machine's virtual devices. The first
// one in the order of the constants wins.
func PCIMaker(m *host.Machine) Maker {
	found := NoMaker
	for _, d := range pci.List(m) {
		maker := NoMaker
		switch d.Vendor {
		case 0x15ad:
			maker = VMware
		case 0x80ee:
			maker = VirtualBox
		case 0x1af4, 0x1b36, 0x1234:
			maker = QEMU
		}
		if maker != NoMaker && (found == NoMaker || maker < found) {
			found = maker
		}
	}
	return found
}
