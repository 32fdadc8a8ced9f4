// Package hostsfile reads and edits the file that names addresses, as
// /etc/hosts. What it does not change stays as it is, comments too.
package hostsfile

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"brine/internal/host"
)

// Line is a line of the file. An address may have several.
type Line struct {
	IP      string // "" for comments and empty lines
	Names   []string
	Comment string // without the mark
	raw     string
	changed bool
}

// File is the content of a hosts file.
type File struct {
	Lines []Line
	m     *host.Machine
	path  string
}

// Read reads a file; one that is not there is empty.
func Read(m *host.Machine, path string) (*File, error) {
	f := &File{m: m, path: path}
	b, err := m.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for raw := range strings.Lines(string(b)) {
		f.Lines = append(f.Lines, parse(strings.TrimRight(raw, "\r\n")))
	}
	return f, nil
}

func parse(raw string) Line {
	l := Line{raw: raw}
	text, comment, _ := strings.Cut(raw, "#")
	l.Comment = strings.TrimSpace(comment)
	if w := strings.Fields(text); len(w) > 0 {
		l.IP, l.Names = w[0], w[1:]
	}
	return l
}

func (l Line) String() string {
	if !l.changed {
		return l.raw
	}
	text := l.IP + "\t\t" + strings.Join(l.Names, " ")
	if l.Comment != "" {
		text += "\t\t# " + l.Comment
	}
	return text
}

// Names returns all names of an address.
func (f *File) Names(ip string) []string {
	var names []string
	for _, l := range f.Lines {
		if l.IP == ip {
			names = append(names, l.Names...)
		}
	}
	return names
}

// IP returns the first address of a name, or "".
func (f *File) IP(name string) string {
	for _, l := range f.Lines {
		if slices.Contains(l.Names, name) {
			return l.IP
		}
	}
	return ""
}

// check refuses what would become something else in the file.
func check(words ...string) error {
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\r\n#\x00") {
			return fmt.Errorf("%q is no name or address of a host", w)
		}
	}
	return nil
}

// Set makes these all the names of an address; without names the address goes.
func (f *File) Set(ip string, names []string, comment string) error {
	if err := check(append([]string{ip}, names...)...); err != nil {
		return err
	}
	if strings.ContainsAny(comment, "\r\n\x00") {
		return errors.New("a comment is one line")
	}
	done := len(names) == 0
	var kept []Line
	for _, l := range f.Lines {
		if l.IP != ip {
			kept = append(kept, l)
		} else if !done {
			kept = append(kept, Line{IP: ip, Names: names, Comment: comment, changed: true})
			done = true
		}
	}
	if !done {
		kept = append(kept, Line{IP: ip, Names: names, Comment: comment, changed: true})
	}
	f.Lines = kept
	return nil
}

// Add gives an address another name.
func (f *File) Add(ip, name string) error {
	if err := check(ip, name); err != nil {
		return err
	}
	if slices.Contains(f.Names(ip), name) {
		return nil
	}
	for i := range f.Lines {
		if l := &f.Lines[i]; l.IP == ip {
			l.Names, l.changed = append(l.Names, name), true
			return nil
		}
	}
	f.Lines = append(f.Lines, Line{IP: ip, Names: []string{name}, changed: true})
	return nil
}

// Remove takes a name from an address, which goes with its last one.
func (f *File) Remove(ip, name string) {
	var kept []Line
	for _, l := range f.Lines {
		if l.IP == ip && slices.Contains(l.Names, name) {
			l.Names = slices.DeleteFunc(slices.Clone(l.Names), func(n string) bool { return n == name })
			if l.changed = true; len(l.Names) == 0 {
				continue
			}
		}
		kept = append(kept, l)
	}
	f.Lines = kept
}

// Rename gives all addresses that have a name another one in its place.
func (f *File) Rename(old, name string) error {
	if err := check(name); err != nil {
		return err
	}
	for i := range f.Lines {
		l := &f.Lines[i]
		if at := slices.Index(l.Names, old); at >= 0 && old != name {
			l.Names = slices.Clone(l.Names)
			l.Names[at], l.changed = name, true
		}
	}
	return nil
}

// SetComment sets the comment of an address and reports whether there is one
// in the file.
func (f *File) SetComment(ip, comment string) bool {
	comment = strings.Join(strings.Fields(comment), " ")
	found := false
	for i := range f.Lines {
		if l := &f.Lines[i]; l.IP == ip {
			found = true
			if l.Comment != comment {
				l.Comment, l.changed = comment, true
			}
		}
	}
	return found
}

// Write writes the file.
func (f *File) Write() error {
	var b strings.Builder
	for _, l := range f.Lines {
		b.WriteString(l.String() + "\n")
	}
	return f.m.WriteFile(f.path, []byte(b.String()))
}
