package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/host"
)

// Details are further data of a process. Data that only its owner and root may
// see is nil or "" for others.
type Details struct {
	Process
	// ChildUser and ChildSystem are the times of terminated children. Waited is
	// the time spent waiting for disks.
	ChildUser, ChildSystem, Waited time.Duration
	UIDs, GIDs                     []int // real, effective, saved
	Nice, CPU                      int   // CPU is the processor that it last ran on
	Terminal                       string
	Exe, Dir                       string
	Environ                        []string // NAME=value
	Affinity                       []int    // the processors that it may run on
	Voluntary, Involuntary         int64    // switches to another process
	Memory                         Memory
	IO                             *IO
	FDs                            []FD // nil if they cannot be seen
	Threads                        []Thread
}

// Memory is the memory of a process in bytes.
type Memory struct{ RSS, Virtual, Shared, Text, Lib, Data, Dirty int64 }

// IO counts a process's reads and writes: calls, bytes, and bytes that reached
// disks.
type IO struct{ Reads, Writes, ReadBytes, WriteBytes, ReadChars, WriteChars int64 }

// FD is an open file descriptor.
type FD struct {
	Number   int
	Path     string // target: a path, or another name such as "socket:[5]"
	Position int64
	Flags    int // flags of open(2)
}

// Thread is a thread of a process.
type Thread struct {
	ID           int
	User, System time.Duration
}

// Further positions of fields in /proc/PID/stat.
const (
	fieldTerminal    = 4
	fieldChildUser   = 13
	fieldChildSystem = 14
	fieldNice        = 16
	fieldCPU         = 36
	fieldWaited      = 39
)

// Detail returns all data of a process. ok is false if there is none.
func Detail(m *host.Machine, pid int) (d Details, ok bool) {
	if d.Process, ok = Read(m, pid); !ok {
		return d, false
	}
	dir := "/proc/" + strconv.Itoa(pid)
	f := statFields(m.Text(dir + "/stat"))
	number := func(i int) int64 {
		if i >= len(f) {
			return 0
		}
		n, _ := strconv.ParseInt(f[i], 10, 64)
		return n
	}
	spent := func(i int) time.Duration { return time.Duration(number(i)) * time.Second / ticks }
	d.ChildUser, d.ChildSystem, d.Waited = spent(fieldChildUser), spent(fieldChildSystem), spent(fieldWaited)
	d.Nice, d.CPU, d.Terminal = int(number(fieldNice)), int(number(fieldCPU)), terminal(m, uint64(number(fieldTerminal)))
	d.status(m.Lines(dir + "/status"))
	d.Exe, _ = os.Readlink(m.Path(dir + "/exe"))
	d.Dir, _ = os.Readlink(m.Path(dir + "/cwd"))
	if text := strings.TrimRight(m.Text(dir+"/environ"), "\x00"); text != "" {
		d.Environ = strings.Split(text, "\x00")
	}
	d.Memory = memory(m.Text(dir + "/statm"))
	d.IO = readIO(m.Lines(dir + "/io"))
	d.FDs = descriptors(m, dir)
	for _, name := range m.List(dir + "/task") {
		if f := statFields(m.Text(dir + "/task/" + name + "/stat")); len(f) > fieldSystem {
			id, _ := strconv.Atoi(name)
			user, _ := strconv.ParseInt(f[fieldUser], 10, 64)
			system, _ := strconv.ParseInt(f[fieldSystem], 10, 64)
			d.Threads = append(d.Threads, Thread{id, time.Duration(user) * time.Second / ticks, time.Duration(system) * time.Second / ticks})
		}
	}
	slices.SortFunc(d.Threads, func(a, b Thread) int { return a.ID - b.ID })
	return d, true
}

// statFields returns the words of a stat file after the name.
func statFields(stat string) []string {
	return strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
}

// terminal returns the path of a terminal by its device number.
func terminal(m *host.Machine, device uint64) string {
	if device == 0 {
		return ""
	}
	for _, dir := range []string{"/dev/pts", "/dev"} {
		for _, name := range m.List(dir) {
			if dir == "/dev" && !strings.HasPrefix(name, "tty") {
				continue
			}
			var st unix.Stat_t
			if unix.Stat(m.Path(dir+"/"+name), &st) == nil && uint64(st.Rdev) == device {
				return dir + "/" + name
			}
		}
	}
	return ""
}

func (d *Details) status(lines []string) {
	for _, line := range lines {
		key, v, _ := strings.Cut(line, ":")
		words := strings.Fields(v)
		switch key {
		case "Uid":
			d.UIDs = threeOf(words)
		case "Gid":
			d.GIDs = threeOf(words)
		case "Cpus_allowed_list":
			d.Affinity = ranges(strings.TrimSpace(v))
		case "voluntary_ctxt_switches":
			d.Voluntary, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		case "nonvoluntary_ctxt_switches":
			d.Involuntary, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
}

func threeOf(words []string) []int {
	ids := make([]int, 3)
	for i := range min(len(ids), len(words)) {
		ids[i], _ = strconv.Atoi(words[i])
	}
	return ids
}

// maxCPU bounds the numbers of processors in a list.
const maxCPU = 1 << 16

// ranges parses a list such as "0-2,7".
func ranges(text string) []int {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		from, to, ok := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if ok && err == nil {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last >= maxCPU {
			continue
		}
		for n := first; n <= last; n++ {
			out = append(out, n)
		}
	}
	return out
}

// memory parses statm, which counts pages: total, resident, shared, text,
// libraries, data and stack, dirty.
func memory(statm string) Memory {
	var pages [7]int64
	f := strings.Fields(statm)
	for i := range min(len(pages), len(f)) {
		pages[i], _ = strconv.ParseInt(f[i], 10, 64)
		pages[i] *= int64(os.Getpagesize())
	}
	return Memory{Virtual: pages[0], RSS: pages[1], Shared: pages[2], Text: pages[3], Lib: pages[4], Data: pages[5], Dirty: pages[6]}
}

func readIO(lines []string) *IO {
	if len(lines) == 0 {
		return nil
	}
	n := map[string]int64{}
	for _, line := range lines {
		key, v, _ := strings.Cut(line, ":")
		n[key], _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	}
	return &IO{n["syscr"], n["syscw"], n["read_bytes"], n["write_bytes"], n["rchar"], n["wchar"]}
}

func descriptors(m *host.Machine, dir string) []FD {
	entries, err := os.ReadDir(m.Path(dir + "/fd"))
	if err != nil {
		return nil
	}
	list := make([]FD, 0, len(entries))
	for _, e := range entries {
		number, err := strconv.Atoi(e.Name())
		path, err2 := os.Readlink(m.Path(filepath.Join(dir, "fd", e.Name())))
		if err != nil || err2 != nil {
			continue // closed in the meantime
		}
		fd := FD{Number: number, Path: path}
		for _, line := range m.Lines(dir + "/fdinfo/" + e.Name()) {
			switch key, v, _ := strings.Cut(line, ":"); key {
			case "pos":
				fd.Position, _ = strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			case "flags":
				flags, _ := strconv.ParseInt(strings.TrimSpace(v), 8, 64)
				fd.Flags = int(flags)
			}
		}
		list = append(list, fd)
	}
	slices.SortFunc(list, func(a, b FD) int { return a.Number - b.Number })
	return list
}
