// Package inifile edits files of sections and options, such as
//
//	[section]
//	option = value
//
// and keeps their comments, as Salt's module ini does. A commented-out option
// is replaced by that option when it is set.
package inifile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/py/value"
)

// maxFile bounds the size of a file, in bytes.
const maxFile = 16 << 20

// entry is an option, a comment (its key begins with #), or a section.
type entry struct {
	key, text string
	section   *Section
}

// Section is a part of a file: its options in order.
type Section struct {
	name    string
	entries []entry
}

// File is a file of sections. Its own options stand before the first section.
type File struct {
	Section
	path string
	// separator separates an option and its value.
	separator string
	// tight omits spaces around the separator.
	tight  bool
	option *regexp.Regexp
	there  bool
}

var (
	header   = regexp.MustCompile(`(?m)^\s*\[(.+?)\]\s*$`)
	comment  = regexp.MustCompile(`^\s*(#|;)`)
	indented = regexp.MustCompile(`^\s+`)
)

// Read reads a file; a missing file is empty. separator is usually "=".
func Read(path, separator string, tight bool) (*File, error) {
	f := &File{Section: Section{name: path}, path: path, separator: separator, tight: tight}
	f.option = regexp.MustCompile(`^(\s*)(.+?)\s*` + regexp.QuoteMeta(separator) + `\s*(.*)`)
	in, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxFile:
		return nil, errors.New(path + " is larger than 16 MiB")
	}
	f.there = true
	f.parse(strings.TrimSuffix(strings.ReplaceAll(string(b), "\r\n", "\n"), "\n"))
	return f, nil
}

func (f *File) parse(text string) {
	heads := header.FindAllStringSubmatchIndex(text, -1)
	end := len(text)
	if len(heads) > 0 {
		end = heads[0][0]
	}
	f.parseOptions(&f.Section, text[:end])
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		s := &Section{name: text[h[2]:h[3]]}
		f.parseOptions(s, text[h[1]:end])
		if old := f.Find(s.name); old != nil { // repeated: the last one counts
			for _, e := range s.entries {
				f.put(old, e)
			}
			continue
		}
		f.entries = append(f.entries, entry{key: s.name, section: s})
	}
}

func (f *File) parseOptions(s *Section, text string) {
	if text = strings.Trim(text, "\n"); text == "" {
		return
	}
	comments, unknown, indent := 0, 0, ""
	for line := range strings.SplitSeq(text, "\n") {
		switch in := strings.ReplaceAll(indented.FindString(line), "\t", "    "); {
		case comment.MatchString(line):
			comments++
			f.put(s, entry{key: "#comment" + strconv.Itoa(comments), text: line})
		case in > indent: // continues the previous value
			if n := len(s.entries); n > 0 {
				s.entries[n-1].text += "\n" + line
			}
		default:
			m := f.option.FindStringSubmatch(line)
			if m == nil {
				unknown++
				f.put(s, entry{key: "#unknown" + strconv.Itoa(unknown), text: line})
				continue
			}
			indent = strings.ReplaceAll(m[1], "\t", "    ")
			f.put(s, entry{key: m[2], text: m[3]})
		}
	}
}

// put sets an entry, replacing an entry or comment of the same option.
func (f *File) put(s *Section, e entry) {
	if i := s.index(e.key); i >= 0 {
		s.entries[i] = e
		return
	}
	if e.section == nil {
		for i, old := range s.entries {
			if !strings.HasPrefix(old.key, "#comment") {
				continue
			}
			if m := f.option.FindStringSubmatch(strings.TrimLeft(old.text, "#")); m != nil && m[2] == e.key {
				s.entries[i] = e
				return
			}
		}
	}
	s.entries = append(s.entries, e)
}

func (s *Section) index(key string) int {
	return slices.IndexFunc(s.entries, func(e entry) bool { return e.key == key })
}

// Find returns a section of this one, nil if there is none.
func (s *Section) Find(name string) *Section {
	if s == nil {
		return nil
	}
	if i := s.index(name); i >= 0 {
		return s.entries[i].section
	}
	return nil
}

// Option returns the value of an option.
func (s *Section) Option(name string) (text string, ok bool) {
	if s == nil {
		return "", false
	}
	i := s.index(name)
	if i < 0 || s.entries[i].section != nil {
		return "", false
	}
	return s.entries[i].text, true
}

// Dict returns the options and sections, without comments.
func (s *Section) Dict() *value.Dict {
	d := value.NewDict(len(s.entries))
	for _, e := range s.entries {
		switch {
		case strings.HasPrefix(e.key, "#"):
		case e.section != nil:
			d.Set(e.key, e.section.Dict())
		default:
			d.Set(e.key, e.text)
		}
	}
	return d
}

// Remove removes an option or section, and returns its old value: a string, a
// map of options, or nil if there was none.
func (s *Section) Remove(key string) any {
	i := s.index(key)
	if i < 0 {
		return nil
	}
	e := s.entries[i]
	s.entries = slices.Delete(s.entries, i, i+1)
	if e.section != nil {
		return e.section.Dict()
	}
	return e.text
}

// Update sets options: values are strings, or maps of the options of a section.
// It returns the changes, as maps of before and after by option.
func (f *File) Update(with *value.Dict) *value.Dict { return f.update(&f.Section, with) }

func (f *File) update(s *Section, with *value.Dict) *value.Dict {
	changes := value.NewDict(with.Len())
	for k, v := range with.All() {
		key := value.Str(k)
		i := s.index(key)
		sub, isSection := v.(*value.Dict)
		if isSection && i >= 0 && s.entries[i].section != nil {
			if c := f.update(s.entries[i].section, sub); c.Len() > 0 {
				changes.Set(key, c)
			}
			continue
		}
		e, after := entry{key: key, text: value.Str(v)}, any(value.Str(v))
		if isSection {
			e.text, e.section = "", &Section{name: key}
			f.update(e.section, sub)
			after = e.section.Dict()
		}
		var before any
		if i >= 0 {
			if old := s.entries[i]; old.section != nil {
				before = old.section.Dict()
			} else if before = old.text; !isSection && old.text == e.text {
				continue
			}
		}
		f.put(s, e)
		changes.Set(key, value.DictOf("before", before, "after", after))
	}
	return changes
}

// There reports whether the file existed when it was read.
func (f *File) There() bool { return f.there }

// Write replaces the file. A new one gets the mode 0644.
func (f *File) Write() error {
	var b strings.Builder
	f.text(&b, &f.Section)
	as := atomicfile.As{Mode: -1, UID: -1, GID: -1, Durable: true}
	if !f.there {
		as.Mode = 0o644
	}
	return atomicfile.ReplaceAs(f.path, as, func(w io.Writer) error {
		_, err := io.WriteString(w, strings.TrimLeft(b.String(), "\n"))
		return err
	})
}

func (f *File) text(b *strings.Builder, s *Section) {
	sep := f.separator
	switch {
	case strings.Trim(sep, " ") == "":
		sep = " "
	case f.tight:
		sep = strings.TrimSpace(sep)
	default:
		sep = " " + strings.TrimSpace(sep) + " "
	}
	for _, e := range s.entries {
		switch {
		case e.section != nil:
		case strings.HasPrefix(e.key, "#"):
			b.WriteString(e.text + "\n")
		default:
			b.WriteString(e.key + sep + e.text + "\n")
		}
	}
	for _, e := range s.entries {
		if e.section != nil {
			b.WriteString("\n[" + e.section.name + "]\n")
			f.text(b, e.section)
		}
	}
}
