package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// RepoSection is a repository of yum or dnf: a section of a file that ends in
// .repo.
type RepoSection struct {
	ID string
	// Keys are the names of the options in order, Values their values; a value of
	// several lines contains line breaks.
	Keys   []string
	Values map[string]string
	// Comments are the comment lines in the section.
	Comments []string
	File     string
}

// Set sets an option.
func (s *RepoSection) Set(key, v string) {
	if _, ok := s.Values[key]; !ok {
		s.Keys = append(s.Keys, key)
	}
	s.Values[key] = v
}

// Delete removes an option.
func (s *RepoSection) Delete(key string) {
	delete(s.Values, key)
	s.Keys = slices.DeleteFunc(s.Keys, func(k string) bool { return k == key })
}

// RepoFile is a file of repositories.
type RepoFile struct {
	Path     string
	Header   []string // comment lines before the first section
	Sections []*RepoSection
}

// Section returns the section of a repository, or nil.
func (f *RepoFile) Section(id string) *RepoSection {
	for _, s := range f.Sections {
		if s.ID == id {
			return s
		}
	}
	return nil
}

func parseRepoFile(path, text string) *RepoFile {
	f := &RepoFile{Path: path}
	var s *RepoSection
	last := ""
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		key, v, isOption := strings.Cut(trimmed, "=")
		switch {
		case trimmed == "":
		case trimmed[0] == '#' && s == nil:
			f.Header = append(f.Header, trimmed)
		case trimmed[0] == '#':
			s.Comments = append(s.Comments, strings.TrimSpace(trimmed[1:]))
		case trimmed[0] == '[' && strings.HasSuffix(trimmed, "]"):
			s = &RepoSection{ID: trimmed[1 : len(trimmed)-1], Values: map[string]string{}, File: path}
			f.Sections = append(f.Sections, s)
			last = ""
		case s == nil:
		case line[0] == ' ' || line[0] == '\t':
			if last != "" {
				s.Values[last] += "\n" + trimmed
			}
		case isOption:
			last = strings.ToLower(strings.TrimSpace(key))
			s.Set(last, strings.TrimSpace(v))
		}
	}
	return f
}

// String returns the text of the file.
func (f *RepoFile) String() string {
	var b strings.Builder
	for _, line := range f.Header {
		b.WriteString(line + "\n")
	}
	for _, s := range f.Sections {
		b.WriteString("[" + s.ID + "]\n")
		for _, k := range s.Keys {
			b.WriteString(k + "=" + strings.ReplaceAll(s.Values[k], "\n", "\n ") + "\n")
		}
		for _, c := range s.Comments {
			b.WriteString("# " + c + "\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// RepoKeeper is a manager whose repositories are sections of files.
type RepoKeeper interface {
	// RepoFiles returns the files of repositories in directories, or in those that
	// the configuration names.
	RepoFiles(directories []string) []*RepoFile
	// NewRepoFile returns a file for a new repository.
	NewRepoFile(directories []string, id string) (*RepoFile, error)
	// WriteRepoFile replaces a file, or removes it if it has no sections.
	WriteRepoFile(f *RepoFile) error
}

var _ RepoKeeper = rpm{}

// repoDirs returns the directories of repositories.
func (r rpm) repoDirs(directories []string) []string {
	if len(directories) > 0 {
		return directories
	}
	for _, conf := range []string{"/etc/dnf/dnf.conf", "/etc/yum/yum.conf", "/etc/yum.conf"} {
		for _, line := range r.m.Lines(conf) {
			if k, v, ok := strings.Cut(line, "="); ok && strings.TrimSpace(k) == "reposdir" {
				directories = append(directories, strings.FieldsFunc(v, func(c rune) bool { return c == ',' || c == ' ' })...)
			}
		}
	}
	if len(directories) == 0 {
		directories = []string{"/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d"}
	}
	return directories
}

func (r rpm) RepoFiles(directories []string) []*RepoFile {
	var files []*RepoFile
	for _, dir := range r.repoDirs(directories) {
		for _, name := range r.m.List(dir) {
			if strings.HasSuffix(name, ".repo") {
				path := filepath.Join(dir, name)
				files = append(files, parseRepoFile(path, r.m.Text(path)))
			}
		}
	}
	return files
}

func (r rpm) NewRepoFile(directories []string, id string) (*RepoFile, error) {
	if id == "" || strings.ContainsAny(id, "/\n[]\x00") {
		return nil, fmt.Errorf("%q is not a repository name", id)
	}
	all := r.repoDirs(directories)
	for _, dir := range all {
		if r.m.IsDir(dir) {
			return &RepoFile{Path: filepath.Join(dir, id+".repo")}, nil
		}
	}
	return nil, fmt.Errorf("the repo does not exist and needs to be created, but none of the following basedir directories exist: %s", strings.Join(all, ", "))
}

func (r rpm) WriteRepoFile(f *RepoFile) error {
	var err error
	if len(f.Sections) == 0 {
		err = os.Remove(r.m.Path(f.Path))
	} else {
		err = r.m.WriteFile(f.Path, []byte(f.String()))
	}
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", f.Path, err)
	}
	return nil
}
