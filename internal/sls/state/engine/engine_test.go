package engine_test

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"brine/internal/call/fn"
	mods "brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/core"
	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/sls"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// tree is a source of SLS files without templates: "a" is base/a.sls.
type tree map[string][]byte

func (s tree) States(context.Context, string) ([]string, bool) { return nil, true }

func (s tree) Load(_ context.Context, name, _ string) (sls.File, error) {
	data, ok := s["base/"+name+".sls"]
	if !ok {
		return sls.File{}, sls.ErrNotFound
	}
	v, err := yaml.Load(data, name)
	return sls.File{Path: name + ".sls", Data: v}, err
}

// chunks compiles the SLS a.
func (s tree) chunks(t *testing.T) []*value.Dict {
	t.Helper()
	o := sls.Options{AutoOrder: true}
	high, errs := sls.New(s, o).Render(t.Context(), []sls.Match{{Saltenv: "base", SLS: []string{"a"}}})
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	chunks, errs := o.Low(high)
	if len(errs) > 0 {
		t.Fatal(errs[0])
	}
	return chunks
}

// deps returns the dependencies of a minion with the modules test, match and cmd.
func deps(t testing.TB) engine.Deps {
	t.Helper()
	states, err := state.NewRegistry(nil, core.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := fn.NewRegistry(nil, append(mods.Modules(), shell.Modules()...)...)
	if err != nil {
		t.Fatal(err)
	}
	empty := fn.Tree{Dict: value.NewDict(0)}
	return engine.Deps{States: states, Call: func() *fn.Call {
		c := &fn.Call{ID: "tester", JID: "20260101000000000000", Grains: empty, Pillar: empty, Config: empty, Funcs: funcs}
		return c
	}}
}

func options(t *testing.T, conf []byte) engine.Options {
	t.Helper()
	v, err := yaml.Load(conf, "config")
	if err != nil {
		t.Fatal(err)
	}
	d, _ := v.(*value.Dict)
	o := engine.Options{Failhard: d.Bool("failhard"), Aggregate: d.At("state_aggregate"), Conditions: d.Dict("global_state_conditions")}
	for _, it := range d.List("disabled_requisites") {
		o.DisabledRequisites = append(o.DisabledRequisites, value.Str(it))
	}
	return o
}

// lines formats results like the recordings.
func lines(t *testing.T, results *value.Dict) []string {
	t.Helper()
	type line struct {
		n   int64
		tag any
		res *value.Dict
	}
	var all []line
	for tag, v := range results.All() {
		d := v.(*value.Dict).Clone()
		d.Delete("start_time")
		d.Delete("duration")
		n, ok := d.At("__run_num__").(int64)
		if !ok {
			n = -1
		}
		all = append(all, line{n, tag, d})
	}
	slices.SortStableFunc(all, func(a, b line) int { return int(a.n - b.n) })
	out := make([]string, len(all))
	for i, l := range all {
		one := value.NewDict(1)
		one.Set(l.tag, l.res)
		out[i] = value.Repr(one)
	}
	return out
}

func TestRunAsRecorded(t *testing.T) {
	paths, err := filepath.Glob("testdata/run/*.txtar")
	if err != nil || len(paths) < 30 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txtar")
		t.Run(name, func(t *testing.T) {
			a, err := txtar.ParseFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files := tree{}
			for _, f := range a.Files {
				files[f.Name] = f.Data
			}
			for _, kind := range []string{"test", "run"} {
				o := options(t, files["config"])
				o.Test = kind == "test"
				got := engine.New(deps(t), o).Run(t.Context(), files.chunks(t))
				compare(t, kind, got, files["want."+kind])
			}
		})
	}
}

func compare(t *testing.T, kind string, results *value.Dict, want []byte) {
	t.Helper()
	got := lines(t, results)
	n := 0
	for line := range bytes.Lines(want) {
		v, err := json.Load(string(bytes.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		if n >= len(got) {
			t.Errorf("%s: nothing for\n%s", kind, line)
			break
		}
		for tag, w := range v.(*value.Dict).All() {
			res, ok := results.At(tag).(*value.Dict)
			if !ok {
				t.Errorf("%s: no result for %s", kind, tag)
				continue
			}
			res = res.Clone()
			res.Delete("start_time")
			res.Delete("duration")
			if !equal(res, w.(*value.Dict)) {
				t.Errorf("%s: %s is\n%s\nwant\n%s", kind, tag, value.Repr(res), value.Repr(w))
			}
		}
		n++
	}
	if n != len(got) {
		t.Errorf("%s: %d results, want %d", kind, len(got), n)
	}
}

// equal compares results. Brine may do better where Salt has a traceback.
func equal(got, want *value.Dict) bool {
	const failed = "One or more requisite failed: "
	comment := want.Str("comment")
	switch names, ok := strings.CutPrefix(comment, failed); {
	case strings.Contains(comment, "KeyError: 'comment'"), strings.Contains(comment, "IndexError"):
		// An empty list of conditions, or a slot that appends to a result
		// without a path.
		return got.At("result") != false
	case strings.Contains(comment, "Traceback"):
		last := strings.TrimSpace(comment[strings.LastIndex(strings.TrimSpace(comment), "\n"):])
		_, text, _ := strings.Cut(last, ": ")
		return got.Str("comment") == text
	case ok: // Python lists the names in random order
		have := strings.Split(strings.TrimPrefix(got.Str("comment"), failed), ", ")
		list := strings.Split(names, ", ")
		slices.Sort(have)
		slices.Sort(list)
		return slices.Equal(have, list) && got.At("result") == want.At("result")
	}
	return value.Equal(got, want)
}
