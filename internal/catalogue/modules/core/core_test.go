package core

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

// store holds a daemon's grains.
type store struct {
	mu      sync.Mutex
	all     *value.Dict
	refresh []bool
}

func (s *store) Get(key string) any { return s.All().At(key) }

func (s *store) All() *value.Dict {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

func (s *store) Grains() *value.Dict { return s.All() }

func (s *store) Change(set *value.Dict, remove []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all.Clone()
	all.Update(set)
	for _, k := range remove {
		all.Delete(k)
	}
	s.all = all
}

func (s *store) Refresh(_ context.Context, pillar bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh = append(s.refresh, pillar)
	return nil
}

func registry(t *testing.T, s *store) *fn.Registry {
	t.Helper()
	r, err := fn.NewRegistry(s, append(Modules(), Grains(s))...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCatalogue(t *testing.T) {
	fntest.Catalogue(t, append(Modules(), Grains(nil)))
}

const table = "testdata/jobs.json"

func TestLikeSalt(t *testing.T) {
	opts := stocktest.Options(t, table)
	grains := opts.Dict("grains").Clone()
	grains.Set("id", "alpha")
	opts.Set("conf_file", filepath.Join(t.TempDir(), "minion"))
	s := &store{all: grains}
	r := registry(t, s)
	stocktest.Compare(t, table, r, func() *fn.Call { return &fn.Call{Grains: s, Config: fn.Tree{Dict: opts}} })
}

func TestRecordingIsTrue(t *testing.T) { stocktest.Verify(t, table) }

func run(t *testing.T, r *fn.Registry, c *fn.Call, fun string, arg ...any) fn.Outcome {
	t.Helper()
	return r.Run(t.Context(), c, fn.Job{Fun: fun, Arg: arg})
}

func TestSleepEndsWithTheContext(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	synctest.Test(t, func(t *testing.T) {
		if o := run(t, r, &fn.Call{}, "test.sleep", 86400.5); o.Return != true {
			t.Errorf("got %+v", o)
		}
		why := errors.New("job was ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { synctest.Wait(); cancel(why) }()
		if o := r.Run(ctx, &fn.Call{}, fn.Job{Fun: "test.sleep", Arg: []any{86400}}); !errors.Is(o.Err, why) {
			t.Errorf("got %+v", o)
		}
	})
}

func TestNumbers(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	first := func(v any) string { return value.Repr(v.(value.Tuple)[0]) }
	if got := first(run(t, r, &fn.Call{}, "test.fib", 100).Return); got != "354224848179261915075" {
		t.Errorf("fib %s", got)
	}
	if got := first(run(t, r, &fn.Call{}, "test.collatz", 3).Return); got != "[3, 10, 5.0, 16.0, 8.0, 4.0, 2.0]" {
		t.Errorf("collatz %s", got)
	}
	for _, o := range []fn.Outcome{run(t, r, &fn.Call{}, "test.fib", -1), run(t, r, &fn.Call{}, "test.collatz", 0),
		run(t, r, &fn.Call{}, "test.collatz", int64(1)<<62-1)} {
		if o.Success || !strings.HasPrefix(value.Str(o.Return), "The minion function caused an exception: ") {
			t.Errorf("got %+v", o)
		}
	}
}

func TestRandomHash(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	for arg, length := range map[string]int{"hash_type=md5": 32, "hash_type=sha1": 40, "hash_type=sha512": 128, "size=0": 64} {
		if got := run(t, r, &fn.Call{}, "test.random_hash", arg).Return; len(value.Str(got)) != length {
			t.Errorf("%s: %v", arg, got)
		}
	}
	// the hash of "0" is known
	if got := run(t, r, &fn.Call{}, "test.random_hash", "size=0").Return; got != "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9" {
		t.Errorf("got %v", got)
	}
	if o := run(t, r, &fn.Call{}, "test.random_hash", "hash_type=x"); o.Success {
		t.Errorf("got %+v", o)
	}
}

func TestVersions(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	if got := run(t, r, &fn.Call{}, "test.version").Return; got != "3007.10" {
		t.Errorf("got %v", got)
	}
	report := value.Str(run(t, r, &fn.Call{}, "test.versions_report").Return)
	if !strings.HasPrefix(report, "Salt Version:\n") || !strings.Contains(report, " Salt: 3007.10\n") || !strings.Contains(report, "\nGo Version:\n") {
		t.Errorf("got %s", report)
	}
}

func TestGrainsFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "grains")
	if err := os.WriteFile(path, []byte("old: [1, 2]\nother: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &store{all: value.DictOf("old", value.ListOf(1, 2))}
	r := registry(t, s)
	call := func() *fn.Call {
		return &fn.Call{Grains: s, Config: fn.Tree{Dict: value.DictOf("conf_file", filepath.Join(dir, "minion"))}}
	}
	before := s.All().At("old")
	run(t, r, call(), "grains.append", "old", 3)
	run(t, r, call(), "grains.setval", "b", "x: y", "refresh_pillar=false")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := "b: 'x: y'\nold:\n- 1\n- 2\n- 3\nother: x\n"; string(data) != want {
		t.Errorf("file:\n%swant:\n%s", data, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode changed: %v %v", info.Mode(), err)
	}
	if value.Repr(before) != "[1, 2]" {
		t.Errorf("the grains that others may be reading were changed: %s", value.Repr(before))
	}
	if len(s.refresh) != 2 || !s.refresh[0] || s.refresh[1] {
		t.Errorf("refreshed %v", s.refresh)
	}
	if left, _ := filepath.Glob(dir + "/.grains*"); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	if err := os.WriteFile(path, []byte("a: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := run(t, r, call(), "grains.setval", "c", 1); !strings.HasPrefix(value.Str(o.Return), "Unable to read existing grains file: ") {
		t.Errorf("a broken file: %+v", o)
	}
	o := run(t, r, call(), "grains.set", "c", 1)
	if d, ok := o.Return.(*value.Dict); !ok || d.Bool("result") || o.Retcode != 1 {
		t.Errorf("a broken file: %+v", o)
	}
	if o := run(t, r, &fn.Call{Grains: s}, "grains.setval", "c", 1); o.Success {
		t.Errorf("without conf_file: %+v", o)
	}
}

// TestGrainsAreNotLost checks that concurrent appends of many jobs are all kept.
func TestGrainsAreNotLost(t *testing.T) {
	s := &store{all: value.NewDict(0)}
	r := registry(t, s)
	conf := fn.Tree{Dict: value.DictOf("conf_file", t.TempDir())}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r.Run(context.Background(), &fn.Call{Grains: s, Config: conf}, fn.Job{Fun: "grains.append", Arg: []any{"l", i}})
		})
	}
	wg.Wait()
	if n := len(s.All().List("l")); n != 20 {
		t.Errorf("%d of 20", n)
	}
}

func TestConfigSources(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	call := func() *fn.Call {
		return &fn.Call{
			Config: fn.Tree{Dict: value.DictOf("k", value.DictOf("a", 1, "o", "opts"), "l", value.ListOf(1), "m.x", 1)},
			Grains: fn.Tree{Dict: value.DictOf("k", value.DictOf("a", 2, "g", "grains"))},
			Pillar: fn.Tree{Dict: value.DictOf("k", value.DictOf("a", 3, "p", "pillar"), "l", value.ListOf(2),
				"master", value.DictOf("k", value.DictOf("a", 4, "m", "master"), "m.y", 2))},
		}
	}
	for _, tt := range []struct {
		fun  string
		arg  []any
		want string
	}{
		{"config.get", []any{"k:a"}, "1"},
		{"config.get", []any{"k:g"}, "'grains'"},
		{"config.get", []any{"k:p"}, "'pillar'"},
		{"config.get", []any{"k:m"}, "'master'"},
		{"config.get", []any{"k:a", "omit_opts=true"}, "2"},
		{"config.get", []any{"k", "merge=recurse"}, "{'a': 1, 'm': 'master', 'p': 'pillar', 'g': 'grains', 'o': 'opts'}"},
		{"config.get", []any{"k", "merge=overwrite"}, "{'a': 1, 'o': 'opts'}"},
		{"config.merge", []any{"k"}, "{'a': 1, 'p': 'pillar', 'm': 'master', 'o': 'opts'}"},
		{"config.merge", []any{"l"}, "[1, 2]"},
		{"config.option", []any{"k", "omit_opts=true", "omit_grains=true", "omit_pillar=true"}, "{'a': 4, 'm': 'master'}"},
		{"config.dot_vals", []any{"m"}, "{'m.y': 2, 'm.x': 1}"},
	} {
		if got := value.Repr(run(t, r, call(), tt.fun, tt.arg...).Return); got != tt.want {
			t.Errorf("%s %v: got %s, want %s", tt.fun, tt.arg, got, tt.want)
		}
	}
}

func TestSysOtherKinds(t *testing.T) {
	states, err := fn.NewRegistry(nil, fn.Module{Name: "file", Funcs: []fn.Func{fn.Of("managed", test{}.echo, "Keep a file.")}})
	if err != nil {
		t.Fatal(err)
	}
	r := registry(t, &store{all: value.NewDict(0)})
	r.Document("states", func() *fn.Registry { return states })
	c := func() *fn.Call { return &fn.Call{} }
	for fun, want := range map[string]string{
		"sys.list_state_modules":   "['file']",
		"sys.list_state_functions": "['file.managed']",
		"sys.list_runners":         "[]",
		"sys.list_renderers":       "[]",
		"sys.returner_doc":         "{}",
		"sys.state_doc":            `{'file.managed': '\n    Keep a file.\n\n    text\n        what to return\n    '}`,
	} {
		if got := value.Repr(run(t, r, c(), fun).Return); got != want {
			t.Errorf("%s: got %s, want %s", fun, got, want)
		}
	}
}
