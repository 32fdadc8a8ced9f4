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

// unmapProgram releases the pages of the program's own file. A start touches two thirds of them; an
// idle minion needs a third of those. The kernel maps pages again on demand from its page cache.
func unmapProgram() {
	for _, m := range ownProgram() {
		if m.private {
			continue
		}
		// There is no slice to pass, because the range is not Go's memory. An error changes
		// nothing.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED)
	}
}

// mapping is a part of the address space to which a file is mapped.
type mapping struct {
	from, to uintptr
	resident int // kB
	// private means that the memory may differ from the file: it is data, or was relocated by a
	// linker before the range was made read-only.
	private bool
}

// ownProgram returns the mappings of this process's own program.
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

// mappingsOf parses /proc/PID/smaps: a line for each mapping, as in /proc/PID/maps, followed by the
// kernel's counters for it.
func mappingsOf(file string, smaps io.Reader) []mapping {
	var all []mapping
	var m *mapping // nil for a mapping of another file
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
		return nil // the last mapping may be incomplete
	}
	return all
}

// parseMapping parses "from-to" and "permissions offset device inode file".
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

// kilobytes parses "  12 kB". It returns -1, not 0, for an invalid number.
func kilobytes(b []byte) int {
	n, err := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(b, []byte("kB")))))
	if err != nil {
		return -1
	}
	return n
}
