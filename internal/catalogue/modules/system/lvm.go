package system

import (
	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/lvm"
	"brine/internal/host"
)

func init() { units.Register("lvm", lvmModule) }

func lvmModule(m *host.Machine) fn.Module {
	l := lvm.Volumes{M: m}
	when := func(fn.Reader) (string, bool) {
		return "The linux_lvm execution module cannot be loaded: the lvm binary is not in the path.", m.Which("lvm") != ""
	}
	ex := func(text string) fn.Option { return fn.Example("salt '*' lvm." + text) }
	return fn.Module{Name: "lvm", When: when, Doc: `Physical volumes, volume groups and logical volumes.`, Funcs: []fn.Func{
		fn.Of("version", l.Version, `Return the version of LVM.`, ex("version")),
		fn.Of("fullversion", l.FullVersion, `Return the versions of LVM's parts.`, ex("fullversion")),
		fn.Of("pvdisplay", l.Pvdisplay, `Return what is known of one physical volume, or all.`, ex("pvdisplay")),
		fn.Of("vgdisplay", l.Vgdisplay, `Return what is known of one volume group, or all.`, ex("vgdisplay")),
		fn.Of("lvdisplay", l.Lvdisplay, `Return what is known of one logical volume, or all.`, ex("lvdisplay")),
		fn.Of("pvcreate", l.Pvcreate, `Make physical volumes of devices. Options of pvcreate are keywords.`, ex("pvcreate /dev/sdb1,/dev/sdb2 dataalignment=8192")),
		fn.Of("pvremove", l.Pvremove, `Make devices no physical volumes any more.`, ex("pvremove /dev/sdb1,/dev/sdb2")),
		fn.Of("pvresize", l.Pvresize, `Have physical volumes fill their devices.`, ex("pvresize /dev/sdb1,/dev/sdb2")),
		fn.Of("vgcreate", l.Vgcreate, `Make a volume group. Options of vgcreate are keywords.`, ex("vgcreate my_vg /dev/sdb1,/dev/sdb2 clustered=y")),
		fn.Of("vgextend", l.Vgextend, `Add physical volumes to a volume group.`, ex("vgextend my_vg /dev/sdb1,/dev/sdb2")),
		fn.Of("vgremove", l.Vgremove, `Delete a volume group.`, ex("vgremove vgname force=True")),
		fn.Of("lvcreate", l.Lvcreate, `Make a logical volume. Options of lvcreate are keywords.`, ex("lvcreate new_volume_name vg_name size=10G")),
		fn.Of("lvremove", l.Lvremove, `Delete a logical volume.`, ex("lvremove lvname vgname force=True")),
		fn.Of("lvresize", l.Resize("lvresize", "resized", "--force"), `Change the size of a logical volume.`, ex("lvresize +12M /dev/mapper/vg1-test")),
		fn.Of("lvextend", l.Resize("lvextend", "extended", "--yes"), `Make a logical volume larger.`, ex("lvextend +12M /dev/mapper/vg1-test")),
	}}
}
