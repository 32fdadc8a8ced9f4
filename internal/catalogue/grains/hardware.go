package grains

import (
	"context"
	"strings"

	"brine/internal/host"
	"brine/internal/host/dmi"
	"brine/internal/py/value"
)

// dmiGrains lists grains and their DMI keys, in Salt's order.
var dmiGrains = [][2]string{
	{"biosversion", "bios_version"},
	{"biosvendor", "bios_vendor"},
	{"boardname", "board_name"},
	{"productname", "product_name"},
	{"manufacturer", "sys_vendor"},
	{"biosreleasedate", "bios_date"},
	{"uuid", "product_uuid"},
	{"serialnumber", "product_serial"},
}

func init() { collectors.Register("hardware", hardware) }

func hardware(_ context.Context, c *collection) (*value.Dict, error) { return c.firmware(), nil }

// firmware returns manufacturer, productname and similar grains. Values that
// only root may read are omitted for other users.
func firmware(ctx context.Context, m *host.Machine) *value.Dict {
	if !dmi.Available(m) {
		if m.Which("dmidecode") != "" || m.Which("smbios") != "" || m.Which("fw_printenv") == "" {
			return nil
		}
		return bootLoaderGrains(ctx, m)
	}
	d := value.NewDict(len(dmiGrains))
	for _, g := range dmiGrains {
		text, ok := dmi.String(m, g[1])
		if !ok {
			continue
		}
		if g[0] == "uuid" {
			text = strings.ToLower(text)
		}
		d.Set(g[0], text)
	}
	return d
}

// bootLoaderGrains reads the environment of U-Boot, which ARM boards have.
func bootLoaderGrains(ctx context.Context, m *host.Machine) *value.Dict {
	d := value.NewDict(3)
	for _, g := range [][2]string{{"manufacturer", "manufacturer"}, {"serialnumber", "serial#"}, {"productname", "DeviceDesc"}} {
		out, exit, err := m.Run(ctx, "fw_printenv", g[1])
		if err != nil || exit != 0 {
			continue
		}
		f := strings.Split(out, "=")
		if len(f) < 2 {
			continue
		}
		var val any
		if !bogus(g[0], f[1]) {
			val = f[1]
		}
		d.Set(g[0], val)
	}
	return d
}

var (
	noneText      = lazily(`(?i)^none`)
	bogusSerial   = lazily(`(?i)^0+$|^0?1234567|sernum|part[_-]?number|specified|filled|applicable`)
	bogusMaker    = lazily(`(?i)manufacturer|to be filled|available|asset|^no(ne|t)`)
	bogusAnything = lazily(`(?i)to be filled|un(known|specified)|no(t|ne)? (asset|provided|defined|available|present|specified)`)
)

// bogus matches the placeholders that manufacturers use instead of a value.
func bogus(grain, val string) bool {
	switch {
	case val == "" || noneText().MatchString(val):
		return true
	case grain == "serialnumber":
		return bogusSerial().MatchString(val)
	case grain == "manufacturer":
		return bogusMaker().MatchString(val)
	}
	return bogusAnything().MatchString(val)
}

func init() { collectors.Register("devicetree", deviceTree) }

func deviceTree(_ context.Context, c *collection) (*value.Dict, error) {
	if !dmi.HasDeviceTree(c.Machine) {
		return nil, nil
	}
	t := dmi.ReadDeviceTree(c.Machine)
	d := value.NewDict(3)
	if maker, product, ok := strings.Cut(t.Model, ","); ok {
		d.Set("manufacturer", maker)
		d.Set("productname", product)
	} else if t.Model != "" {
		d.Set("productname", t.Model)
	}
	if t.SerialNumber != "" {
		d.Set("serialnumber", t.SerialNumber)
	} else if t.SystemID != "" {
		d.Set("serialnumber", t.SystemID)
	}
	return d, nil
}
