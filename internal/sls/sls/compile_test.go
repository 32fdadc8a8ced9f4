package sls

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// tree is a Source of YAML files without templates.
type tree struct {
	files map[string][]byte // "env/path"
}

func (s tree) States(_ context.Context, saltenv string) ([]string, bool) {
	var names []string
	ok := false
	for name := range s.files {
		path, in := strings.CutPrefix(name, saltenv+"/")
		ok = ok || in
		if sls, is := strings.CutSuffix(path, ".sls"); in && is {
			names = append(names, strings.ReplaceAll(strings.TrimSuffix(sls, "/init"), "/", "."))
		}
	}
	slices.Sort(names)
	return names, ok
}

func (s tree) Load(_ context.Context, name, saltenv string) (File, error) {
	base := strings.ReplaceAll(name, ".", "/")
	for _, path := range []string{base + ".sls", base + "/init.sls"} {
		if data, ok := s.files[saltenv+"/"+path]; ok {
			v, err := yaml.Load(data, path)
			return File{Path: path, Data: v}, err
		}
	}
	return File{}, ErrNotFound
}

func (s tree) matches(t *testing.T) []Match {
	t.Helper()
	v, err := yaml.Load(s.files["base/top.sls"], "top.sls")
	if err != nil {
		t.Fatal(err)
	}
	var out []Match
	for env, targets := range v.(*value.Dict).All() {
		m := Match{Saltenv: value.Str(env)}
		for _, it := range targets.(*value.Dict).List("*") {
			m.SLS = append(m.SLS, value.Str(it))
		}
		out = append(out, m)
	}
	return out
}

func readTree(t *testing.T, path string) (s tree, want map[string]any, opts Options) {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.files, want, opts = map[string][]byte{}, map[string]any{}, Options{AutoOrder: true}
	for _, f := range a.Files {
		switch {
		case strings.HasPrefix(f.Name, "want."):
			v, err := yaml.Load(f.Data, f.Name)
			if err != nil {
				t.Fatal(err)
			}
			want[f.Name[5:]] = v
		case f.Name == "config":
			v, err := yaml.Load(f.Data, f.Name)
			if err != nil {
				t.Fatal(err)
			}
			if off, ok := v.(*value.Dict).Get("state_auto_order"); ok {
				opts.AutoOrder = value.Truth(off)
			}
			for _, it := range v.(*value.Dict).List("disabled_requisites") {
				opts.DisabledRequisites = append(opts.DisabledRequisites, value.Str(it))
			}
		default:
			s.files[f.Name] = f.Data
		}
	}
	return s, want, opts
}

// failed reports whether a result is a list of errors instead of states.
func failed(v any) bool {
	l, ok := v.(*value.List)
	if !ok {
		d, _ := v.(*value.Dict)
		return d.Has("exception")
	}
	return len(l.Items) > 0 && value.TypeName(l.Items[0]) == "str"
}

func texts(errs []*Error) *value.List {
	l := &value.List{}
	for _, e := range errs {
		l.Append(e.Text)
	}
	return l
}

func TestCompileAsRecorded(t *testing.T) {
	paths, err := filepath.Glob("testdata/compile/*.txtar")
	if err != nil || len(paths) < 50 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			s, want, opts := readTree(t, path)
			c := New(s, opts)
			high, errs := c.Render(t.Context(), s.matches(t))
			var got any = high
			if len(errs) > 0 {
				got = texts(errs)
			}
			compare(t, "high", got, want["high"])
			if len(errs) > 0 {
				compare(t, "low", texts(errs), want["low"])
				return
			}
			chunks, errs := opts.Low(high)
			got = value.From(chunks)
			if len(errs) > 0 {
				got = texts(errs)
			}
			compare(t, "low", got, want["low"])
		})
	}
}

// ours lists the trees for which Brine's errors differ, because Salt has a
// traceback or reports less.
var ours = map[string]bool{
	"bad_yaml": true, "include_xenv_missing": true, "key_int": true, "extend_name_notdict": true, "bad_state_null": true,
}

// compare checks that data are equal, and that errors begin with one of
// Salt's.
func compare(t *testing.T, kind string, got, want any) {
	t.Helper()
	if failed(want) && failed(got) {
		_, name, _ := strings.Cut(t.Name(), "/")
		for _, it := range got.(*value.List).Items {
			if !ours[name] && !slices.ContainsFunc(want.(*value.List).Items, func(w any) bool { return strings.HasPrefix(it.(string), w.(string)) }) {
				t.Errorf("%s: unknown fault %s\nwant %s", kind, it, show(want))
			}
		}
		return
	}
	if !value.Equal(textKeys(got), want) {
		t.Errorf("%s is\n%s\nwant\n%s", kind, show(got), show(want))
	}
}

// textKeys converts the keys of high data to strings, as JSON does.
func textKeys(v any) any {
	d, ok := v.(*value.Dict)
	if !ok {
		return v
	}
	out := value.NewDict(d.Len())
	for k, v := range d.All() {
		out.Set(value.Str(k), v)
	}
	return out
}

func show(v any) string {
	l, ok := v.(*value.List)
	if !ok {
		return value.Repr(v)
	}
	var b strings.Builder
	for _, it := range l.Items {
		fmt.Fprintln(&b, value.Repr(it))
	}
	return b.String()
}

func TestEndlessIncludes(t *testing.T) {
	c := New(endless{}, Options{AutoOrder: true})
	_, errs := c.Render(t.Context(), []Match{{Saltenv: "base", SLS: []string{"s0"}}})
	if len(errs) != 1 || !strings.Contains(errs[0].Text, "through more than") {
		t.Errorf("faults %v", texts(errs))
	}
}

// endless is a source in which every name is an SLS that includes another one.
type endless struct{}

func (endless) States(context.Context, string) ([]string, bool) { return nil, true }
func (endless) Load(_ context.Context, name, _ string) (File, error) {
	var n int
	if _, err := fmt.Sscanf(name, "s%d", &n); err != nil {
		return File{}, errors.Join(ErrNotFound, err)
	}
	return File{Path: name + ".sls", Data: value.DictOf("include", value.ListOf(fmt.Sprintf("s%d", n+1)), name, value.DictOf("test", value.ListOf("nop")))}, nil
}

// TestIncludeFromAnyEnvironment: Salt 3007 documents _xenv, but rejects it as
// a missing environment.
func TestIncludeFromAnyEnvironment(t *testing.T) {
	s := tree{files: map[string][]byte{
		"base/a.sls": []byte("include: [_xenv: only, _xenv: both, _xenv: none]\na: test.nop\n"),
		"base/b.sls": []byte("include: [_xenv: both]\nb: test.nop\n"), "base/both.sls": []byte("x: test.nop\n"),
		"dev/only.sls": []byte("o: test.nop\n"), "dev/both.sls": []byte("y: test.nop\n"), "three/d.sls": []byte("include: [_xenv: both]\nd: test.nop\n"),
	}}
	c := New(s, Options{AutoOrder: true})
	high, errs := c.Render(t.Context(), []Match{{"base", []string{"a"}}, {"dev", nil}, {"three", []string{"d"}}})
	if got := value.Repr(value.From(high.Keys())); got != "['a', 'o', 'x', 'd']" {
		t.Errorf("ids %s", got)
	}
	want := []any{
		"Unknown include: Specified SLS _xenv: none is not available on the salt master in saltenv(s): base, dev, three ",
		"Ambiguous include: Specified SLS _xenv: both is available on the salt master in multiple available saltenvs: base, dev",
	}
	if got := texts(errs); !slices.EqualFunc(got.Items, want, value.Equal) {
		t.Errorf("faults %s", show(got))
	}
}
