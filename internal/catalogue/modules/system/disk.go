package system

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	fs "brine/internal/host/disk"
	"brine/internal/py/value"
)

type disk struct{ m *host.Machine }

func init() { units.Register("disk", diskModule) }

func diskModule(m *host.Machine) fn.Module {
	d := disk{m}
	return fn.Module{Name: "disk", Doc: `How full file systems are, and the devices that they are on.`, Funcs: append([]fn.Func{
		fn.Of("usage", d.usage, `Return the size of all file systems in blocks, and how much of it is used.`, fn.Example("salt '*' disk.usage")),
		fn.Of("inodeusage", d.inodeUsage, `Return the number of inodes of all file systems, and how many are used.`, fn.Example("salt '*' disk.inodeusage")),
		fn.Of("percent", d.percent, `Return how full all file systems are, or one.`, fn.Example("salt '*' disk.percent /var")),
		fn.Of("blkid", d.blkid, `Return UUID, label and type of block devices.`, fn.Example("salt '*' disk.blkid /dev/sda")),
	}, d.devices()...)}
}

type dfArgs struct {
	Args any `salt:"args" doc:"single-letter options of df(1), as a text or list" default:"null"`
}

// dfOptions returns the options that do not change the columns of df.
func dfOptions(v any, caller string) ([]string, error) {
	var letters []string
	switch x := v.(type) {
	case nil:
		return nil, nil
	case *value.List:
		for _, it := range x.Items {
			letters = append(letters, value.Str(it))
		}
	default:
		letters = strings.Split(value.Str(x), "")
	}
	var options []string
	for _, l := range letters {
		if len(l) != 1 || !strings.Contains("aBhHiklPtTxv", l) {
			return nil, fn.Errorf("Invalid flag passed to %s", caller)
		}
		if strings.Contains("BtTx", l) {
			return nil, fn.Errorf("the option -%s changes what df prints, or needs a value; leave it out", l)
		}
		options = append(options, "-"+l)
	}
	return options, nil
}

func (d disk) usages(ctx context.Context, args any, caller string, more ...string) ([]fs.Usage, error) {
	options, err := dfOptions(args, caller)
	if err != nil {
		return nil, err
	}
	list, err := fs.Usages(ctx, d.m, append(more, options...)...)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return list, nil
}

func (d disk) usage(ctx context.Context, _ *fn.Call, a dfArgs) (*value.Dict, error) {
	list, err := d.usages(ctx, a.Args, "disk.usage")
	out := value.NewDict(len(list))
	for _, u := range list {
		out.Set(u.Mount, value.DictOf("filesystem", u.Device, "1K-blocks", u.Total, "used", u.Used, "available", u.Available, "capacity", u.Filled))
	}
	return out, err
}

func (d disk) inodeUsage(ctx context.Context, _ *fn.Call, a dfArgs) (*value.Dict, error) {
	list, err := d.usages(ctx, a.Args, "disk.inodeusage", "-i")
	out := value.NewDict(len(list))
	for _, u := range list {
		out.Set(u.Mount, value.DictOf("inodes", u.Total, "used", u.Used, "free", u.Available, "use", u.Filled, "filesystem", u.Device))
	}
	return out, err
}

type percentArgs struct {
	Args any `salt:"args" doc:"the only mount point to look at" default:"null"`
}

func (d disk) percent(ctx context.Context, c *fn.Call, a percentArgs) (any, error) {
	list, err := d.usages(ctx, nil, "disk.percent")
	if err != nil {
		return nil, err
	}
	out := value.NewDict(len(list))
	for _, u := range list {
		out.Set(u.Mount, u.Filled)
	}
	if !value.Truth(a.Args) {
		return out, nil
	}
	if v, ok := out.Get(value.Str(a.Args)); ok {
		return v, nil
	}
	c.Log.Error("not a mount point", "path", value.Str(a.Args))
	return value.NewDict(0), nil
}

type blkidArgs struct {
	Device any `salt:"device" doc:"path of the only device to look at" default:"null"`
	Token  any `salt:"token" doc:"NAME=value that devices must have" default:"null"`
}

func (d disk) blkid(ctx context.Context, _ *fn.Call, a blkidArgs) (*value.Dict, error) {
	var args []string
	switch device, token := value.Str(a.Device), value.Str(a.Token); {
	case value.Truth(a.Device) && device[0] != '/':
		return nil, fn.Invalidf("a device is a path such as /dev/sda, not %q", device)
	case value.Truth(a.Device):
		args = []string{device}
	case value.Truth(a.Token) && token[0] == '-':
		return nil, fn.Invalidf("%q is no token; use NAME=value", token)
	case value.Truth(a.Token):
		args = []string{"-t", token}
	}
	found, err := fs.Identities(ctx, d.m, args...)
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	out := value.NewDict(len(found))
	for _, id := range found {
		facts := value.NewDict(len(id.Facts))
		for _, f := range id.Facts {
			facts.Set(f[0], f[1])
		}
		out.Set(id.Device, facts)
	}
	return out, nil
}
