package system

import (
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// memory is the size of the kernel's memory, to which tmpfs options are
// relative.
type memory struct{ page, pages uint64 }

// kernelMemory asks the kernel, because /proc/meminfo may differ in containers.
func kernelMemory() (memory, bool) {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return memory{}, false
	}
	page := uint64(os.Getpagesize())
	return memory{page: page, pages: uint64(info.Totalram) * uint64(info.Unit) / page}, true
}

// tmpfsOption converts a tmpfs option to the form that the kernel shows. shown
// is empty for a default, which the kernel omits. known is false for options
// that the kernel shows unchanged or never.
func (m memory) tmpfsOption(opt string) (key, shown string, known bool) {
	key, v, _ := strings.Cut(opt, "=")
	switch key {
	case "size", "nr_blocks":
		pages, ok := m.tmpfsPages(key, v)
		if !ok {
			return key, "", false
		}
		if pages == m.pages/2 {
			return "size", "", true
		}
		return "size", "size=" + strconv.FormatUint(pages*(m.page>>10), 10) + "k", true
	case "nr_inodes":
		n, rest, ok := kernelNumber(v)
		if n == m.pages/2 {
			return key, "", ok && rest == ""
		}
		return key, key + "=" + strconv.FormatUint(n, 10), ok && rest == ""
	case "mode":
		mode, err := strconv.ParseUint(v, 8, 12)
		if err != nil || mode == 0o1777 {
			return key, "", err == nil
		}
		return key, "mode=" + strconv.FormatUint(mode, 8), true
	case "uid", "gid":
		return key, "", v == "0"
	}
	return key, "", false
}

// tmpfsPages returns the number of pages that an option allows, rounded like
// the kernel.
func (m memory) tmpfsPages(key, v string) (pages uint64, ok bool) {
	n, rest, ok := kernelNumber(v)
	switch {
	case !ok:
		return 0, false
	case key == "nr_blocks":
		return n, rest == ""
	case rest == "%":
		high, low := bits.Mul64(n, m.pages*m.page)
		if high >= 100 {
			return 0, false
		}
		n, _ = bits.Div64(high, low, 100)
	case rest != "":
		return 0, false
	}
	return n/m.page + min(n%m.page, 1), true
}

// kernelNumber parses a number with a suffix such as k, as the kernel does, and
// returns the rest.
func kernelNumber(v string) (n uint64, rest string, ok bool) {
	end := len(v) - len(strings.TrimLeft(v, "0123456789"))
	n, err := strconv.ParseUint(v[:end], 10, 64)
	if err != nil {
		return 0, v, false
	}
	rest = v[end:]
	if rest != "" {
		if i := strings.IndexByte("KMGTPE", rest[0]&^0x20); i >= 0 {
			shift := 10 * (i + 1)
			return n << shift, rest[1:], bits.Len64(n)+shift <= 64
		}
	}
	return n, rest, true
}

// tmpfsHas reports whether a tmpfs, given its shown options, has an option, and
// whether this can be determined.
func (m memory) tmpfsHas(shown []string, opt string) (has, known bool) {
	key, want, known := m.tmpfsOption(opt)
	if !known {
		return false, false
	}
	if want != "" {
		return slices.Contains(shown, want), true
	}
	return !slices.ContainsFunc(shown, func(o string) bool { return strings.HasPrefix(o, key+"=") }), true
}
