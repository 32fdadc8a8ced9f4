package outbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// startTime returns the start time of a process, in ticks since boot, which
// distinguishes it from a later one with the same number; 0 if unknown.
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

// commandLine returns the shortened command line of a process.
func commandLine(pid int) string {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return "?"
	}
	return fmt.Sprintf("%.200q", strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " ")))
}
