package key

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/target"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// states are in the order of Salt's directories.
var states = []keystore.State{keystore.Accepted, keystore.Pending, keystore.Rejected, keystore.Denied}

// listed returns the states selected by an argument of --list.
func listed(arg string) ([]keystore.State, bool) {
	for prefix, st := range map[string][]keystore.State{
		"acc": {keystore.Accepted}, "pre": {keystore.Pending}, "un": {keystore.Pending},
		"rej": {keystore.Rejected}, "den": {keystore.Denied}, "all": states,
	} {
		if strings.HasPrefix(arg, prefix) {
			return st, true
		}
	}
	return nil, false
}

// ids are the ids of one state.
type ids struct {
	state keystore.State
	ids   []string
}

// byDirectory converts ids into the data to show: directory -> list.
func byDirectory(all []ids) *value.Dict {
	d := value.NewDict(len(all))
	for _, s := range all {
		d.Set(s.state.DirName(), value.Strings(s.ids))
	}
	return d
}

func (p *program) list(arg string) error {
	keys, err := p.keys.List()
	if err != nil {
		return err
	}
	which, _ := listed(arg)
	var out []ids
	for _, st := range which {
		out = append(out, ids{st, keys[st]})
	}
	return p.display(byDirectory(out))
}

// match returns the ids that match a glob or a comma-separated list, by state; states without
// matches are left out.
func (p *program) match(pattern string) ([]ids, error) {
	keys, err := p.keys.List()
	if err != nil {
		return nil, err
	}
	fits := matcher(pattern)
	var out []ids
	for _, st := range states {
		if found := slices.DeleteFunc(slices.Clone(keys[st]), func(id string) bool { return !fits(id) }); len(found) > 0 {
			out = append(out, ids{st, found})
		}
	}
	return out, nil
}

func matcher(pattern string) func(string) bool {
	var globs []target.Glob
	for word := range strings.SplitSeq(pattern, ",") {
		globs = append(globs, target.ParseGlob(word))
	}
	return func(name string) bool {
		return slices.ContainsFunc(globs, func(g target.Glob) bool { return g.Match(name) })
	}
}

func (p *program) print(pattern string) error {
	return p.each(pattern, func(pem string) string { return pem })
}

// finger shows fingerprints, including those of the master's own keys.
func (p *program) finger(pattern string) error {
	data, err := p.collect(pattern, p.fingerprint)
	if err != nil {
		return err
	}
	local, err := p.localKeys(pattern)
	if err != nil {
		return err
	}
	if local.Len() > 0 {
		data.Set("local", local)
	}
	p.noMatch(pattern, data)
	return p.display(data)
}

func (p *program) fingerprint(pem string) string {
	return crypt.Fingerprint([]byte(pem), p.conf.HashType)
}

func (p *program) each(pattern string, show func(pem string) string) error {
	data, err := p.collect(pattern, show)
	if err != nil {
		return err
	}
	p.noMatch(pattern, data)
	return p.display(data)
}

// noMatch says that a pattern matches nothing, which Salt shows as an empty result.
func (p *program) noMatch(pattern string, data *value.Dict) {
	if data.Len() == 0 {
		p.env.Errorf("The key glob '%s' does not match any keys.", pattern)
	}
}

// collect returns directory -> id -> show(key).
func (p *program) collect(pattern string, show func(pem string) string) (*value.Dict, error) {
	found, err := p.match(pattern)
	if err != nil {
		return nil, err
	}
	data := value.NewDict(len(found))
	for _, s := range found {
		keys := value.NewDict(len(s.ids))
		for _, id := range s.ids {
			pem, err := p.keys.Read(s.state, id)
			if err != nil {
				return nil, err
			}
			keys.Set(id, show(pem))
		}
		data.Set(s.state.DirName(), keys)
	}
	return data, nil
}

// localKeys returns the fingerprints of the master's own key files.
func (p *program) localKeys(pattern string) (*value.Dict, error) {
	entries, err := os.ReadDir(p.keys.Dir())
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		return strings.Compare(strings.ToLower(a.Name()), strings.ToLower(b.Name()))
	})
	fits := matcher(pattern)
	d := value.NewDict(0)
	for _, e := range entries {
		name := e.Name()
		if !strings.HasSuffix(name, ".pem") && !strings.HasSuffix(name, ".pub") || !fits(name) {
			continue
		}
		pem, err := os.ReadFile(filepath.Join(p.keys.Dir(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d.Set(name, p.fingerprint(string(pem)))
	}
	return d, nil
}
