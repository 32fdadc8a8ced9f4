// Package mount reads the kernel's lists of mounts, edits fstab, and runs
// mount, umount, swapon and swapoff.
package mount

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"brine/internal/host"
)

// Entry is a line of a file such as /etc/fstab. Blanks in it are written as \040.
type Entry struct {
	Device, Name, Type string
	Opts               []string
	Dump, Pass         string
}

func (e Entry) String() string {
	return fmt.Sprintf("%s\t\t%s\t%s\t%s\t%s %s", e.Device, e.Name, e.Type, strings.Join(e.Opts, ","), e.Dump, e.Pass)
}

// same reports whether two entries are equivalent.
func (e Entry) same(o Entry) bool {
	x, y := slices.Clone(e.Opts), slices.Clone(o.Opts)
	slices.Sort(x)
	slices.Sort(y)
	return e.Device == o.Device && e.Name == o.Name && e.Type == o.Type && e.Dump == o.Dump && e.Pass == o.Pass && slices.Equal(x, y)
}

// parseEntry parses a line; ok is false for comments and lines that do not have
// four to six words.
func parseEntry(line string) (Entry, bool) {
	w := strings.Fields(line)
	if strings.HasPrefix(line, "#") || len(w) < 4 || len(w) > 6 {
		return Entry{}, false
	}
	w = append(w, "0", "0")
	return Entry{Device: w[0], Name: w[1], Type: w[2], Opts: strings.Split(w[3], ","), Dump: w[4], Pass: w[5]}, true
}

// ReadFstab returns the entries of a file in order, none if the file does not
// exist.
func ReadFstab(m *host.Machine, path string) []Entry {
	var out []Entry
	for _, line := range m.Lines(path) {
		if e, ok := parseEntry(line); ok {
			out = append(out, e)
		}
	}
	return out
}

// Match names the fields by which an entry is found.
type Match struct{ Device, Name, Type, Opts, Dump, Pass bool }

// MatchFor returns the default match for entries of a type: by the directory if
// the device is not specific, else by the device.
func MatchFor(fstype string) Match {
	switch fstype {
	case "none", "tmpfs", "sysfs", "proc", "fusectl", "debugfs", "securityfs", "devtmpfs", "cgroup", "nfs", "nfs4", "glusterfs", "btrfs":
		return Match{Name: true}
	}
	return Match{Device: true}
}

func (x Match) fits(want, e Entry) bool {
	masked := want
	if !x.Device {
		masked.Device = e.Device
	}
	if !x.Name {
		masked.Name = e.Name
	}
	if !x.Type {
		masked.Type = e.Type
	}
	if !x.Opts {
		masked.Opts = e.Opts
	}
	if !x.Dump {
		masked.Dump = e.Dump
	}
	if !x.Pass {
		masked.Pass = e.Pass
	}
	return masked.same(e)
}

// Results of SetFstab.
const (
	Present = "present"
	Changed = "change"
	New     = "new"
)

func lines(m *host.Machine, path string) ([]string, error) {
	b, err := m.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
}

func write(m *host.Machine, path string, l []string) error {
	text := strings.Join(l, "\n")
	if text != "" {
		text += "\n"
	}
	return m.WriteFile(path, []byte(text))
}

// SetFstab replaces the matching entries, or appends the entry, and returns
// what it did. With keep, matching entries stay unchanged; with test nothing is
// written.
func SetFstab(m *host.Machine, path string, e Entry, by Match, keep, test bool) (string, error) {
	for _, w := range append([]string{e.Device, e.Name, e.Type, e.Dump, e.Pass}, e.Opts...) {
		if strings.ContainsAny(w, " \t\r\n\x00") {
			return "", fmt.Errorf("%q cannot be written to %s: write blanks as \\040", w, path)
		}
	}
	l, err := lines(m, path)
	if err != nil {
		return "", err
	}
	done := ""
	for i, line := range l {
		old, ok := parseEntry(line)
		if !ok || !by.fits(e, old) {
			continue
		}
		if done == "" {
			done = Present
		}
		if !e.same(old) && !keep {
			done, l[i] = Changed, e.String()
		}
	}
	if done == "" {
		done, l = New, append(l, e.String())
	}
	if done == Present || test {
		return done, nil
	}
	return done, write(m, path, l)
}

// RemoveFstab removes the entries of a directory, and of a device unless that is
// "", and reports whether there were any.
func RemoveFstab(m *host.Machine, path, name, device string) (bool, error) {
	l, err := lines(m, path)
	if err != nil {
		return false, err
	}
	before := len(l)
	l = slices.DeleteFunc(l, func(line string) bool {
		e, ok := parseEntry(line)
		return ok && e.Name == name && (device == "" || e.Device == device)
	})
	if len(l) == before {
		return false, nil
	}
	return true, write(m, path, l)
}

// errEmpty is the error for an empty argument of a program.
var errEmpty = errors.New("device and directory must not be empty")
