package grains

import (
	"context"
	"slices"
	"strings"

	"brine/internal/host/cpu"
	"brine/internal/host/pci"
	"brine/internal/py/value"
)

func init() { collectors.Register("cpu", cpuGrains) }

func cpuGrains(_ context.Context, c *collection) (*value.Dict, error) {
	info := c.cpu()
	if info.Model == "" {
		info.Model = "Unknown"
	}
	return value.DictOf("num_cpus", info.Count, "cpu_model", info.Model, "cpu_flags", info.Flags), nil
}

func init() { collectors.Register("mem", memory) }

// memory returns sizes in MiB, rounded down.
func memory(_ context.Context, c *collection) (*value.Dict, error) {
	m := cpu.ReadMemory(c.Machine)
	return value.DictOf("mem_total", m.Total/1024, "swap_total", m.Swap/1024), nil
}

// gpuVendors lists words in vendor names that are used as the grain; the first
// match wins. Any other vendor is "unknown".
var gpuVendors = []string{"nvidia", "amd", "ati", "intel", "vmware", "matrox", "aspeed"}

// gpuVendorIDs maps PCI vendor IDs, for machines without a PCI ID database.
var gpuVendorIDs = map[uint16]string{
	0x10de: "nvidia", 0x1002: "amd", 0x1022: "amd", 0x8086: "intel", 0x15ad: "vmware", 0x102b: "matrox", 0x1a03: "aspeed",
}

var wordBreak = lazily(`[^A-Za-z0-9]`)

func init() { collectors.Register("gpu", gpuGrains) }

func gpuGrains(_ context.Context, c *collection) (*value.Dict, error) {
	if !c.GPU || !c.PCI {
		return nil, nil
	}
	cards := slices.DeleteFunc(pci.List(c.Machine), func(d pci.Device) bool {
		switch d.Class >> 8 {
		case pci.ClassVGA, pci.Class3D, pci.ClassDisplay, pci.ClassAccelerator:
			return false
		}
		return true
	})
	gpus := value.ListOf()
	for i, n := range pci.Look(c.Machine, cards) {
		vendor := "unknown"
		words := wordBreak().Split(strings.ToLower(n.Vendor), -1)
		if at := slices.IndexFunc(gpuVendors, func(v string) bool { return slices.Contains(words, v) }); at >= 0 {
			vendor = gpuVendors[at]
		} else if v, ok := gpuVendorIDs[cards[i].Vendor]; ok {
			vendor = v
		}
		gpus.Append(value.DictOf("vendor", vendor, "model", n.Device))
	}
	return value.DictOf("num_gpus", gpus.Len(), "gpus", gpus), nil
}
