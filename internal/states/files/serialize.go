package files

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/fn"
	"brine/internal/host/filesys"
	"brine/internal/json"
	"brine/internal/state"
	"brine/internal/state/sources"
	"brine/internal/value"
	"brine/internal/yaml"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("serialize", f.serialize, `Keep data in a file, as YAML or JSON.`)}
	})
}

type serializeArgs struct {
	Name             string    `salt:"name" doc:"path of the file"`
	Dataset          any       `salt:"dataset" doc:"the data" default:"null"`
	DatasetPillar    any       `salt:"dataset_pillar" doc:"pillar key that holds the data" default:"null"`
	User             any       `salt:"user" doc:"user that owns the file" default:"null"`
	Group            any       `salt:"group" doc:"group that owns the file" default:"null"`
	Mode             any       `salt:"mode" doc:"mode, such as '0644'" default:"null"`
	Backup           any       `salt:"backup" doc:"minion keeps a copy of the old file in the minion's cache" default:""`
	Makedirs         bool      `salt:"makedirs" doc:"make the folders that are missing" default:"false"`
	ShowChanges      bool      `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Create           bool      `salt:"create" doc:"make the file if there is none" default:"true"`
	MergeIfExists    bool      `salt:"merge_if_exists" doc:"put the data over those that the file holds" default:"false"`
	Encoding         string    `salt:"encoding" doc:"encoding of the file; characters are not escaped then" default:"null"`
	EncodingErrors   string    `salt:"encoding_errors" doc:"what to do with characters that the encoding lacks: strict, ignore or replace" default:"strict"`
	Serializer       any       `salt:"serializer" doc:"yaml or json" default:"null"`
	SerializerOpts   any       `salt:"serializer_opts" doc:"indent, sort_keys and, for yaml, default_flow_style, width and allow_unicode, for json separators and ensure_ascii" default:"null"`
	DeserializerOpts any       `salt:"deserializer_opts" doc:"no effect" default:"null"`
	CheckCmd         string    `salt:"check_cmd" doc:"command that gets the name of a file with the new content and must succeed before it is used" default:"null"`
	TmpDir           string    `salt:"tmp_dir" doc:"folder of the file for check_cmd" default:""`
	TmpExt           string    `salt:"tmp_ext" doc:"end of its name" default:""`
	Formatter        any       `salt:"formatter" doc:"old name of serializer" default:"null"`
	Kwargs           fn.Kwargs `salt:"kwargs"`
}

func (f file) serialize(ctx context.Context, e *state.Env, a serializeArgs) (state.Plan, error) {
	var plan state.Plan
	name := expand(a.Name)
	switch {
	case name == "":
		return plan, fn.Errorf("Must provide name to file.serialize")
	case !a.Create && !filesys.IsFile(name):
		plan.Comment = "File " + name + " is not present and is not set for creation"
		return plan, nil
	case a.Serializer != nil && a.Formatter != nil:
		return plan, fn.Errorf("Only one of serializer and formatter are allowed")
	case !filepath.IsAbs(name):
		return plan, fn.Errorf("Specified file %s is not an absolute path", name)
	}
	data, err := a.data(e)
	if err != nil {
		return plan, err
	}
	how := strings.ToLower(value.Str(a.serializer()))
	if how != "yaml" && how != "json" {
		return plan, fn.Errorf("The %s serializer could not be found. It either does not exist or its prerequisites are not installed.", how)
	}
	var diff any
	if a.MergeIfExists {
		old, merged, err := a.merged(name, how, data)
		if err != nil {
			return plan, err
		}
		if old != nil && value.Equal(old, merged) {
			plan.Comment = "The file " + name + " is in the correct state"
			return plan, nil
		}
		data, diff = merged, changedKeys(old, merged)
	} else if value.Truth(a.DeserializerOpts) {
		plan.Warnings = append(plan.Warnings, "The 'deserializer_opts' option is ignored unless merge_if_exists is set to True.")
	}
	text, err := a.text(how, data)
	if err != nil {
		return plan, err
	}
	p, err := f.keepText(ctx, e, name, a, text)
	p.Warnings = append(plan.Warnings, p.Warnings...)
	return withDiff(p, diff, name), err
}

func (a serializeArgs) serializer() any {
	for _, v := range []any{a.Serializer, a.Formatter} {
		if value.Truth(v) {
			return v
		}
	}
	return "yaml"
}

// data returns what is to be in the file.
func (a serializeArgs) data(e *state.Env) (any, error) {
	switch {
	case value.Truth(a.Dataset) && value.Truth(a.DatasetPillar):
		return nil, fn.Errorf("Only one of 'dataset' and 'dataset_pillar' is permitted")
	case value.Truth(a.DatasetPillar):
		v, ok := value.Traverse(e.Pillar.All(), value.Str(a.DatasetPillar), ":")
		if !ok {
			return nil, fn.Errorf("Pillar %s does not exist", value.Str(a.DatasetPillar))
		}
		return v, nil
	case a.Dataset == nil:
		return nil, fn.Errorf("Neither 'dataset' nor 'dataset_pillar' was defined")
	}
	return a.Dataset, nil
}

// merged reads the file, if there is one, and puts the data over its own.
func (a serializeArgs) merged(name, how string, data any) (old, merged any, err error) {
	b, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return nil, data, nil
	}
	if err == nil && how == "yaml" {
		old, err = yaml.Load(b, name)
	} else if err == nil {
		old, err = json.Load(string(b))
	}
	if err != nil {
		return nil, nil, fn.Errorf("Failed to deserialize existing data: %w", err)
	}
	if old == nil {
		return nil, data, nil
	}
	x, ok1 := value.DeepCopy(old).(*value.Dict)
	y, ok2 := data.(*value.Dict)
	if !ok1 || !ok2 {
		return nil, nil, fn.Errorf("merge_if_exists needs mappings: the file holds a %s, the dataset is a %s", value.TypeName(old), value.TypeName(data))
	}
	merged, err = value.Merge(x, y, "recurse", "yaml", false)
	return old, merged, err
}

// changedKeys tells how two mappings differ: their keys to maps of old and new.
func changedKeys(old, now any) any {
	x, ok1 := old.(*value.Dict)
	y, ok2 := now.(*value.Dict)
	if !ok1 || !ok2 {
		return nil
	}
	const none = "<_null_>"
	out := value.NewDict(0)
	for k, v := range y.All() {
		before, had := x.Get(k)
		switch {
		case !had:
			out.Set(k, value.DictOf("new", v, "old", none))
		case !value.Equal(before, v):
			if d := changedKeys(before, v); d != nil {
				out.Set(k, d)
			} else {
				out.Set(k, value.DictOf("new", v, "old", before))
			}
		}
	}
	return out
}

// options reads serializer_opts, a map or a list of maps.
func (a serializeArgs) options() *value.Dict {
	out := value.NewDict(4)
	switch x := a.SerializerOpts.(type) {
	case *value.Dict:
		out.Update(x)
	case *value.List:
		for _, it := range x.Items {
			if d, ok := it.(*value.Dict); ok {
				out.Update(d)
			}
		}
	}
	return out
}

// text writes the data.
func (a serializeArgs) text(how string, data any) (string, error) {
	if how == "json" {
		return a.json(data)
	}
	var opts []yaml.Option
	ascii := a.Encoding == ""
	for k, v := range a.options().All() {
		switch n, _ := v.(int64); k {
		case "indent":
			opts = append(opts, yaml.Indent(int(n)))
		case "width":
			opts = append(opts, yaml.Width(int(n)))
		case "default_flow_style":
			if v == nil {
				opts = append(opts, yaml.FlowLeaves())
			} else if value.Truth(v) {
				opts = append(opts, yaml.Flow())
			}
		case "sort_keys":
			if !value.Truth(v) {
				opts = append(opts, yaml.KeepOrder())
			}
		case "allow_unicode":
			ascii = !value.Truth(v)
		default:
			return "", fn.Errorf("serializer_opts: yaml has no option %s", value.Str(k))
		}
	}
	if ascii {
		opts = append(opts, yaml.ASCII())
	}
	text := yaml.Dump(data, opts...)
	if cut, ok := strings.CutSuffix(text, "\n...\n"); ok {
		return cut + "\n", nil
	}
	return strings.TrimSuffix(text, "\n") + "\n", nil
}

func (a serializeArgs) json(data any) (string, error) {
	f := json.Format{SortKeys: true, Indent: json.Spaces(2), Comma: ",", Colon: ": "}
	for k, v := range a.options().All() {
		switch k {
		case "indent":
			if n, ok := v.(int64); ok {
				f.Indent = json.Spaces(int(n))
			} else if f.Indent = nil; v != nil {
				s := value.Str(v)
				f.Indent = &s
			}
		case "sort_keys":
			f.SortKeys = value.Truth(v)
		case "ensure_ascii":
			f.ASCII = value.Truth(v)
		case "separators":
			l, ok := v.(*value.List)
			if !ok || l.Len() != 2 {
				return "", fn.Errorf("serializer_opts: separators must be a list of two texts")
			}
			f.Comma, f.Colon = value.Str(l.Items[0]), value.Str(l.Items[1])
		default:
			return "", fn.Errorf("serializer_opts: json has no option %s", value.Str(k))
		}
	}
	text, err := json.Dump(data, f)
	if err != nil {
		return "", fn.Errorf("cannot write the dataset as JSON: %w", err)
	}
	return text + "\n", nil
}

// keepText plans a file with a text, as file.managed does.
func (f file) keepText(ctx context.Context, e *state.Env, name string, a serializeArgs, text string) (state.Plan, error) {
	t := &managedFile{file: f, e: e, name: name, args: managedArgs{Name: name, Mode: a.Mode, Makedirs: a.Makedirs, Replace: true, Backup: a.Backup, ShowChanges: a.ShowChanges,
		Create: true, FollowSymlinks: true, CheckCmd: a.CheckCmd, TmpDir: a.TmpDir, TmpExt: a.TmpExt}}
	if t.see(); t.seen.isDir() {
		return state.Plan{}, fn.Errorf("Specified target %s is a directory", name)
	}
	var err error
	if t.own, err = f.owner(ctx, a.User, a.Group, t.mode()); err != nil {
		return state.Plan{}, err
	}
	b, err := sources.Encode(text, a.Encoding, a.EncodingErrors)
	if err != nil {
		return state.Plan{}, err
	}
	t.want = &sources.Content{Data: b}
	return t.plan(ctx)
}

// withDiff words the plan as of data, and shows how the data change if that is
// known.
func withDiff(p state.Plan, diff any, name string) state.Plan {
	for i, s := range p.Steps {
		s.Change.Comment = "Dataset will be serialized and stored into " + name
		do := s.Do
		if d, ok := diff.(*value.Dict); ok {
			s.Change.Diff = s.Change.Diff.Clone()
			s.Change.Diff.Set("diff", d)
			s.Do = func(ctx context.Context) (state.Change, error) {
				c, err := do(ctx)
				if err == nil {
					c.Diff = c.Diff.Clone()
					c.Diff.Set("diff", d)
				}
				return c, err
			}
		}
		p.Steps[i] = s
	}
	return p
}
