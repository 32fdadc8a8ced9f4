package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"brine/internal/base/field"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// maxFiles bounds the files of one configuration.
const maxFiles = 10000

// layer is the content of one file, or of several merged.
type layer struct {
	values  *value.Dict
	origins map[string]Origin
}

func newLayer() *layer { return &layer{value.NewDict(0), map[string]Origin{}} }

// Load reads the main file at path and what it includes. A missing main file is
// an empty configuration. If an option has several values, the last one counts,
// as in Salt: files named by include override those named by default_include,
// which override the main file; among included files mappings and lists are
// merged.
//
// The error has a Fault for each bad file and is of kind Denied or Invalid. The Tree contains
// what could be read.
func Load(path string, k Kind, log *slog.Logger) (*Tree, error) {
	t := NewTree(k, path, log)
	r := &reader{tree: t}
	l := r.file(path, true)
	for _, inc := range []struct {
		key     string
		value   any
		verbose bool
	}{
		{"default_include", orElse(l.values, "default_include", k.include()), false},
		{"include", orElse(l.values, "include", nil), true},
	} {
		l.replace(r.include(inc.value, path, l.origins[inc.key], inc.key, inc.verbose))
	}
	t.Values, t.origins = l.values, l.origins
	all := faultList{all: r.faults}
	return t, all.err(t)
}

// Overlay reads another file, which must exist, with its includes, and returns
// a tree with the options of both; those of the other file take precedence.
func (t *Tree) Overlay(path string) (*Tree, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, &Fault{Origin: Origin{File: path}, Err: fmt.Errorf("cannot read the configuration: %w", unwrapPath(err))}
	}
	o, err := Load(path, t.Kind, t.log)
	if err != nil {
		return nil, err
	}
	out := &Tree{Kind: t.Kind, Path: t.Path, Files: append(slices.Clone(t.Files), o.Files...), Values: value.DeepCopy(t.Values).(*value.Dict),
		origins: maps.Clone(t.origins), log: t.log}
	out.Values.Update(o.Values)
	maps.Copy(out.origins, o.origins)
	return out, nil
}

// both joins the faults of the files and of their values.
func both(t *Tree, files, values error) error {
	all := faultList{}
	all.stage(files)
	all.stage(values)
	return all.err(t)
}

func orElse(d *value.Dict, key string, v any) any {
	if w, ok := d.Get(key); ok {
		return w
	}
	return v
}

// reader reads files and collects their faults.
type reader struct {
	tree   *Tree
	open   []string // files whose includes are being read
	faults []error
}

func (r *reader) fault(f *Fault) { r.faults = append(r.faults, f) }

// file reads one file, without its includes. Only main may be missing.
func (r *reader) file(path string, main bool) *layer {
	l := newLayer()
	data, err := readFile(path)
	switch {
	case main && errors.Is(err, fs.ErrNotExist):
		r.tree.log.Debug("no configuration file; using the defaults", "path", path)
		return l
	case err != nil:
		r.fault(&Fault{Origin: Origin{File: path}, Err: fmt.Errorf("cannot read the configuration: %w", err)})
		return l
	}
	r.tree.Files = append(r.tree.Files, path)
	v, lines, err := yaml.LoadLines(data, path)
	if err != nil {
		r.malformed(path, err)
		return l
	}
	d, ok := v.(*value.Dict)
	if !ok {
		if value.Truth(v) {
			r.fault(&Fault{Origin: Origin{File: path, Line: 1}, Err: fmt.Errorf("expected options in the form \"name: value\", got %s", field.Describe(v))})
		}
		return l
	}
	for k, v := range d.All() {
		name := value.Str(k)
		if name == "id" && isScalar(v) {
			v = value.Str(v) // an id may look like a number
		}
		l.values.Set(k, v)
		l.origins[name] = Origin{File: path, Line: lines[name]}
	}
	return l
}

// errNotRegular is the error of a FIFO, a device or a directory: reading it might never end.
var errNotRegular = errors.New("it is not a regular file")

func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, unwrapPath(err)
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, unwrapPath(err)
	} else if !st.Mode().IsRegular() && !st.IsDir() { // the read of a directory has an error of its own
		return nil, errNotRegular
	}
	data, err := io.ReadAll(io.LimitReader(f, yaml.MaxBytes+1))
	if err != nil {
		return nil, unwrapPath(err)
	}
	return data, nil
}

// unwrapPath drops the path, which the Fault names already.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// malformed reports a file that is not YAML. The saved schedule of a minion is
// an exception: it is ignored, so that the minion can start and save it again.
func (r *reader) malformed(path string, err error) {
	var e *yaml.Error
	if !errors.As(err, &e) {
		r.fault(&Fault{Origin: Origin{File: path}, Err: err})
		return
	}
	if strings.HasSuffix(path, "_schedule.conf") {
		r.tree.log.Error("ignoring malformed saved schedule", "path", path, "err", err)
		return
	}
	bare := *e
	bare.Name = ""
	if e.Line > 0 {
		bare.Mark = yaml.Mark{}
	}
	f := &Fault{Origin: Origin{File: path, Line: e.Line}, Err: &bare}
	if strings.Contains(e.Text, "\t") && strings.Contains(e.Reason+e.Context, "tab") || strings.Contains(e.Reason, "cannot start any token") &&
		strings.HasPrefix(strings.TrimLeft(e.Text, " "), "\t") {
		f.Err = fmt.Errorf("%w (indent with blanks: YAML does not allow tabs there)", f.Err)
	} else if strings.Contains(e.Reason, "could not find expected ':'") {
		f.Err = fmt.Errorf("%w (write each option as \"name: value\", with a blank after the colon)", f.Err)
	}
	r.fault(f)
}

// include reads the files that match the patterns, relative to the directory of
// the file from, and merges them.
func (r *reader) include(patterns any, from string, at Origin, key string, verbose bool) *layer {
	merged := newLayer()
	if !value.Truth(patterns) {
		return merged
	}
	if at.File == "" {
		at.File = from
	}
	list, err := texts(patterns)
	if err != nil {
		r.fault(&Fault{Origin: at, Key: key, Err: err})
		return merged
	}
	for _, p := range list {
		p = filesys.ExpandUser(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(from), p)
		}
		matches, err := glob(p)
		if err != nil {
			r.fault(&Fault{Origin: at, Key: key, Err: fmt.Errorf("pattern %q: %w", p, err)})
		}
		if dir := filepath.Dir(p); len(matches) == 0 && !strings.ContainsAny(dir, "*?[") {
			// The pattern also matches nothing if the directory cannot be read.
			if _, err := os.ReadDir(dir); errors.Is(err, fs.ErrPermission) {
				r.fault(&Fault{Origin: at, Key: key, Err: fmt.Errorf("cannot read the directory %s: %w", dir, unwrapPath(err))})
			}
		}
		if len(matches) == 0 && err == nil && verbose {
			r.tree.log.Warn("include matches no file", "pattern", p, "at", at.String())
		}
		for _, path := range matches {
			if l := r.included(path, at, key); l != nil {
				merged.merge(l)
			}
		}
	}
	return merged
}

// included reads one included file with its own includes.
func (r *reader) included(path string, at Origin, key string) *layer {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	if i := slices.Index(r.open, real); i >= 0 {
		chain := strings.Join(append(r.open[i:len(r.open):len(r.open)], real), " -> ")
		r.fault(&Fault{Origin: at, Key: key, Err: fmt.Errorf("the files include each other without end: %s", chain)})
		return nil
	}
	if len(r.tree.Files) >= maxFiles {
		r.fault(&Fault{Origin: at, Key: key, Err: fmt.Errorf("more than %d files are included", maxFiles)})
		return nil
	}
	r.open = append(r.open, real)
	l := r.file(path, false)
	l.replace(r.include(l.values.At("include"), path, l.origins["include"], "include", true))
	r.open = r.open[:len(r.open)-1]
	return l
}

// texts returns a string or a list of strings as a list.
func texts(v any) ([]string, error) {
	items := []any{v}
	if l, ok := v.(*value.List); ok {
		items = l.Items
	}
	out := make([]string, len(items))
	for i, it := range items {
		s, ok := it.(string)
		if !ok {
			return nil, fmt.Errorf("expected a path or a list of paths, got %s", field.Describe(it))
		}
		out[i] = s
	}
	return out, nil
}

// glob returns the matching files, sorted, like Python's glob: a wildcard does
// not match a leading dot.
func glob(pattern string) ([]string, error) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	words := strings.Split(pattern, "/")
	out := found[:0]
	for _, f := range found {
		ok := true
		for i, part := range strings.Split(f, "/") {
			if i < len(words) && strings.HasPrefix(part, ".") && !strings.HasPrefix(words[i], ".") {
				ok = false
			}
		}
		if ok {
			out = append(out, f)
		}
	}
	slices.Sort(out)
	return out, nil
}

// replace sets every option of o in l.
func (l *layer) replace(o *layer) {
	l.values.Update(o.values)
	for k, at := range o.origins {
		l.origins[k] = at
	}
}

// merge adds the options of o, a later file, to l.
func (l *layer) merge(o *layer) {
	if old, ok := l.values.At("schedule").(*value.Dict); ok {
		if d, ok := o.values.At("schedule").(*value.Dict); ok {
			for name, job := range d.All() {
				old.Set(name, job) // a job replaces the one with its name
			}
		}
	}
	mergeDict(l.values, o.values)
	for k, at := range o.origins {
		l.origins[k] = at
	}
}

// mergeDict merges src into dst: mappings recursively, lists by adding missing
// items, anything else by replacement.
func mergeDict(dst, src *value.Dict) {
	for k, v := range src.All() {
		switch old := dst.At(k).(type) {
		case *value.Dict:
			if d, ok := v.(*value.Dict); ok {
				if d != old {
					mergeDict(old, d)
				}
				continue
			}
		case *value.List:
			if add, ok := v.(*value.List); ok {
				dst.Set(k, mergeList(old, add))
				continue
			}
		}
		dst.Set(k, v)
	}
}

func mergeList(old, add *value.List) *value.List {
	out := &value.List{Items: slices.Clone(old.Items)}
	for _, v := range add.Items {
		if !slices.ContainsFunc(old.Items, func(w any) bool { return value.Equal(v, w) }) {
			out.Append(v)
		}
	}
	return out
}
