package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Repo is a line of apt's sources, or its equivalent in a deb822 file.
type Repo struct {
	Type          string // "deb" or "deb-src"
	URI, Dist     string
	Comps         []string
	Architectures []string
	SignedBy      string
	Options       []string // other options: name=value
	Disabled      bool
	Comment       string // comment at the end of the line
	File          string // path of the file
	Line          string // the original line without its end; generated for deb822
	deb822        bool
}

const mainSources = "/etc/apt/sources.list"

// ErrNoRepo is the error of ParseRepo for an invalid line.
var ErrNoRepo = errors.New("not a line of apt's sources")

// ParseRepo reads a line such as
// "deb [arch=amd64 signed-by=/x.gpg] http://a b main contrib # words".
func ParseRepo(line string) (Repo, error) {
	r := Repo{Line: strings.TrimRight(line, "\n"), File: mainSources}
	text := strings.TrimSpace(line)
	for strings.HasPrefix(text, "#") {
		r.Disabled = true
		text = strings.TrimSpace(text[1:])
	}
	if i := strings.IndexByte(text, '#'); i > 0 {
		r.Comment = strings.TrimSpace(text[i+1:])
		text = text[:i]
	}
	invalid := fmt.Errorf("%q is %w", line, ErrNoRepo)
	head, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if r.Type = head; head != "deb" && head != "deb-src" {
		return r, invalid
	}
	rest = strings.TrimSpace(rest)
	if strings.HasPrefix(rest, "[") {
		opts, after, ok := strings.Cut(rest[1:], "]")
		if !ok {
			return r, invalid
		}
		r.readOptions(strings.Fields(opts))
		rest = after
	}
	f := strings.Fields(rest)
	if len(f) < 2 || !strings.Contains(f[0], ":") {
		return r, invalid
	}
	r.URI, r.Dist, r.Comps = f[0], f[1], f[2:]
	return r, nil
}

func (r *Repo) readOptions(opts []string) {
	for _, o := range opts {
		switch k, v, _ := strings.Cut(o, "="); k {
		case "arch":
			r.Architectures = strings.Split(v, ",")
		case "signed-by":
			r.SignedBy = v
		default:
			r.Options = append(r.Options, o)
		}
	}
}

// String returns the equivalent line.
func (r Repo) String() string {
	var opts []string
	if len(r.Architectures) > 0 {
		opts = append(opts, "arch="+strings.Join(r.Architectures, ","))
	}
	if r.SignedBy != "" {
		opts = append(opts, "signed-by="+r.SignedBy)
	}
	opts = append(opts, r.Options...)
	words := []string{r.Type}
	if r.Disabled {
		words = []string{"#", r.Type}
	}
	if len(opts) > 0 {
		words = append(words, "["+strings.Join(opts, " ")+"]")
	}
	words = append(append(words, r.URI, r.Dist), r.Comps...)
	if r.Comment != "" {
		words = append(words, "#"+r.Comment)
	}
	return strings.Join(words, " ")
}

// Same reports whether both describe the same distribution of the same
// repository.
func (r Repo) Same(o Repo) bool {
	return r.Type == o.Type && strings.TrimRight(r.URI, "/") == strings.TrimRight(o.URI, "/") && r.Dist == o.Dist
}

// Repos returns the repositories of all files, in the order of the files.
func (a apt) Repos() ([]Repo, error) {
	var all []Repo
	for _, file := range a.sourceFiles() {
		text, err := a.m.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(file, ".sources") {
			all = append(all, deb822(string(text), file)...)
			continue
		}
		for line := range strings.SplitSeq(string(text), "\n") {
			if r, err := ParseRepo(line); err == nil {
				r.File = file
				all = append(all, r)
			}
		}
	}
	return all, nil
}

func (a apt) sourceFiles() []string {
	files := []string{mainSources}
	const dir = "/etc/apt/sources.list.d"
	for _, suffix := range []string{".list", ".sources"} {
		for _, name := range a.m.List(dir) {
			if strings.HasSuffix(name, suffix) {
				files = append(files, filepath.Join(dir, name))
			}
		}
	}
	return files
}

// deb822 parses entries, each equivalent to one or more lines.
func deb822(text, file string) []Repo {
	var all []Repo
	for entry := range strings.SplitSeq(text, "\n\n") {
		var kept []string
		for line := range strings.SplitSeq(entry, "\n") {
			if !strings.HasPrefix(line, "#") {
				kept = append(kept, line)
			}
		}
		f := fields(strings.Join(kept, "\n"))
		for _, typ := range strings.Fields(f["Types"]) {
			for _, uri := range strings.Fields(f["URIs"]) {
				for _, dist := range strings.Fields(f["Suites"]) {
					r := Repo{Type: typ, URI: uri, Dist: dist, Comps: strings.Fields(f["Components"]), Architectures: strings.Fields(f["Architectures"]),
						SignedBy: strings.TrimSpace(f["Signed-By"]), Disabled: strings.EqualFold(f["Enabled"], "no"), File: file, deb822: true}
					if strings.Contains(r.SignedBy, "\n") {
						r.SignedBy = "" // an inline key, not the name of a file
					}
					r.Line = r.String()
					all = append(all, r)
				}
			}
		}
	}
	return all
}

// SetRepo replaces old, which Repos returned, by a repository, or appends it to
// its file if old is nil.
func (a apt) SetRepo(old *Repo, r Repo) error {
	switch {
	case old != nil && old.deb822:
		return a.changeStanza(*old, func(s stanza) []stanza { return []stanza{s.means(r)} })
	case old == nil && strings.HasSuffix(r.File, ".sources"):
		return a.addStanza(r)
	}
	file := r.File
	if old != nil {
		file = old.File
	}
	lines, err := a.sourceLines(file)
	if err != nil {
		return err
	}
	if old == nil {
		return a.writeSources(file, append(lines, r.String()))
	}
	for i, line := range lines {
		if line == old.Line {
			lines[i] = r.String()
			return a.writeSources(file, lines)
		}
	}
	return fmt.Errorf("%s changed meanwhile", file)
}

// RemoveRepo removes the line of a repository that Repos returned. A file of
// sources.list.d without repositories is removed.
func (a apt) RemoveRepo(old Repo) error {
	if old.deb822 {
		return a.changeStanza(old, func(stanza) []stanza { return nil })
	}
	lines, err := a.sourceLines(old.File)
	if err != nil {
		return err
	}
	i := slices.Index(lines, old.Line)
	if i < 0 {
		return fmt.Errorf("%s changed meanwhile", old.File)
	}
	lines = slices.Delete(lines, i, i+1)
	left := slices.ContainsFunc(lines, func(line string) bool { _, err := ParseRepo(line); return err == nil })
	if !left && old.File != mainSources {
		return os.Remove(a.m.Path(old.File))
	}
	return a.writeSources(old.File, lines)
}

func (a apt) sourceLines(file string) ([]string, error) {
	b, err := a.m.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(b) == 0 {
		return nil, nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), nil
}

func (a apt) writeSources(file string, lines []string) error {
	if !strings.HasPrefix(file, "/") {
		return fmt.Errorf("the file of a repository needs a full path, not %q", file)
	}
	return a.m.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"))
}

// Apt has the methods specific to Debian's package manager.
type Apt = apt

// AptOf returns a manager as Apt if it is Debian's.
func AptOf(m Manager) (Apt, bool) {
	a, ok := m.(apt)
	return a, ok
}
