// Package sysctl reads and sets kernel parameters, and stores them in the files
// that are applied at boot. Names have dots ("net.ipv4.ip_forward"); a dot
// within a part is written as a slash.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/host"
)

const tree = "/proc/sys"

// swap exchanges dots and slashes.
var swap = strings.NewReplacer(".", "/", "/", ".")

func path(name string) (string, error) {
	p := filepath.Join(tree, swap.Replace(name))
	if name == "" || !strings.HasPrefix(p, tree+"/") || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("%q is not a kernel parameter", name)
	}
	return p, nil
}

// Get returns a value; columns are separated by tabs, as the kernel has them.
// The error of a missing parameter matches fs.ErrNotExist.
func Get(m *host.Machine, name string) (string, error) {
	p, err := path(name)
	if err != nil {
		return "", err
	}
	b, err := m.ReadFile(p)
	return strings.TrimRight(string(b), "\n"), err
}

// Set sets a value now. It is lost at the next boot.
func Set(m *host.Machine, name, value string) error {
	p, err := path(name)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(m.Path(p), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

// All returns every parameter that can be read and holds one line.
func All(m *host.Machine) map[string]string {
	out := map[string]string{}
	root := m.Path(tree)
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // skip what cannot be read
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := swap.Replace(rel)
		if st, err := d.Info(); err != nil || st.Mode()&0o400 == 0 {
			return nil
		}
		if v, err := Get(m, name); err == nil {
			out[name] = v
		}
		return nil
	})
	return out
}

// Entry is a line of a parameter file.
type Entry struct{ Name, Value string }

// ReadFile returns the entries of a file in order. The error of a missing file
// matches fs.ErrNotExist.
func ReadFile(m *host.Machine, file string) ([]Entry, error) {
	b, err := m.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for line := range strings.Lines(string(b)) {
		if e, ok := parse(line); ok {
			out = append(out, e)
		}
	}
	return out, nil
}

func parse(line string) (Entry, bool) {
	line = strings.TrimSpace(line)
	k, v, ok := strings.Cut(line, "=")
	if !ok || line[0] == '#' || line[0] == ';' {
		return Entry{}, false
	}
	return Entry{strings.TrimSpace(k), strings.TrimSpace(v)}, true
}

// Same reports whether two values are equal except the kind of blanks.
func Same(a, b string) bool {
	return strings.Join(strings.Fields(a), " ") == strings.Join(strings.Fields(b), " ")
}

const heading = "#\n# Kernel sysctl configuration\n#\n"

// Keep writes a parameter to a file, which it creates if necessary, and reports
// whether the file changed.
func Keep(m *host.Machine, file, name, value string) (changed bool, err error) {
	if strings.ContainsAny(name+value, "\n\x00") {
		return false, fmt.Errorf("%q cannot be kept: a parameter must be a single line", value)
	}
	b, err := m.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b, err = []byte(heading), nil
	}
	if err != nil {
		return false, err
	}
	var out strings.Builder
	found := false
	for line := range strings.Lines(string(b)) {
		e, ok := parse(line)
		if !ok || e.Name != name {
			out.WriteString(line)
			continue
		}
		if found = true; Same(e.Value, value) {
			out.WriteString(line)
			continue
		}
		changed = true
		fmt.Fprintf(&out, "%s = %s\n", name, value)
	}
	if !found {
		changed = true
		if s := out.String(); s != "" && !strings.HasSuffix(s, "\n") {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "%s = %s\n", name, value)
	}
	if !changed {
		return false, nil
	}
	return true, m.WriteFile(file, []byte(out.String()))
}

// DefaultFile is the default file of parameters.
func DefaultFile(m *host.Machine) string {
	if m.IsDir("/run/systemd/system") {
		return "/etc/sysctl.d/99-salt.conf"
	}
	return "/etc/sysctl.conf"
}
