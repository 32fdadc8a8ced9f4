package packages

import (
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/packages"
	"brine/internal/py/value"
)

// keeper returns the package manager if its repositories are in files, and the
// directories that the keyword basedir names.
func (p pkg) keeper(c *fn.Call, kw *value.Dict) (k packages.RepoKeeper, directories []string, ok bool) {
	k, ok = p.manager(c).(packages.RepoKeeper)
	if v := kw.At("basedir"); value.Truth(v) {
		directories = value.Words(v)
	}
	return k, directories, ok
}

// shownSection returns the options of a repository, and its file if file is
// set.
func shownSection(s *packages.RepoSection, file bool) *value.Dict {
	d := value.NewDict(len(s.Keys) + 2)
	for _, k := range s.Keys {
		d.Set(k, s.Values[k])
	}
	if len(s.Comments) > 0 {
		d.Set("comments", value.Strings(s.Comments))
	}
	if file {
		d.Set("file", s.File)
	}
	return d
}

// findSection returns a repository and the file that contains it.
func findSection(k packages.RepoKeeper, directories []string, id string) (*packages.RepoFile, *packages.RepoSection) {
	for _, f := range k.RepoFiles(directories) {
		if s := f.Section(id); s != nil {
			return f, s
		}
	}
	return nil, nil
}

func listSections(k packages.RepoKeeper, directories []string) *value.Dict {
	out := value.NewDict(8)
	for _, f := range k.RepoFiles(directories) {
		for _, s := range f.Sections {
			out.Set(s.ID, shownSection(s, true))
		}
	}
	return out
}

// notOptions lists keywords of pkg.mod_repo that are not written to the file.
var notOptions = []string{"saltenv", "basedir", "strict_config", "comments", "key_url", "key_text", "keyid", "keyserver", "refresh", "allow_insecure_key",
	"aptkey", "repo"}

// optionText formats an option for the file.
func optionText(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "1"
		}
		return "0"
	case *value.List:
		return strings.Join(namesArgs{Names: v.Items}.texts(), "\n")
	}
	return value.Str(v)
}

func modSection(k packages.RepoKeeper, directories []string, id string, kw *value.Dict) (*value.Dict, error) {
	if value.Truth(kw.At("mirrorlist")) && value.Truth(kw.At("baseurl")) {
		return nil, fn.Invalidf("Only one of 'mirrorlist' and 'baseurl' can be specified")
	}
	if strings.HasPrefix(id, "copr:") {
		return nil, fn.Invalidf("copr repositories are not supported: give the repository's own name and baseurl")
	}
	f, s := findSection(k, directories, id)
	if s == nil {
		if !value.Truth(kw.At("name")) {
			return nil, fn.Invalidf("The repo does not exist and needs to be created, but a name was not given")
		}
		if !value.Truth(kw.At("baseurl")) && !value.Truth(kw.At("mirrorlist")) {
			return nil, fn.Invalidf("The repo does not exist and needs to be created, but either a baseurl or a mirrorlist needs to be given")
		}
		var err error
		if f, err = k.NewRepoFile(directories, id); err != nil {
			return nil, expected(err)
		}
		s = &packages.RepoSection{ID: id, Values: map[string]string{}, File: f.Path}
		f.Sections = append(f.Sections, s)
	}
	if err := changeSection(s, kw); err != nil {
		return nil, err
	}
	if err := k.WriteRepoFile(f); err != nil {
		return nil, expected(err)
	}
	sections := value.NewDict(len(f.Sections))
	for _, s := range f.Sections {
		sections.Set(s.ID, shownSection(s, false))
	}
	return value.DictOf(f.Path, sections), nil
}

// changeSection sets options, and removes those without a value.
func changeSection(s *packages.RepoSection, kw *value.Dict) error {
	for key, v := range kw.All() {
		k := strings.ToLower(value.Str(key))
		switch {
		case slices.Contains(notOptions, k) || strings.HasPrefix(k, "__"):
			continue
		case value.Truth(v) || v == false || value.Equal(v, int64(0)):
			text := optionText(v)
			if strings.ContainsAny(k, "=\n[]") {
				return fn.Invalidf("%q is no option of a repository", k)
			}
			s.Set(k, text)
		case k == "name":
			return fn.Invalidf("The repo name cannot be deleted")
		default:
			s.Delete(k)
		}
	}
	if v, ok := kw.Get("comments"); ok {
		s.Comments = nil
		for _, c := range value.Words(v) {
			s.Comments = append(s.Comments, strings.TrimSpace(strings.TrimLeft(c, "# ")))
		}
	}
	if value.Truth(kw.At("mirrorlist")) {
		s.Delete("baseurl")
	} else if value.Truth(kw.At("baseurl")) {
		s.Delete("mirrorlist")
	}
	if s.Values["baseurl"] == "" && s.Values["mirrorlist"] == "" && s.Values["metalink"] == "" {
		return fn.Invalidf("Cannot delete baseurl without specifying mirrorlist")
	}
	return nil
}

func delSection(k packages.RepoKeeper, directories []string, id string) (string, error) {
	f, s := findSection(k, directories, id)
	if s == nil {
		return "Error: the " + id + " repo does not exist", nil
	}
	f.Sections = slices.DeleteFunc(f.Sections, func(o *packages.RepoSection) bool { return o == s })
	if err := k.WriteRepoFile(f); err != nil {
		return "", expected(err)
	}
	if len(f.Sections) == 0 {
		return "File " + f.Path + " containing repo " + id + " has been removed", nil
	}
	return "Repo " + id + " has been removed from " + f.Path, nil
}
