package outbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// startTime is when a process was started, in ticks since boot, by which it
// can be told from a later one with the same number; 0 if it is not there or
// cannot be told.
func startTime(pid int) int64 {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 20 || f[0] == "Z" {
		return 0
	}
	n, _ := strconv.ParseInt(f[19], 10, 64)
	return n
}

// commandLine is how a process was called, shortened.
func commandLine(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return "?"
	}
	return fmt.Sprintf("%.200q", strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")))
}
