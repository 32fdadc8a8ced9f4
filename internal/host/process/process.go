// Package process lists processes from /proc and signals them.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"brine/internal/host"
	"brine/internal/host/account"
	"brine/internal/host/counters"
)

// ticks is the number of the kernel's units of processor time per second; it is
// the same on all current architectures.
const ticks = 100

// Process is a snapshot of a process.
type Process struct {
	PID, Parent  int
	Name         string   // of the program, truncated to 15 bytes unless the command has the full name
	Command      []string // empty for the kernel's own
	UID          int
	State        string // "R", "S", "D", "Z" and so on
	User, System time.Duration
	Started      time.Time
	RSS, Virtual int64 // bytes
}

// PIDs returns the ids of all processes, sorted.
func PIDs(m *host.Machine) []int {
	var pids []int
	for _, name := range m.List("/proc") {
		if pid, err := strconv.Atoi(name); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// All returns all processes by id. Those that end meanwhile are omitted.
func All(m *host.Machine) []Process {
	boot, _ := counters.Booted(m)
	var out []Process
	for _, pid := range PIDs(m) {
		if p, ok := read(m, pid, boot); ok {
			out = append(out, p)
		}
	}
	return out
}

// Read returns one process. ok is false if there is none.
func Read(m *host.Machine, pid int) (p Process, ok bool) {
	boot, _ := counters.Booted(m)
	return read(m, pid, boot)
}

// The positions of fields in /proc/PID/stat after the name.
const (
	fieldState   = 0
	fieldParent  = 1
	fieldUser    = 11
	fieldSystem  = 12
	fieldStart   = 19
	fieldVirtual = 20
	fieldRSS     = 21
)

func read(m *host.Machine, pid int, boot time.Time) (Process, bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	stat := m.Text(dir + "/stat")
	// The name may hold blanks and parentheses; the last one ends it.
	open, end := strings.IndexByte(stat, '('), strings.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Process{}, false
	}
	f := strings.Fields(stat[end+1:])
	if len(f) <= fieldRSS {
		return Process{}, false
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 10, 64); return n }
	spent := func(i int) time.Duration { return time.Duration(number(i)) * time.Second / ticks }
	p := Process{
		PID: pid, Parent: int(number(fieldParent)), Name: stat[open+1 : end], State: f[fieldState], UID: -1,
		User: spent(fieldUser), System: spent(fieldSystem), Started: boot.Add(spent(fieldStart)),
		Virtual: number(fieldVirtual), RSS: number(fieldRSS) * int64(syscall.Getpagesize()),
	}
	for _, line := range m.Lines(dir + "/status") {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			if ids := strings.Fields(rest); len(ids) > 0 {
				p.UID, _ = strconv.Atoi(ids[0])
			}
		}
	}
	if b, err := m.ReadFile(dir + "/cmdline"); err == nil && len(b) > 0 {
		for _, arg := range bytes.Split(bytes.TrimRight(b, "\x00"), []byte{0}) {
			p.Command = append(p.Command, strings.ToValidUTF8(string(arg), "\ufffd"))
		}
	}
	// The kernel truncates the name; the command has the full one.
	if len(p.Name) == 15 && len(p.Command) > 0 {
		program := p.Command[0][strings.LastIndexByte(p.Command[0], '/')+1:]
		if strings.HasPrefix(program, p.Name) {
			p.Name = program
		}
	}
	return p, true
}

// Shown returns the command as ps(1) shows it: for kernel threads their name in
// brackets.
func (p Process) Shown() string {
	if len(p.Command) == 0 {
		return "[" + p.Name + "]"
	}
	return strings.Join(p.Command, " ")
}

// Matching returns the ids of the processes whose line of user, id and command,
// as printed by ps(1), matches.
func Matching(m *host.Machine, match func(line string) bool) []int {
	owners := NewOwners(m)
	var pids []int
	for _, p := range All(m) {
		if match(owners.Name(p.UID) + " " + strconv.Itoa(p.PID) + " " + p.Shown()) {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// Owners names the users of processes. It reads the accounts once.
type Owners struct {
	m     *host.Machine
	names map[int]string
}

// NewOwners returns the Owners of a machine.
func NewOwners(m *host.Machine) *Owners { return &Owners{m, map[int]string{}} }

// Name returns the name of a user, or the number of one without.
func (o *Owners) Name(uid int) string {
	name, ok := o.names[uid]
	if !ok {
		name = strconv.Itoa(uid)
		if u, known := account.ByID(o.m, uid); known {
			name = u.Name
		}
		o.names[uid] = name
	}
	return name
}

// Signal sends a signal to a process of the live machine. ok is false if there
// is none.
func Signal(m *host.Machine, pid int, sig syscall.Signal) (ok bool, err error) {
	if !m.Live() {
		return false, errors.New("cannot signal processes of another machine")
	}
	if pid < 1 {
		return false, fmt.Errorf("%d is not a process id; use 1 or more", pid)
	}
	switch err := syscall.Kill(pid, sig); {
	case errors.Is(err, syscall.ESRCH):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot signal process %d: %w", pid, err)
	}
	return true, nil
}
