package files

import (
	"context"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host/inifile"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() { units.Declare("ini", iniModule) }

// iniModule returns the states for files with sections and options.
func iniModule() state.Module {
	return state.Module{Name: "ini", Doc: `Keep options and sections in files of such. Comments are kept.`, Funcs: []state.Func{
		state.Of("options_present", iniPresent, `Have options with these values.`),
		state.Of("options_absent", iniAbsent, `Have options not in the file.`),
		state.Of("sections_present", iniSections, `Have sections.`),
		state.Of("sections_absent", iniNoSections, `Have sections not in the file.`),
	}}
}

// iniFile are the arguments for the file that a state manages.
type iniFile struct {
	Name      string `salt:"name" doc:"path of the file"`
	Sections  any    `salt:"sections" doc:"map of sections to their options, and of options that stand before the first section" default:"null"`
	Separator string `salt:"separator" doc:"what stands between an option and its value" default:"="`
	Encoding  any    `salt:"encoding" doc:"encoding of the file: UTF-8" default:"null"`
}

func (a iniFile) read(tight bool) (*inifile.File, error) {
	if name := strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(value.Str(a.Encoding))); a.Encoding != nil && name != "utf8" && name != "ascii" {
		return nil, fn.Errorf("the encoding %s is not supported: the file must be UTF-8", value.Str(a.Encoding))
	}
	f, err := inifile.Read(a.Name, a.Separator, tight)
	if err != nil {
		return nil, fn.Errorf("Unable to open file '%s'. Exception: %w", a.Name, err)
	}
	return f, nil
}

// plan returns the plan to write a file that was changed in memory. would is
// the comment of a test.
func (a iniFile) plan(f *inifile.File, changes *value.Dict, would, none string) state.Plan {
	if would == "" {
		would = none
	}
	if changes.Len() == 0 {
		return state.Plan{Comment: "No anomaly detected", Forecast: &state.Result{Verdict: state.Succeeded, Comment: would}}
	}
	return state.Plan{Forecast: &state.Result{Comment: would}, Steps: []state.Step{{Do: func(context.Context) (state.Change, error) {
		if err := f.Write(); err != nil {
			return state.Change{}, fn.Errorf("Unable to write file '%s'. Exception: %w", a.Name, atomicfile.Cause(err))
		}
		return state.Change{Diff: changes, Comment: "Changes take effect"}, nil
	}}}}
}

// within names a section in a sentence.
func within(section string) string {
	if section == "" {
		return ""
	}
	return " in section " + section
}

type iniPresentArgs struct {
	iniFile
	Strict   bool `salt:"strict" doc:"remove other options of these sections, and other options before the first section" default:"false"`
	NoSpaces bool `salt:"no_spaces" doc:"write no spaces around the separator" default:"false"`
}

func iniPresent(_ context.Context, _ *state.Env, a iniPresentArgs) (state.Plan, error) {
	f, err := a.read(a.NoSpaces)
	if err != nil {
		return state.Plan{}, err
	}
	sections, ok := a.Sections.(*value.Dict)
	if value.Truth(a.Sections) && !ok {
		return state.Plan{}, fn.Errorf("sections must be a map")
	}
	top, would := value.NewDict(2), ""
	for k, v := range sections.All() {
		if _, ok := v.(*value.Dict); !ok {
			if name := value.Str(k); f.Find(name) != nil {
				return state.Plan{}, fn.Errorf("%s is a section of %s: give a map of its options, not %s", name, a.Name, value.Repr(v))
			}
			top.Set(k, v)
		}
	}
	would += compared(&f.Section, top, "")
	before := f.Dict()
	changes := f.Update(top)
	if a.Strict {
		for k, old := range before.All() {
			if _, isSection := old.(*value.Dict); !isSection && !top.Has(k) {
				would += "Removed key " + value.Str(k) + ".\n"
				changes.Set(k, value.DictOf("before", f.Remove(value.Str(k)), "after", nil))
			}
		}
	}
	for k, v := range sections.All() {
		name := value.Str(k)
		body, ok := v.(*value.Dict)
		if !ok {
			continue
		}
		changed := value.NewDict(2)
		if s := f.Find(name); s != nil && a.Strict {
			for key := range s.Dict().All() {
				if !body.Has(key) {
					would += "Deleted key " + value.Str(key) + within(name) + ".\n"
					changed.Set(key, value.DictOf("before", s.Remove(value.Str(key)), "after", nil))
				}
			}
		}
		would += compared(f.Find(name), body, name)
		if more, ok := f.Update(value.DictOf(name, body)).At(name).(*value.Dict); ok {
			changed.Update(more)
		}
		if changed.Len() > 0 {
			changes.Set(name, changed)
		}
	}
	return a.plan(f, changes, would, ""), nil
}

// compared describes which options would change.
func compared(s *inifile.Section, want *value.Dict, name string) (would string) {
	for k, v := range want.All() {
		if now, ok := s.Option(value.Str(k)); ok && now == value.Str(v) {
			would += "Unchanged key " + value.Str(k) + within(name) + ".\n"
		} else {
			would += "Changed key " + value.Str(k) + within(name) + ".\n"
		}
	}
	return would
}

func iniAbsent(_ context.Context, _ *state.Env, a iniFile) (state.Plan, error) {
	f, err := a.read(false)
	if err != nil {
		return state.Plan{}, err
	}
	sections, ok := a.Sections.(*value.Dict)
	if value.Truth(a.Sections) && !ok {
		return state.Plan{}, fn.Errorf("sections must be a map of sections to lists of options")
	}
	changes, would := value.NewDict(2), ""
	for k, v := range sections.All() {
		name := value.Str(k)
		keys, ok := v.(*value.List)
		if !ok { // an option outside of any section
			if old := f.Remove(name); old != nil {
				would += "Deleted key " + name + ".\n"
				changes.Set(name, old)
			} else {
				would += "Key " + name + " does not exist.\n"
			}
			continue
		}
		s, gone := f.Find(name), value.NewDict(2)
		for _, key := range keys.Items {
			text := value.Str(key)
			if _, ok := s.Option(text); !ok {
				would += "Key " + text + within(name) + " does not exist.\n"
				continue
			}
			would += "Deleted key " + text + within(name) + ".\n"
			gone.Set(text, s.Remove(text))
		}
		if gone.Len() > 0 {
			changes.Set(name, gone)
		}
	}
	return a.plan(f, changes, would, "No changes detected."), nil
}

// names returns the names of sections, given as a list or a map.
func (a iniFile) names() []string {
	if d, ok := a.Sections.(*value.Dict); ok {
		var out []string
		for k := range d.All() {
			out = append(out, value.Str(k))
		}
		return out
	}
	return value.Texts(a.Sections)
}

func iniSections(_ context.Context, _ *state.Env, a iniFile) (state.Plan, error) {
	f, err := a.read(false)
	if err != nil {
		return state.Plan{}, err
	}
	missing, would := value.NewDict(2), ""
	for _, name := range a.names() {
		if f.Find(name) != nil {
			would += "Section unchanged " + name + ".\n"
			continue
		}
		would += "Created new section " + name + ".\n"
		missing.Set(name, value.NewDict(0))
	}
	return a.plan(f, f.Update(missing), would, "No changes detected."), nil
}

func iniNoSections(_ context.Context, _ *state.Env, a iniFile) (state.Plan, error) {
	f, err := a.read(false)
	if err != nil {
		return state.Plan{}, err
	}
	changes, would := value.NewDict(2), ""
	for _, name := range a.names() {
		if f.Find(name) == nil {
			would += "Section " + name + " does not exist.\n"
			continue
		}
		would += "Deleted section " + name + ".\n"
		changes.Set(name, f.Remove(name))
	}
	return a.plan(f, changes, would, "No changes detected."), nil
}
