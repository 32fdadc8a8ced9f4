package files

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/managed"
	"brine/internal/host/filesys"
	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	add(func(f file) []state.Func {
		return []state.Func{state.Of("serialize", f.serialize, `Keep data in a file, in the format of a serializer.
			The serializers are yaml, yamlex, json, toml, plist, configparser, keyvalue, python and msgpack.`)}
	})
}

type serializeArgs struct {
	Name             string `salt:"name" doc:"path of the file"`
	Dataset          any    `salt:"dataset" doc:"the data" default:"null"`
	DatasetPillar    any    `salt:"dataset_pillar" doc:"pillar key that holds the data" default:"null"`
	User             any    `salt:"user" doc:"user that owns the file" default:"null"`
	Group            any    `salt:"group" doc:"group that owns the file" default:"null"`
	Mode             any    `salt:"mode" doc:"mode, such as '0644'" default:"null"`
	Backup           any    `salt:"backup" doc:"minion keeps a copy of the old file in the minion's cache" default:""`
	Makedirs         bool   `salt:"makedirs" doc:"make the directories that are missing" default:"false"`
	ShowChanges      bool   `salt:"show_changes" doc:"show how the content changes" default:"true"`
	Create           bool   `salt:"create" doc:"make the file if there is none" default:"true"`
	MergeIfExists    bool   `salt:"merge_if_exists" doc:"put the data over those that the file holds" default:"false"`
	Encoding         string `salt:"encoding" doc:"encoding of the file; characters are not escaped then" default:"null"`
	EncodingErrors   string `salt:"encoding_errors" doc:"what to do with characters that the encoding lacks: strict, ignore or replace" default:"strict"`
	Serializer       any    `salt:"serializer" doc:"the format: yaml, yamlex, json, toml, plist, configparser, keyvalue, python or msgpack; yaml if none is set" default:"null"`
	SerializerOpts   any    `salt:"serializer_opts" doc:"options of what writes the format, as Salt hands them to its Python libraries" default:"null"`
	DeserializerOpts any    `salt:"deserializer_opts" doc:"options of what reads the file, for merge_if_exists" default:"null"`
	checkCommand
	Formatter any       `salt:"formatter" doc:"old name of serializer" default:"null"`
	Kwargs    fn.Kwargs `salt:"kwargs"`
}

func (f file) serialize(ctx context.Context, e *state.Env, a serializeArgs) (state.Plan, error) {
	var plan state.Plan
	name := filesys.ExpandUser(a.Name)
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
	format, ok := serialize.Named(how)
	if !ok {
		return plan, fn.Errorf("The %s serializer could not be found. It either does not exist or its prerequisites are not installed.", how)
	}
	var diff any
	if a.MergeIfExists {
		old, merged, err := a.merged(name, how, format, data)
		if err != nil {
			return plan, err
		}
		if old != nil && value.Equal(old, merged) {
			plan.Comment = "The file " + name + " is in the correct state"
			return plan, nil
		}
		data = merged
		if old != nil {
			diff = changedKeys(serialize.Plain(old), serialize.Plain(merged))
		}
	} else if value.Truth(a.DeserializerOpts) {
		plan.Warnings = append(plan.Warnings, "The 'deserializer_opts' option is ignored unless merge_if_exists is set to True.")
	}
	text, err := a.text(how, format, data)
	if err != nil {
		return plan, err
	}
	p, err := f.keepText(ctx, e, name, a, text)
	p.Warnings = append(plan.Warnings, p.Warnings...)
	return withDiff(p, diff, name, a.ShowChanges), err
}

func (a serializeArgs) serializer() any {
	for _, v := range []any{a.Serializer, a.Formatter} {
		if value.Truth(v) {
			return v
		}
	}
	return "yaml"
}

// data returns the data to be written.
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

// merged merges the data over that of the existing file.
func (a serializeArgs) merged(name, how string, format serialize.Format, data any) (old, merged any, err error) {
	if !filesys.IsFile(name) {
		return nil, data, nil
	}
	if format.Read == nil {
		return nil, nil, fn.Errorf("merge_if_exists is not supported for the %s serializer", how)
	}
	b, err := readAtMost(name, serialize.MaxBytes)
	if err == nil {
		if how != "plist" && how != "msgpack" { // Python accepts any line endings in text
			b = []byte(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(b)))
		}
		old, err = format.Read(b, dictOf(a.DeserializerOpts))
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

// changedKeys returns the differences of two mappings: changed keys with maps
// of old and new.
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

// dictOf converts options, a map or a list of maps, to a map.
func dictOf(options any) *value.Dict {
	out := value.NewDict(4)
	switch x := options.(type) {
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

// text serializes the data: to a string, or to bytes for a binary format.
func (a serializeArgs) text(how string, format serialize.Format, data any) (any, error) {
	options := value.NewDict(4)
	switch how {
	case "yaml":
		options.Set("default_flow_style", false)
		if a.Encoding != "" {
			options.Set("allow_unicode", true)
		}
	case "yamlex": // data from an SLS is an OrderedDict, whose keys Python's yamlex does not sort
		options.Set("sort_keys", false)
	case "json":
		options = value.DictOf("indent", 2, "separators", []any{",", ": "}, "sort_keys", true)
	}
	options.Update(dictOf(a.SerializerOpts))
	out, err := format.Write(data, options)
	if err != nil {
		return nil, fn.Errorf("cannot write the dataset as %s: %w", how, err)
	}
	if s, ok := out.(string); ok {
		return s + "\n", nil
	}
	return out, nil
}

// readAtMost reads a file and fails if it is larger than limit bytes.
func readAtMost(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s has more than the %d bytes allowed", name, limit)
	}
	return b, err
}

// keepText plans a file with a text, as file.managed does.
func (f file) keepText(ctx context.Context, e *state.Env, name string, a serializeArgs, text any) (state.Plan, error) {
	t := newManaged(f.m, e, &managedArgs{Name: name, Mode: a.Mode, Makedirs: a.Makedirs, Replace: true, Backup: a.Backup,
		ShowChanges: a.ShowChanges,
		Create:      true, FollowSymlinks: true, checkCommand: a.checkCommand})
	t.showRejected = true
	if t.seen = look(t.M, t.Name); t.seen.isDir() {
		return state.Plan{}, fn.Errorf("Specified target %s is a directory", name)
	}
	var err error
	if t.Own, err = f.owner(ctx, a.User, a.Group, t.args.mode()); err != nil {
		return state.Plan{}, err
	}
	if t.want, err = managed.Encoded(text, a.Encoding, a.EncodingErrors); err != nil {
		return state.Plan{}, err
	}
	return t.plan(ctx)
}

// withDiff replaces the comment of the plan, and shows the changes of the data
// if they are known.
func withDiff(p state.Plan, diff any, name string, show bool) state.Plan {
	for i, s := range p.Steps {
		s.Change.Comment = "Dataset will be serialized and stored into " + name
		do := s.Do
		if d := s.Change.Diff; !show && d.Len() > 0 { // also in a test of a new file
			s.Change.Diff = d.Clone()
			s.Change.Diff.Set("diff", "<show_changes=False>")
		}
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
