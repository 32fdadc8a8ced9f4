// Package counters reads the kernel's counters from /proc: time and load,
// memory, processors, disks and the network. A missing file counts as empty.
package counters

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/host"
)

// Uptime returns how long the machine has been up. ok is false if that is
// unknown.
func Uptime(m *host.Machine) (up time.Duration, ok bool) {
	f := strings.Fields(m.Text("/proc/uptime"))
	if len(f) == 0 {
		return 0, false
	}
	seconds, err := strconv.ParseFloat(f[0], 64)
	return time.Duration(seconds * float64(time.Second)), err == nil
}

// Booted returns when the machine was started.
func Booted(m *host.Machine) (at time.Time, ok bool) {
	for _, l := range Lines(m, "/proc/stat") {
		if l.Name == "btime" && len(l.Values) > 0 {
			seconds, err := strconv.ParseInt(l.Values[0], 10, 64)
			return time.Unix(seconds, 0), err == nil
		}
	}
	return time.Time{}, false
}

// Load returns the load averages over one, five and fifteen minutes, with the
// kernel's precision of 1/65536. Another machine's file has two digits.
func Load(m *host.Machine) (one, five, fifteen float64, ok bool) {
	var info unix.Sysinfo_t
	if m.Live() && unix.Sysinfo(&info) == nil {
		part := func(i int) float64 { return float64(info.Loads[i]) / 65536 }
		return part(0), part(1), part(2), true
	}
	f := strings.Fields(m.Text("/proc/loadavg"))
	if len(f) < 3 {
		return 0, 0, 0, false
	}
	var load [3]float64
	for i := range load {
		v, err := strconv.ParseFloat(f[i], 64)
		if err != nil {
			return 0, 0, 0, false
		}
		load[i] = v
	}
	return load[0], load[1], load[2], true
}

// Line is a line of words: a name and values.
type Line struct {
	Name   string // without a colon at its end
	Values []string
}

// Lines reads a file of such lines: /proc/stat, /proc/meminfo, /proc/vmstat.
func Lines(m *host.Machine, path string) []Line {
	var out []Line
	for _, line := range m.Lines(path) {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, Line{strings.TrimSuffix(f[0], ":"), f[1:]})
		}
	}
	return out
}

// Memory returns the values of /proc/meminfo in bytes, by name.
func Memory(m *host.Machine) map[string]int64 {
	found := map[string]int64{}
	for _, l := range Lines(m, "/proc/meminfo") {
		if len(l.Values) == 0 {
			continue
		}
		n, err := strconv.ParseInt(l.Values[0], 10, 64)
		if err != nil {
			continue
		}
		if len(l.Values) > 1 && l.Values[1] == "kB" {
			n *= 1024
		}
		found[l.Name] = n
	}
	return found
}

// Processors returns the number of online processors.
func Processors(m *host.Machine) int {
	n := 0
	for _, l := range Lines(m, "/proc/stat") {
		if number, ok := strings.CutPrefix(l.Name, "cpu"); ok && number != "" {
			n++
		}
	}
	return n
}

// Busy returns the busy time and the total time of all processors since boot,
// in kernel ticks. Time stolen by a hypervisor counts as busy, waiting for
// disks does not.
func Busy(m *host.Machine) (busy, total int64, ok bool) {
	const fields, idle, iowait = 8, 3, 4 // user nice system idle iowait irq softirq steal
	for _, l := range Lines(m, "/proc/stat") {
		if l.Name != "cpu" || len(l.Values) < fields {
			continue
		}
		for i, text := range l.Values[:fields] {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return 0, 0, false
			}
			total += n
			if i != idle && i != iowait {
				busy += n
			}
		}
		return busy, total, true
	}
	return 0, 0, false
}

// NetDevice holds the counters of a network interface: eight for receiving and
// eight for sending, in the order of /proc/net/dev.
type NetDevice struct {
	Name   string
	Values []string
}

// NetDevices reads /proc/net/dev.
func NetDevices(m *host.Machine) []NetDevice {
	const counters = 16
	var out []NetDevice
	for _, line := range m.Lines("/proc/net/dev") {
		name, rest, ok := strings.Cut(line, ":")
		if f := strings.Fields(rest); ok && len(f) >= counters {
			out = append(out, NetDevice{strings.TrimSpace(name), f[:counters]})
		}
	}
	return out
}

// Table is a group of counters of the network.
type Table struct {
	Name          string
	Names, Values []string // of one length
}

// NetTables reads /proc/net/netstat, in which each line of values follows one
// of their names.
func NetTables(m *host.Machine) []Table {
	var out []Table
	var head Line
	for _, l := range Lines(m, "/proc/net/netstat") {
		if l.Name == head.Name && len(l.Values) == len(head.Values) {
			out = append(out, Table{l.Name, head.Values, l.Values})
		} else {
			head = l
		}
	}
	return out
}
