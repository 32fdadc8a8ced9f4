// Package cpu reads the processors and the memory of a machine.
package cpu

import (
	"strconv"
	"strings"

	"brine/internal/host"
)

// Info describes the processors.
type Info struct {
	Count int      // logical processors
	Model string   // "AMD EPYC 7763 64-Core Processor"; "" if unknown
	Flags []string // features by the kernel's names
}

// Read reads /proc/cpuinfo.
func Read(m *host.Machine) Info { return Parse(m.Text("/proc/cpuinfo")) }

// Parse parses /proc/cpuinfo, whose keys differ between architectures.
func Parse(text string) Info {
	var info Info
	flags := "" // the last line wins; it is split only once, at the end
	for line := range strings.SplitSeq(text, "\n") {
		key, val, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if v, _, more := strings.Cut(val, ":"); more {
			val = v
		}
		val = strings.TrimSpace(val)
		switch strings.TrimSpace(key) {
		case "processor":
			info.Count++
		case "# processors": // s390
			if n, err := strconv.Atoi(val); err == nil {
				info.Count = n
			}
		case "vendor_id", "model name", "cpu": // POWER uses "cpu"
			info.Model = val
		case "flags", "Features":
			flags = val
		case "Processor": // old ARM: ARMv6-compatible processor rev 7 (v6l)
			info.Model, _, _ = strings.Cut(val, "-")
			info.Count = 1
		}
	}
	info.Flags = strings.Fields(flags)
	return info
}

// Memory is the size of memory in KiB.
type Memory struct {
	Total, Swap int64
}

// ReadMemory reads /proc/meminfo.
func ReadMemory(m *host.Machine) Memory { return ParseMemory(m.Text("/proc/meminfo")) }

// ParseMemory parses /proc/meminfo.
func ParseMemory(text string) Memory {
	var mem Memory
	for line := range strings.SplitSeq(text, "\n") {
		key, val, _ := strings.Cut(line, ":")
		var dst *int64
		switch strings.TrimSpace(key) {
		case "MemTotal":
			dst = &mem.Total
		case "SwapTotal":
			dst = &mem.Swap
		default:
			continue
		}
		if f := strings.Fields(val); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				*dst = n
			}
		}
	}
	return mem
}
