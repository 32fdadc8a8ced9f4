// Package dmi reads the firmware's description of a machine: the kernel's DMI
// (SMBIOS) strings, the raw SMBIOS table, and the device tree of machines
// without DMI.
package dmi

import (
	"encoding/binary"
	"strings"

	"brine/internal/host"
)

const sysfs = "/sys/class/dmi/id"

// Available reports whether the kernel provides DMI strings.
func Available(m *host.Machine) bool { return m.Exists(sysfs) }

// String returns one of the kernel's DMI strings, such as "sys_vendor". ok is
// false if it is missing or not readable, as serial numbers are without root.
func String(m *host.Machine, name string) (text string, ok bool) {
	b, err := m.ReadFile(sysfs + "/" + name)
	if err != nil {
		return "", false
	}
	return strings.ToValidUTF8(strings.Trim(string(b), " \t\n\r\v\f"), "\ufffd"), true
}

// Structure is one entry of the SMBIOS table.
type Structure struct {
	Type    uint8
	Data    []byte // with the header of four bytes
	Strings []string
}

// Types of structures.
const (
	BIOS      = 0
	System    = 1
	Baseboard = 2
	Chassis   = 3
	Processor = 4
	Memory    = 17
	end       = 127
)

// Text returns the string whose number is at offset of the data, or "".
func (s *Structure) Text(offset int) string {
	if offset >= len(s.Data) {
		return ""
	}
	n := int(s.Data[offset])
	if n == 0 || n > len(s.Strings) {
		return ""
	}
	return s.Strings[n-1]
}

// Manufacturer returns the manufacturer of the part, for the types that have
// one.
func (s *Structure) Manufacturer() string {
	switch s.Type {
	case System, Baseboard, Chassis:
		return s.Text(4)
	case Processor:
		return s.Text(7)
	case Memory:
		return s.Text(0x17)
	}
	return ""
}

// Product returns the name of the product, for the types that have one.
func (s *Structure) Product() string {
	if s.Type == System || s.Type == Baseboard {
		return s.Text(5)
	}
	return ""
}

// Vendor returns the vendor of the firmware, for the type BIOS.
func (s *Structure) Vendor() string {
	if s.Type == BIOS {
		return s.Text(4)
	}
	return ""
}

// Table returns the SMBIOS table, which needs root. It is nil if there is none.
func Table(m *host.Machine) ([]Structure, error) {
	b, err := m.ReadFile("/sys/firmware/dmi/tables/DMI")
	if err != nil {
		return nil, err
	}
	return ParseTable(b), nil
}

// maxStructures bounds a table; real ones have some hundred entries.
const maxStructures = 4096

// ParseTable parses a raw SMBIOS table up to its end or first error.
func ParseTable(b []byte) []Structure {
	var out []Structure
	for len(b) >= 4 && len(out) < maxStructures {
		size := int(b[1])
		if size < 4 || size > len(b) {
			break
		}
		s := Structure{Type: b[0], Data: b[:size:size]}
		b = b[size:]
		for len(b) > 0 && b[0] != 0 {
			i := strings.IndexByte(string(b[:min(len(b), 1024)]), 0)
			if i < 0 {
				return out
			}
			s.Strings = append(s.Strings, strings.ToValidUTF8(string(b[:i]), "\ufffd"))
			b = b[i+1:]
		}
		if len(s.Strings) == 0 && len(b) > 0 {
			b = b[1:] // no strings: two zero bytes
		}
		if len(b) > 0 {
			b = b[1:]
		}
		out = append(out, s)
		if s.Type == end {
			break
		}
	}
	return out
}

// Handle returns the number by which other structures refer to this one.
func (s *Structure) Handle() uint16 { return binary.LittleEndian.Uint16(s.Data[2:]) }

// DeviceTree holds values of the device tree of a board. Fields may be empty.
type DeviceTree struct {
	Model        string // "raspberrypi,4-model-b" or free text
	SystemID     string // on Power
	SerialNumber string // on ARM
}

// HasDeviceTree reports whether the machine has a device tree.
func HasDeviceTree(m *host.Machine) bool { return m.IsDir("/proc/device-tree") }

// ReadDeviceTree reads /proc/device-tree.
func ReadDeviceTree(m *host.Machine) DeviceTree {
	read := func(name string) string { return strings.TrimRight(m.Text("/proc/device-tree/"+name), "\x00") }
	return DeviceTree{Model: read("model"), SystemID: read("system-id"), SerialNumber: read("serial-number")}
}
