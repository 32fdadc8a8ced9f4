// Package pci lists the PCI devices of a machine and names them from the
// PCI ID database, if the machine has one.
package pci

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strconv"
	"strings"

	"brine/internal/host"
)

// Device is one device.
type Device struct {
	Address string // "0000:00:02.0"
	Vendor  uint16
	Device  uint16
	Class   uint32 // class, subclass and interface, a byte each
}

// Class codes of subclasses, as Class>>8.
const (
	ClassVGA         = 0x0300
	Class3D          = 0x0302
	ClassDisplay     = 0x0380
	ClassAccelerator = 0x1200
)

const sysfs = "/sys/bus/pci/devices"

// List returns the devices in the order of their addresses.
func List(m *host.Machine) []Device {
	var out []Device
	for _, addr := range m.List(sysfs) {
		read := func(name string) uint64 {
			n, _ := strconv.ParseUint(strings.TrimPrefix(strings.TrimSpace(m.Text(sysfs+"/"+addr+"/"+name)), "0x"), 16, 32)
			return n
		}
		out = append(out, Device{Address: addr, Vendor: uint16(read("vendor")), Device: uint16(read("device")), Class: uint32(read("class"))})
	}
	return out
}

// Names are the database's names of a device, or "Vendor 10de" and "Device
// 1eb8" if it has none.
type Names struct {
	Vendor, Device string
}

var databases = []string{"/usr/share/hwdata/pci.ids", "/usr/share/misc/pci.ids", "/usr/share/pci.ids", "/usr/share/misc/pci.ids.gz", "/usr/share/pci.ids.gz"}

// Look returns the names of the devices, in their order.
func Look(m *host.Machine, devices []Device) []Names {
	out := make([]Names, len(devices))
	for i, d := range devices {
		out[i] = Names{Vendor: fmt.Sprintf("Vendor %04x", d.Vendor), Device: fmt.Sprintf("Device %04x", d.Device)}
	}
	if len(devices) == 0 {
		return out
	}
	for _, path := range databases {
		b, err := m.ReadFile(path)
		if err != nil {
			continue
		}
		var r io.Reader = bytes.NewReader(b)
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(r); err != nil {
				continue
			}
		}
		lookIn(io.LimitReader(r, host.MaxFile), devices, out)
		break
	}
	return out
}

// lookIn reads a database: a vendor's line starts with its number, the lines
// of its devices follow with one tab, those of subsystems with two. The list
// of classes at the end starts with "C ".
func lookIn(r io.Reader, devices []Device, out []Names) {
	sc := bufio.NewScanner(r)
	vendor := int64(-1)
	for sc.Scan() {
		line := sc.Text()
		isDevice := strings.HasPrefix(line, "\t")
		if isDevice && (vendor < 0 || strings.HasPrefix(line, "\t\t")) {
			continue
		}
		id, name, ok := strings.Cut(strings.TrimPrefix(line, "\t"), "  ")
		n, err := strconv.ParseUint(id, 16, 16)
		if !ok || err != nil {
			if strings.HasPrefix(line, "C ") {
				return
			}
			continue
		}
		if !isDevice {
			vendor = -1
		}
		for i, d := range devices {
			switch {
			case !isDevice && d.Vendor == uint16(n):
				vendor = int64(n)
				out[i].Vendor = name
			case isDevice && int64(d.Vendor) == vendor && d.Device == uint16(n):
				out[i].Device = name
			}
		}
	}
}
