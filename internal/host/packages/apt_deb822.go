package packages

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// stanza holds the lines of one entry of a deb822 file, comments included.
type stanza []string

// stanzas splits a file into entries.
func stanzas(text string) []stanza {
	var all []stanza
	var now stanza
	for line := range strings.SplitSeq(text, "\n") {
		if strings.TrimSpace(line) != "" {
			now = append(now, line)
			continue
		}
		if len(now) > 0 {
			all = append(all, now)
		}
		now = nil
	}
	if len(now) > 0 {
		all = append(all, now)
	}
	return all
}

// field returns the position of a field and its number of lines, 0 if it is
// missing.
func (s stanza) field(name string) (at, lines int) {
	for i, line := range s {
		key, _, ok := strings.Cut(line, ":")
		if !ok || !strings.EqualFold(strings.TrimSpace(key), name) || line[0] == '#' {
			continue
		}
		lines = 1
		for i+lines < len(s) && strings.ContainsRune(" \t#", rune(s[i+lines][0])) {
			lines++
		}
		return i, lines
	}
	return 0, 0
}

func (s stanza) words(name string) []string {
	at, n := s.field(name)
	if n == 0 {
		return nil
	}
	_, text, _ := strings.Cut(s[at], ":")
	for _, line := range s[at+1 : at+n] {
		if line[0] != '#' {
			text += " " + line
		}
	}
	return strings.Fields(text)
}

// with returns the entry with other values of a field; none removes the field.
func (s stanza) with(name string, words ...string) stanza {
	at, n := s.field(name)
	if n > 0 && slices.Equal(s.words(name), words) {
		return s
	}
	var line []string
	if len(words) > 0 {
		line = []string{name + ": " + strings.Join(words, " ")}
	}
	if n == 0 {
		return append(slices.Clone(s), line...)
	}
	return slices.Concat(s[:at], line, s[at+n:])
}

// means returns the entry changed to describe r. It keeps fields that r cannot
// express, such as an inline key.
func (s stanza) means(r Repo) stanza {
	s = s.with("Types", r.Type).with("URIs", r.URI).with("Suites", r.Dist).with("Components", r.Comps...).with("Architectures", r.Architectures...)
	if r.SignedBy != "" {
		s = s.with("Signed-By", r.SignedBy)
	}
	if off := slices.ContainsFunc(s.words("Enabled"), func(w string) bool { return strings.EqualFold(w, "no") }); off != r.Disabled {
		s = s.with("Enabled", map[bool]string{true: "no", false: "yes"}[r.Disabled])
	}
	return s
}

// without returns the entries for all but one of the repositories of an entry.
func (s stanza) without(r Repo) []stanza {
	var rest []stanza
	for _, f := range []struct{ name, own string }{{"Types", r.Type}, {"URIs", r.URI}, {"Suites", r.Dist}} {
		others := slices.DeleteFunc(s.words(f.name), func(w string) bool { return w == f.own })
		if len(others) > 0 {
			rest = append(rest, s.with(f.name, others...))
		}
		s = s.with(f.name, f.own)
	}
	return rest
}

// changeStanza replaces old in its file by an entry, or removes it. The other
// repositories of its entry stay.
func (a apt) changeStanza(old Repo, changed func(stanza) []stanza) error {
	text, err := a.m.ReadFile(old.File)
	if err != nil {
		return err
	}
	var out []stanza
	found := false
	for _, s := range stanzas(string(text)) {
		same := func(r Repo) bool { return r.Line == old.Line }
		if found || !slices.ContainsFunc(deb822(strings.Join(s, "\n"), old.File), same) {
			out = append(out, s)
			continue
		}
		found = true
		out = append(append(out, s.without(old)...), changed(s)...)
	}
	if !found {
		return fmt.Errorf("%s changed meanwhile", old.File)
	}
	return a.writeStanzas(old.File, out)
}

// writeStanzas writes a file, or removes it if it has no repository.
func (a apt) writeStanzas(file string, all []stanza) error {
	if !slices.ContainsFunc(all, func(s stanza) bool { return len(s.words("Types")) > 0 }) {
		return os.Remove(a.m.Path(file))
	}
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = strings.Join(s, "\n") + "\n"
	}
	return a.m.WriteFile(file, []byte(strings.Join(texts, "\n")))
}

// addStanza appends a repository to a deb822 file.
func (a apt) addStanza(r Repo) error {
	if len(r.Options) > 0 {
		return fmt.Errorf("the options %s are not known for %s: give the repository a file that ends with .list", strings.Join(r.Options, ", "), r.File)
	}
	return a.writeStanzas(r.File, append(stanzas(a.m.Text(r.File)), stanza{}.means(r)))
}
