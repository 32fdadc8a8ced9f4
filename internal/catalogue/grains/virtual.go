package grains

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"brine/internal/host/dmi"
	"brine/internal/host/virt"
	"brine/internal/py/value"
)

func init() { collectors.Register("virtual", virtual) }

func virtual(_ context.Context, c *collection) (*value.Dict, error) { return c.virtual(), nil }

// verdict is the current result; later signs override earlier ones.
type verdict struct {
	kind, sub string
}

// detectVirtual returns virtual, virtual_subtype and virtual_hv_*. The order
// and precedence of the signs are Salt's.
func (c *collection) detectVirtual() *value.Dict {
	if strings.Contains(c.uname().Version, "BrandZ virtual linux") {
		return value.DictOf("virtual", "zone")
	}
	v := verdict{kind: "physical"}
	c.askTools(&v)
	c.readSigns(&v)
	c.readContainer(&v)
	if v.sub != "" && v.kind == "physical" {
		v.kind = "virtual"
	}
	c.readAmazon(&v)
	d := value.DictOf("virtual", v.kind)
	if v.sub != "" {
		d.Set("virtual_subtype", v.sub)
	}
	if strings.Contains(v.kind, "xen") {
		d.Update(hypervisor(virt.ReadHypervisor(c.Machine)))
	}
	return d
}

// askTools tries the machine's tools until one knows. dmidecode and lspci only
// need to be present: their data is read from the kernel, which gives Salt's
// grain without a process.
func (c *collection) askTools(v *verdict) {
	lines, installed, ok := virt.What(c.programs, c.Machine)
	if installed {
		if ok {
			virtWhat(v, lines)
			return
		}
	} else {
		if name, ok := virt.SystemdDetect(c.programs, c.Machine); ok && systemdName(v, name) {
			return
		}
		if c.Which("dmidecode") != "" && c.Superuser() {
			table, err := dmi.Table(c.Machine)
			if err != nil {
				c.log.Debug("cannot read the SMBIOS table", "err", err)
			}
			smbios(v, table)
			return
		}
	}
	if c.PCI && c.Exists("/proc/bus/pci") && c.Which("lspci") != "" {
		switch virt.PCIMaker(c.Machine) {
		case virt.VMware:
			v.kind = "VMware"
		case virt.VirtualBox:
			v.kind = "VirtualBox"
		case virt.QEMU:
			v.kind = "kvm"
		}
	}
}

func virtWhat(v *verdict, lines []string) {
	for _, line := range lines {
		switch {
		case slices.Contains([]string{"kvm", "qemu", "uml", "xen"}, line):
			v.kind = line
		case strings.Contains(line, "lxc"):
			*v = verdict{"container", "LXC"}
		case strings.Contains(line, "docker"):
			*v = verdict{"container", "Docker"}
		case strings.Contains(line, "vmware"):
			v.kind = "VMware"
		case strings.Contains(line, "parallels"):
			v.kind = "Parallels"
		case strings.Contains(line, "hyperv"):
			v.kind = "HyperV"
		case line == "ibm_power-kvm":
			v.kind = "kvm"
		case line == "ibm_power-lpar_shared":
			*v = verdict{"LPAR", "shared"}
		case line == "ibm_power-lpar_dedicated":
			*v = verdict{"LPAR", "dedicated"}
		default:
			continue
		}
		return
	}
}

// systemdName sets the grains for a name printed by systemd-detect-virt, and
// reports whether the name is known.
func systemdName(v *verdict, name string) bool {
	switch {
	case slices.Contains([]string{"qemu", "kvm", "oracle", "xen", "bochs", "chroot", "uml", "systemd-nspawn"}, name):
		v.kind = name
	case strings.Contains(name, "vmware"):
		v.kind = "VMware"
	case strings.Contains(name, "microsoft"):
		v.kind = "VirtualPC"
	case strings.Contains(name, "lxc"):
		*v = verdict{"container", "LXC"}
	case strings.Contains(name, "podman"):
		*v = verdict{"container", "Podman"}
	case strings.Contains(name, "docker"):
		*v = verdict{"container", "Docker"}
	case strings.Contains(name, "amazon"):
		*v = verdict{"Nitro", "Amazon EC2"}
	default:
		return false
	}
	return true
}

// smbios looks for manufacturers of virtual firmware.
func smbios(v *verdict, table []dmi.Structure) {
	var vendors, makers, products, all []string
	for i := range table {
		s := &table[i]
		vendors = append(vendors, s.Vendor())
		makers = append(makers, s.Manufacturer())
		products = append(products, s.Product())
		all = append(all, s.Strings...)
	}
	text := strings.Join(all, "\n")
	begins := func(list []string, prefix string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, prefix) })
	}
	for _, name := range []string{"QEMU", "Bochs"} {
		if begins(vendors, name) || begins(makers, name) {
			v.kind = "kvm"
		}
	}
	switch {
	case strings.Contains(text, "BHYVE"):
		v.kind = "bhyve"
	case begins(makers, "oVirt"):
		*v = verdict{"kvm", "ovirt"}
	case begins(products, "RHEV Hypervisor"):
		*v = verdict{"kvm", "rhev"}
	case strings.Contains(text, "VirtualBox"):
		v.kind = "VirtualBox"
	case strings.Contains(text, "VMware"):
		v.kind = "VMware"
	case begins(all, "Microsoft") && strings.Contains(text, "Virtual Machine"):
		v.kind = "VirtualPC"
	case strings.Contains(text, "Parallels Software"):
		v.kind = "Parallels"
	case begins(makers, "Google"), begins(vendors, "SeaBIOS"):
		v.kind = "kvm"
	}
}

// readSigns reads the kernel's signs of hypervisors.
func (c *collection) readSigns(v *verdict) {
	if virt.Chroot(c.Machine) {
		v.sub = "chroot"
	}
	switch virt.OpenVZ(c.Machine) {
	case virt.Host:
		v.kind = "openvzhn"
	case virt.Guest:
		v.kind = "openvzve"
	}
	c.readXen(v)
	if strings.Contains(c.cpu().Model, "QEMU Virtual CPU") {
		v.kind = "kvm"
	}
	product, _ := dmi.String(c.Machine, "product_name")
	switch {
	case strings.Contains(product, "VirtualBox"):
		v.kind = "VirtualBox"
	case strings.Contains(product, "RHEV Hypervisor"):
		*v = verdict{"kvm", "rhev"}
	case strings.Contains(product, "oVirt Node"):
		*v = verdict{"kvm", "ovirt"}
	case strings.Contains(product, "Google"):
		v.kind = "gce"
	case strings.Contains(product, "BHYVE"):
		v.kind = "bhyve"
	}
}

func (c *collection) readXen(v *verdict) {
	xen := virt.ReadXen(c.Machine, c.firmware().Str("productname"))
	switch xen {
	case virt.NoXen:
		return
	case virt.XenDom0:
		v.sub = "Xen Dom0"
	case virt.XenHVM:
		v.sub = "Xen HVM DomU"
	case virt.XenPV:
		v.sub = "Xen PV DomU"
	}
	if strings.Contains(strings.ToLower(v.sub), "dom") {
		v.kind = "xen"
	}
}

// readContainer looks at process 1, after the hypervisors: a container often
// runs on a virtual machine.
func (c *collection) readContainer(v *verdict) {
	groups := virt.Cgroup(c.Machine)
	has := func(s string) bool { return strings.Contains(groups, s) }
	switch {
	case has(":/lxc/"):
		*v = verdict{"container", "LXC"}
	case has(":/kubepods/"):
		v.sub = "kubernetes"
	case has(":/libpod_parent/"):
		v.sub = "libpod"
	case has(":/system.slice/docker"), has(":/docker/"), has(":/docker-ce/"):
		*v = verdict{"container", "Docker"}
	}
	if v.sub != "LXC" && virt.LXC(c.Machine) {
		*v = verdict{"container", "LXC"}
	}
}

var amazonVersion = lazily(`.\.amazon`)

// readAmazon identifies Amazon's machines where Salt could: as root and with
// dmidecode.
func (c *collection) readAmazon(v *verdict) {
	if !slices.Contains([]string{"qemu", "kvm", "xen", "amazon"}, v.kind) || c.Which("dmidecode") == "" || !c.Superuser() {
		return
	}
	maker, _ := dmi.String(c.Machine, "sys_vendor")
	version, _ := dmi.String(c.Machine, "product_version")
	switch {
	case strings.HasPrefix(maker, "Amazon EC2"):
		if v.kind != "xen" {
			v.kind = "Nitro"
		}
		v.sub = "Amazon EC2"
		if product, ok := dmi.String(c.Machine, "product_name"); ok {
			v.sub += " (" + product + ")"
		}
	case amazonVersion().MatchString(version):
		v.sub = "Amazon EC2"
	}
}

// xenFeatures names the bits of Xen's features.
var xenFeatures = []string{
	0: "writable_page_tables", 1: "writable_descriptor_tables", 2: "auto_translated_physmap", 3: "supervisor_mode_kernel",
	4: "pae_pgdir_above_4gb", 5: "mmu_pt_update_preserve_ad", 7: "gnttab_map_avail_bits", 8: "hvm_callback_vector", 9: "hvm_safe_pvclock",
	10: "hvm_pirqs", 11: "dom0", 12: "grant_map_identity", 13: "memory_op_vnode_supported", 14: "ARM_SMCCC_supported",
}

func hypervisor(h virt.Hypervisor) *value.Dict {
	d := value.NewDict(4)
	if h.Major != "" && h.Minor != "" {
		d.Set("virtual_hv_version", h.Major+"."+h.Minor+h.Extra)
		d.Set("virtual_hv_version_info", value.ListOf(h.Major, h.Minor, h.Extra))
	}
	bits, err := strconv.ParseUint(strings.TrimPrefix(h.Features, "0x"), 16, 64)
	if err != nil {
		return d
	}
	names := value.ListOf()
	for bit, name := range xenFeatures {
		if name != "" && bits&(1<<bit) != 0 {
			names.Append(name)
		}
	}
	d.Set("virtual_hv_features", h.Features)
	d.Set("virtual_hv_features_list", names)
	return d
}
