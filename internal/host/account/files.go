package account

import (
	"strings"
	"sync"

	"brine/internal/host"
)

// file is the parsed content of a database in /etc.
type file struct {
	stamp  host.Stamp
	lines  []string
	byName map[string]string   // the first line of a name
	byID   map[string][]string // lines by their third field, a number
}

// kept caches the files read last, by path: a state run looks up the owner of
// every file that it manages.
var kept = struct {
	sync.Mutex
	files map[string]*file
}{files: map[string]*file{}}

// maxKept bounds the cached files: a machine has two, tests have many machines.
const maxKept = 16

// read returns the current content of passwd or group.
func read(m *host.Machine, name string) *file {
	path := m.Path("/etc/" + name)
	now, err := host.StampOf(path)
	if err != nil {
		return &file{}
	}
	kept.Lock()
	defer kept.Unlock()
	if f, ok := kept.files[path]; ok && f.stamp == now {
		return f
	}
	f := &file{stamp: now, lines: m.Lines("/etc/" + name), byName: map[string]string{}, byID: map[string][]string{}}
	for _, line := range f.lines {
		line = strings.TrimSpace(line)
		fields := strings.SplitN(line, ":", 4)
		if len(fields) < 2 {
			continue
		}
		if _, ok := f.byName[fields[0]]; !ok {
			f.byName[fields[0]] = line
		}
		if len(fields) > 2 {
			f.byID[fields[2]] = append(f.byID[fields[2]], line)
		}
	}
	if len(kept.files) >= maxKept {
		clear(kept.files)
	}
	if delete(kept.files, path); now.Settled() {
		kept.files[path] = f
	}
	return f
}
