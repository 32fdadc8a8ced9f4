// Package hostsfile reads and edits hosts files such as /etc/hosts. It writes
// as Salt's module hosts does: a new name or comment reformats the whole file,
// other edits leave other lines unchanged.
package hostsfile

import (
	"cmp"
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
	Comment string // without the leading #
	raw     string
}

// File is the content of a hosts file.
type File struct {
	Lines []Line
	m     *host.Machine
	path  string
}

// Read reads a file; a missing file is empty.
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

func (l Line) String() string { return l.raw }

// lineOf returns a line formatted like Salt's new lines.
func lineOf(ip string, names []string, comment string) Line {
	raw := ip + "\t\t" + strings.Join(names, " ")
	if comment != "" {
		raw += "\t\t# " + comment
	}
	return Line{IP: ip, Names: names, Comment: comment, raw: strings.TrimSpace(raw)}
}

// order merges the lines of each address, and drops empty lines.
func (f *File) order() {
	at := map[string]int{}
	var kept []Line
	for _, l := range f.Lines {
		i, seen := at[l.IP]
		switch text := strings.TrimSpace(l.raw); {
		case l.IP == "" && text == "":
		case l.IP == "":
			kept = append(kept, Line{Comment: l.Comment, raw: text})
		case seen:
			names, comment := append(kept[i].Names, l.Names...), kept[i].Comment
			if l.Comment != "" {
				comment = l.Comment
			}
			kept[i] = lineOf(l.IP, names, comment)
		default:
			at[l.IP] = len(kept)
			kept = append(kept, lineOf(l.IP, slices.Clone(l.Names), l.Comment))
		}
	}
	f.Lines = kept
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

// check rejects values that would change the structure of the file.
func check(words ...string) error {
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\r\n#\x00") {
			return fmt.Errorf("%q is not a host name or address", w)
		}
	}
	return nil
}

// Set replaces the names of an address; without names it removes the address.
func (f *File) Set(ip string, names []string, comment string) error {
	if err := check(append([]string{ip}, names...)...); err != nil {
		return err
	}
	if strings.ContainsAny(comment, "\r\n\x00") {
		return errors.New("a comment must be a single line")
	}
	done := len(names) == 0
	var kept []Line
	for _, l := range f.Lines {
		if l.IP != ip {
			kept = append(kept, l)
		} else if !done {
			kept = append(kept, lineOf(ip, names, comment))
			done = true
		}
	}
	if !done {
		kept = append(kept, lineOf(ip, names, comment))
	}
	f.Lines = kept
	return nil
}

// Add adds a name to an address.
func (f *File) Add(ip, name string) error {
	if err := check(ip, name); err != nil {
		return err
	}
	if slices.Contains(f.Names(ip), name) {
		return nil
	}
	f.order()
	for i, l := range f.Lines {
		if l.IP == ip {
			f.Lines[i] = lineOf(ip, append(l.Names, name), l.Comment)
			return nil
		}
	}
	f.Lines = append(f.Lines, lineOf(ip, []string{name}, ""))
	return nil
}

// Remove removes a name of an address, and the address with its last name.
func (f *File) Remove(ip, name string) {
	if !slices.Contains(f.Names(ip), name) {
		return
	}
	var kept []Line
	for _, l := range f.Lines {
		if l.IP != ip {
			kept = append(kept, l)
			continue
		}
		l.Names = slices.DeleteFunc(slices.Clone(l.Names), func(n string) bool { return n == name })
		if len(l.Names) == 0 {
			continue
		}
		l.raw = ip + "\t\t" + strings.Join(l.Names, " ") + " "
		if l.Comment != "" {
			l.raw += "# " + l.Comment
		}
		kept = append(kept, l)
	}
	f.Lines = kept
}

// Rename replaces a name of all addresses.
func (f *File) Rename(old, name string) error {
	if err := check(name); err != nil {
		return err
	}
	for i := range f.Lines {
		l := &f.Lines[i]
		if at := slices.Index(l.Names, old); at >= 0 && old != name {
			names := slices.Clone(l.Names)
			names[at] = name
			*l = lineOf(l.IP, names, l.Comment)
		}
	}
	return nil
}

// SetComment sets the comment of an address and reports whether there is one
// in the file.
func (f *File) SetComment(ip, comment string) bool {
	comment = strings.Join(strings.Fields(comment), " ")
	now, found := "", false
	for _, l := range f.Lines {
		if l.IP == ip {
			found = true
			now = cmp.Or(l.Comment, now)
		}
	}
	if !found || now == comment {
		return found
	}
	f.order()
	for i, l := range f.Lines {
		if l.IP == ip {
			f.Lines[i] = lineOf(ip, l.Names, comment)
		}
	}
	return true
}

// Write writes the file.
func (f *File) Write() error {
	var b strings.Builder
	for _, l := range f.Lines {
		b.WriteString(l.String() + "\n")
	}
	return f.m.WriteFile(f.path, []byte(b.String()))
}
