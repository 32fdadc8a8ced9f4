// Package system reads the cost of processes from /proc: CPU time and memory of a process and all
// its descendants. It supports only Linux.
package system

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc/PID/stat: Linux reports 100 per second to programs, regardless
// of the kernel's own tick.
const tick = 10 * time.Millisecond

// stat has the used fields of /proc/PID/stat.
type stat struct {
	pid, parent int
	cpu         time.Duration // own, and of children that were waited for
}

func readStat(pid int) (stat, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name in parentheses may contain any character.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 15 {
		return stat{}, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	s := stat{pid: pid}
	s.parent, _ = strconv.Atoi(f[1])
	for _, v := range f[11:15] {
		n, _ := strconv.ParseInt(v, 10, 64)
		s.cpu += time.Duration(n) * tick
	}
	return s, nil
}

// tree returns the process and its descendants.
func tree(root int) ([]stat, error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	children := map[int][]stat{}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err != nil {
			continue // it has ended
		}
		children[s.parent] = append(children[s.parent], s)
	}
	first, err := readStat(root)
	if err != nil {
		return nil, err
	}
	all := []stat{first}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i].pid]...)
	}
	return all, nil
}

// CPU returns the CPU time used by a process and its descendants, with a resolution of 10 ms for
// each.
func CPU(pid int) (time.Duration, error) {
	all, err := tree(pid)
	var sum time.Duration
	for _, s := range all {
		sum += s.cpu
	}
	return sum, err
}

// Memory is the total memory of processes in bytes; shared memory counts once.
type Memory struct {
	PSS int64
	// Own is the part that only they can free. The rest is pages of mapped files, programs and
	// databases, which the system reclaims when it needs memory.
	Own int64
}

// MemoryOf returns the memory of a process and its descendants.
func MemoryOf(pid int) (Memory, error) {
	all, err := tree(pid)
	if err != nil {
		return Memory{}, err
	}
	var sum Memory
	for _, s := range all {
		m, err := memory(s.pid)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return Memory{}, err
		}
		sum.PSS += m.PSS
		sum.Own += m.Own
	}
	return sum, nil
}

// memory reads /proc/PID/smaps_rollup. It is empty for a process that has
// ended and was not waited for.
func memory(pid int) (m Memory, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "Pss:":
			m.PSS = kb << 10
		case "Pss_Anon:":
			m.Own = kb << 10
		}
	}
	return m, nil
}

// ResidentOf returns the resident memory of one process in bytes: own is the present part without
// pages of files, most the peak including them. It is cheap enough for frequent calls.
//
// The peak is not ru_maxrss, which the kernel reports for a child that has ended: that includes the
// memory of its parent at the start.
func ResidentOf(pid int) (own, most int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	found := 0
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "RssAnon:" && f[0] != "VmHWM:" {
			continue
		}
		kb, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		found++
		if f[0] == "VmHWM:" {
			most = kb << 10
		} else {
			own = kb << 10
		}
	}
	if found < 2 {
		return 0, 0, fmt.Errorf("/proc/%d/status has no RssAnon and VmHWM: the process has ended", pid)
	}
	return own, most, nil
}

// Files raises the limit of open files as far as the system allows, and returns it.
func Files() (uint64, error) {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return 0, err
	}
	l.Cur = l.Max
	return l.Cur, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l)
}

// Bytes returns the number of bytes that a process has read and written, in files and connections.
func Bytes(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, err
	}
	var sum int64
	for line := range strings.Lines(string(b)) {
		name, n, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if name == "rchar" || name == "wchar" {
			v, err := strconv.ParseInt(n, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("/proc/%d/io: %w", pid, err)
			}
			sum += v
		}
	}
	return sum, nil
}
