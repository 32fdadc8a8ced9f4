package files

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host/inifile"
	"brine/internal/py/value"
)

// ini implements the functions for files with sections and options.
type ini struct{}

func init() { units.Declare("ini", iniModule) }

func iniModule() fn.Module {
	m := ini{}
	return fn.Module{Name: "ini", Doc: `Options in files with sections. Comments are kept.`, Funcs: []fn.Func{
		fn.Of("set_option", m.set, `Set options, and return what has changed.`,
			fn.Example(`salt '*' ini.set_option /path/to/ini '{section_foo: {key: value}}'`)),
		fn.Of("get_option", m.get, `Return the value of an option, null if there is none.`,
			fn.Example("salt '*' ini.get_option /path/to/ini section_name option_name")),
		fn.Of("remove_option", m.remove, `Remove an option, and return its value.`,
			fn.Example("salt '*' ini.remove_option /path/to/ini section_name option_name")),
		fn.Of("get_section", m.section, `Return the options of a section.`, fn.Example("salt '*' ini.get_section /path/to/ini section_name")),
		fn.Of("remove_section", m.removeSection, `Remove a section, and return its options.`,
			fn.Example("salt '*' ini.remove_section /path/to/ini section_name")),
		fn.Of("get_ini", m.all, `Return all options and sections.`, fn.Example("salt '*' ini.get_ini /path/to/ini")),
	}}
}

// iniHow are the options for the format of a file.
type iniHow struct {
	Separator string `salt:"separator" doc:"what stands between an option and its value" default:"="`
	Encoding  any    `salt:"encoding" doc:"encoding of the file; there is none but UTF-8" default:"null"`
}

func (h iniHow) read(path string, tight bool) (*inifile.File, error) {
	if name := strings.ToLower(value.Str(h.Encoding)); value.Truth(h.Encoding) && !strings.HasPrefix(strings.ReplaceAll(name, "-", ""), "utf8") &&
		name != "ascii" {
		return nil, fn.Errorf("the encoding %s is not known here: files of options are read and written as UTF-8", name)
	}
	f, err := inifile.Read(path, h.Separator, tight)
	if err != nil {
		return nil, fn.Errorf("Unable to open file '%s'. Exception: %w", path, err)
	}
	return f, nil
}

func write(f *inifile.File, path string) error {
	if err := f.Write(); err != nil {
		return fn.Errorf("Unable to write file '%s'. Exception: %w", path, err)
	}
	return nil
}

type iniSetArgs struct {
	Name     string      `salt:"file_name" doc:"path of the file"`
	Sections *value.Dict `salt:"sections" doc:"map of options to values, and of sections to such maps" default:"null"`
	iniHow
	NoSpaces bool `salt:"no_spaces" doc:"write no spaces around the separator" default:"false"`
}

func (ini) set(_ context.Context, _ *fn.Call, a iniSetArgs) (any, error) {
	f, err := a.read(a.Name, a.NoSpaces)
	if err != nil {
		return nil, err
	}
	changes := f.Update(a.Sections)
	if changes.Len() == 0 && f.There() {
		return changes, nil
	}
	return changes, write(f, a.Name)
}

type iniOptionArgs struct {
	Name    string `salt:"file_name" doc:"path of the file"`
	Section any    `salt:"section" doc:"section; null: the option stands before the first one"`
	Option  string `salt:"option" doc:"option"`
	iniHow
}

func (ini) get(_ context.Context, _ *fn.Call, a iniOptionArgs) (any, error) {
	f, err := a.read(a.Name, false)
	if err != nil {
		return nil, err
	}
	at := &f.Section
	if value.Truth(a.Section) {
		at = f.Find(value.Str(a.Section))
	}
	if text, ok := at.Option(a.Option); ok {
		return text, nil
	}
	if at == &f.Section && at.Find(a.Option) != nil {
		return at.Find(a.Option).Dict(), nil
	}
	return nil, nil
}

func (ini) remove(_ context.Context, _ *fn.Call, a iniOptionArgs) (any, error) {
	f, err := a.read(a.Name, false)
	if err != nil {
		return nil, err
	}
	at := &f.Section
	if s := f.Find(value.Str(a.Section)); a.Section != nil && s != nil {
		at = s
	}
	old := at.Remove(a.Option)
	if old == nil {
		return nil, nil
	}
	return old, write(f, a.Name)
}

type iniSectionArgs struct {
	Name    string `salt:"file_name" doc:"path of the file"`
	Section string `salt:"section" doc:"section"`
	iniHow
}

func (ini) section(_ context.Context, _ *fn.Call, a iniSectionArgs) (any, error) {
	f, err := a.read(a.Name, false)
	if err != nil {
		return nil, err
	}
	if s := f.Find(a.Section); s != nil {
		return s.Dict(), nil
	}
	return value.NewDict(0), nil
}

func (ini) removeSection(_ context.Context, _ *fn.Call, a iniSectionArgs) (any, error) {
	f, err := a.read(a.Name, false)
	if err != nil {
		return nil, err
	}
	if f.Find(a.Section) == nil {
		return nil, nil
	}
	old := f.Remove(a.Section)
	return old, write(f, a.Name)
}

type iniFileArgs struct {
	Name string `salt:"file_name" doc:"path of the file"`
	iniHow
}

func (ini) all(_ context.Context, _ *fn.Call, a iniFileArgs) (any, error) {
	f, err := a.read(a.Name, false)
	if err != nil {
		return nil, err
	}
	return f.Dict(), nil
}
