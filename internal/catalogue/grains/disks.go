package grains

import (
	"context"
	"math"
	"strconv"
	"strings"

	"brine/internal/host/disk"
	"brine/internal/py/value"
)

func init() { collectors.Register("disks", disks) }

func disks(_ context.Context, c *collection) (*value.Dict, error) {
	hard, solid := value.ListOf(), value.ListOf()
	for _, d := range disk.Devices(c.Machine) {
		if d.Rotational {
			hard.Append(d.Name)
		} else {
			solid.Append(d.Name)
		}
	}
	return value.DictOf("disks", hard, "ssds", solid), nil
}

func init() { collectors.Register("lvm", lvm) }

func lvm(ctx context.Context, c *collection) (*value.Dict, error) {
	groups, ok := disk.Groups(ctx, c.Machine)
	if !ok {
		return nil, nil
	}
	d := value.NewDict(len(groups))
	for _, g := range groups {
		d.Set(g.Name, value.Strings(g.Volumes))
	}
	return value.DictOf("lvm", d), nil
}

func init() { collectors.Register("mdadm", mdadm) }

func mdadm(_ context.Context, c *collection) (*value.Dict, error) {
	names, ok := disk.RAID(c.Machine)
	if !ok {
		return nil, nil
	}
	return value.DictOf("mdadm", names), nil
}

func init() { collectors.Register("zfs", zfs) }

func zfs(ctx context.Context, c *collection) (*value.Dict, error) {
	supported := disk.ZFS(c.Machine)
	d := value.DictOf("zfs_support", supported, "zfs_feature_flags", zfsManual(c))
	if !supported {
		return d, nil
	}
	pools := value.NewDict(0)
	for _, p := range disk.Pools(ctx, c.Machine) {
		pools.Set(p.Name, zfsSize(p.Size))
	}
	if pools.Len() > 0 {
		d.Set("zpool", pools)
	}
	return d, nil
}

// zfsManual reports whether man has a page on feature flags. Salt detects
// feature flags of ZFS this way.
func zfsManual(c *collection) bool {
	if c.Which("man") == "" {
		return false
	}
	for _, section := range []string{"5", "7"} {
		for _, name := range c.List("/usr/share/man/man" + section) {
			if strings.HasPrefix(name, "zpool-features."+section) {
				return true
			}
		}
	}
	return false
}

var zfsUnit = lazily(`^(\d+|\d+\.\d+)([KkMmGgTtPpEe])[Bb]?$`)

// zfsSize returns a size such as "9.94G" in bytes, as an integer if it is
// whole; other strings are returned unchanged.
func zfsSize(s string) any {
	if m := zfsUnit().FindStringSubmatch(s); m != nil {
		f, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return s
		}
		f *= math.Pow(1024, float64(strings.Index("KMGTPE", strings.ToUpper(m[2]))+1))
		if f == math.Trunc(f) && f < 1<<63 {
			return int64(f)
		}
		return f
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	return s
}

func init() { collectors.Register("iscsi", iscsi) }

func iscsi(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.ISCSI {
		return nil, nil
	}
	return value.DictOf("iscsi_iqn", disk.ISCSINames(c.Machine)), nil
}

func init() { collectors.Register("nvme", nvme) }

func nvme(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.NVMe {
		return nil, nil
	}
	return value.DictOf("nvme_nqn", disk.NVMeNames(c.Machine)), nil
}

func init() { collectors.Register("fibre_channel", fibreChannel) }

func fibreChannel(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.Fibre {
		return nil, nil
	}
	return value.DictOf("fc_wwn", disk.FibreChannelPorts(c.Machine)), nil
}
