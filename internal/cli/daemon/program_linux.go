package daemon

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram gives back the pages of the program's own file. A start touches
// two thirds of them, of which a minion at rest needs a third; what is needed
// again the kernel maps again, from its cache of the file.
func unmapProgram() {
	for _, m := range ownProgram() {
		if m.private {
			continue
		}
		// There is no slice to pass: the range is not Go's memory. An error
		// leaves things as they were.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the address space that shows a file.
type mapping struct {
	from, to uintptr
	resident int // kB
	// private says that there is, or may be, what the file has not: data, or
	// what a linker has put in place before the range was made read-only.
	private bool
}

// ownProgram returns what this process has mapped of its own program.
func ownProgram() []mapping {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return nil
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return nil
	}
	defer f.Close()
	return mappingsOf(exe, f)
}

// mappingsOf reads /proc/PID/smaps: a line for each mapping, as in
// /proc/PID/maps, and below it what the kernel counts for it.
func mappingsOf(file string, smaps io.Reader) []mapping {
	var all []mapping
	var m *mapping // nil: one of something else
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Bytes()
		name, rest, _ := bytes.Cut(line, []byte(" "))
		switch {
		case len(name) > 0 && name[len(name)-1] != ':':
			m = nil
			if next, ok := parseMapping(name, rest, file); ok {
				all = append(all, next)
				m = &all[len(all)-1]
			}
		case m == nil:
		case string(name) == "Rss:":
			m.resident = kilobytes(rest)
		case string(name) == "Anonymous:", string(name) == "Swap:":
			m.private = m.private || kilobytes(rest) != 0
		}
	}
	if lines.Err() != nil {
		return nil // of the last one something may be missing
	}
	return all
}

// parseMapping takes "from-to" and "rights offset device inode file".
func parseMapping(span, rest []byte, file string) (m mapping, ok bool) {
	if !strings.HasSuffix(string(rest), " "+file) {
		return m, false
	}
	first, last, _ := strings.Cut(string(span), "-")
	from, err := strconv.ParseUint(first, 16, 64)
	to, err2 := strconv.ParseUint(last, 16, 64)
	m = mapping{from: uintptr(from), to: uintptr(to), private: rest[1] != '-'}
	return m, err == nil && err2 == nil && from < to
}

// kilobytes reads "  12 kB"; what it does not understand is not 0.
func kilobytes(b []byte) int {
	n, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(b, []byte("kB")))))
	if err != nil {
		return -1
	}
	return n
}
