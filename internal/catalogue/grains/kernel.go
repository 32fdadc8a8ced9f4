package grains

import (
	"context"
	"strings"

	"brine/internal/host/boot"
	"brine/internal/host/proc"
	"brine/internal/py/value"
)

func init() { collectors.Register("kernel", kernel) }

func kernel(_ context.Context, c *collection) (*value.Dict, error) {
	u := c.uname()
	return value.DictOf(
		"num_gpus", 0, "gpus", value.ListOf(), // these values remain if there are no graphics cards
		"kernel", u.System, "nodename", u.Node, "kernelrelease", u.Release, "kernelversion", u.Version, "cpuarch", u.Machine,
	), nil
}

func init() { collectors.Register("kernelparams", kernelParams) }

// kernelParams returns pairs of name and value. As in Salt, a value that
// contains an equals sign is lost.
func kernelParams(_ context.Context, c *collection) (*value.Dict, error) {
	line, ok := boot.CommandLine(c.Machine)
	if !ok {
		return nil, nil
	}
	words, err := proc.Split(line)
	if err != nil {
		words = strings.Fields(line) // an unclosed quote, for which Salt would return no grains at all
	}
	params := value.ListOf()
	for _, w := range words {
		var val any
		f := strings.Split(w, "=")
		if len(f) == 2 {
			val = strings.Trim(f[1], `"`)
		}
		params.Append(value.Tuple{f[0], val})
	}
	return value.DictOf("kernelparams", params), nil
}

func init() { collectors.Register("machine_id", machineID) }

func machineID(_ context.Context, c *collection) (*value.Dict, error) {
	if id, ok := boot.MachineID(c.Machine); ok {
		return value.DictOf("machine_id", id), nil
	}
	return nil, nil
}

func init() { collectors.Register("selinux", selinux) }

func selinux(_ context.Context, c *collection) (*value.Dict, error) {
	if c.Which("selinuxenabled") == "" {
		return nil, nil
	}
	s := boot.ReadSELinux(c.Machine)
	d := value.DictOf("enabled", s.Enabled)
	if c.Which("getenforce") != "" {
		d.Set("enforced", s.Mode)
	}
	return value.DictOf("selinux", d), nil
}

func init() { collectors.Register("systemd", systemd) }

func systemd(ctx context.Context, c *collection) (*value.Dict, error) {
	if c.Which("systemctl") == "" || c.Which("localectl") == "" {
		return nil, nil
	}
	version, features, err := boot.Systemd(ctx, c.Machine)
	if err != nil {
		c.log.Debug("cannot get the version of systemd from systemctl", "err", err)
	}
	if version == "" {
		version = "UNDEFINED"
	}
	return value.DictOf("systemd", value.DictOf("version", version, "features", features)), nil
}

func init() { collectors.Register("init", initSystem) }

func initSystem(_ context.Context, c *collection) (*value.Dict, error) {
	name := boot.Init(c.Machine)
	if name == "" {
		name = "unknown"
	}
	return value.DictOf("init", name), nil
}

func init() { collectors.Register("uefi", uefi) }

func uefi(_ context.Context, c *collection) (*value.Dict, error) {
	efi, secure := boot.EFI(c.Machine)
	return value.DictOf("efi", efi, "efi-secure-boot", secure), nil
}

func init() { collectors.Register("transactional", transactional) }

func transactional(_ context.Context, c *collection) (*value.Dict, error) {
	return value.DictOf("transactional", c.Which("transactional-update") != ""), nil
}

func init() { collectors.Register("ps", psCommand) }

func psCommand(_ context.Context, c *collection) (*value.Dict, error) {
	ps := "ps -efHww"
	switch {
	case c.virtual().Str("virtual") == "openvzhn": // omits the processes of guests
		ps = `ps -fH -p $(grep -l "^envID:[[:space:]]*0\$" /proc/[0-9]*/status | sed -e "s=/proc/\([0-9]*\)/.*=\1=")  | awk '{ $7=""; print }'`
	case c.dist().Str("os_family") == "NILinuxRT":
		ps = "ps -o user,pid,ppid,tty,time,comm"
	}
	return value.DictOf("ps", ps), nil
}
