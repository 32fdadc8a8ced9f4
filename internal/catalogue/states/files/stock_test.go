package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// outcome is the part of a result that is compared.
type outcome struct {
	Crash    string
	Result   any
	Comment  string
	Changes  any
	Warnings any
}

// recording is what stock Salt did; see testdata/record.py.
type recording struct {
	Tree  map[string]*string
	Cases []struct {
		Fun              string
		Args             map[string]any
		Test, Run, Again outcome
		Tree             map[string][]any
		Gone             []string
	}
}

func recorded(t testing.TB) (r recording) {
	t.Helper()
	b, err := os.ReadFile("testdata/states.json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// stage is a directory with the tree, and an engine that works on it.
type stage struct {
	t    *testing.T
	root string
	deps engine.Deps
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, root: t.TempDir()}
	states, err := state.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	r := render.New(render.Options{})
	s.deps = engine.Deps{States: states, Log: quiet}
	s.deps.Call = func() *fn.Call {
		srv := fileserver.New(fileserver.Options{
			FileRoots: value.DictOf("base", value.ListOf(s.root+"/srv")), Backends: []string{"roots"}, FollowSymlinks: true, IgnoreRegex: value.ListOf(),
			IgnoreGlob: value.ListOf(),
		}, fileserver.Config{CacheDir: s.root + "/cache", HashType: "sha256"}, quiet)
		files := fileclient.New(srv, fileclient.Options{CacheDir: s.root + "/cache/minion", HashType: "sha256"}, quiet)
		return &fn.Call{ID: "rec", Files: files, Config: fn.Tree{Dict: value.DictOf("cachedir", s.root+"/cache")}}
	}
	s.deps.Template = func(ctx context.Context, c *fn.Call, tm state.Template) (string, error) {
		return r.Text(ctx, tm.Engine, render.Request{Source: []byte(tm.Source), Path: tm.Name, Saltenv: tm.Saltenv, Context: tm.Context})
	}
	return s
}

// build recreates the tree.
func (s *stage) build(tree map[string]*string) {
	s.t.Helper()
	for _, sub := range []string{"srv", "w"} {
		if err := os.RemoveAll(filepath.Join(s.root, sub)); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, text := range tree {
		name, mode, _ := strings.Cut(name, ":")
		path := filepath.Join(s.root, name)
		dir := filepath.Dir(path)
		if text == nil {
			dir = path
		}
		err := os.MkdirAll(dir, 0o755)
		if err == nil && text != nil {
			if to, ok := strings.CutPrefix(*text, "->"); ok {
				err = os.Symlink(to, path)
			} else {
				bits, _ := strconv.ParseUint(mode+strings.Repeat("0644", btoi(mode == "")), 8, 32)
				if err = os.WriteFile(path, []byte(*text), 0o600); err == nil {
					err = os.Chmod(path, fs.FileMode(bits))
				}
			}
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// look describes the tree in the format of the recording.
func (s *stage) look() map[string][]any {
	out := map[string][]any{}
	err := filepath.WalkDir(filepath.Join(s.root, "w"), func(p string, e fs.DirEntry, err error) error {
		if err != nil || p == s.root+"/w" {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		what := []any{fmt.Sprintf("0o%o", st.Mode&0o7777), float64(st.Uid), float64(st.Gid)}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			what[0] = "->" + strings.ReplaceAll(to, s.root, "ROOT")
		case info.Mode().IsRegular():
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			runes := make([]rune, len(b))
			for i, c := range b {
				runes[i] = rune(c)
			}
			what = append(what, string(runes))
		}
		out[strings.ReplaceAll(p, s.root, "ROOT")] = what
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return out
}

// fill inserts the directory into arguments.
func (s *stage) fill(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "ROOT", s.root)
	case []any:
		l := value.ListOf()
		for _, it := range v {
			l.Append(s.fill(it))
		}
		return l
	case map[string]any:
		d := value.NewDict(len(v))
		for k, it := range v {
			d.Set(k, s.fill(it))
		}
		return d
	case float64:
		return int64(v)
	}
	return v
}

// run runs a state and returns what is compared.
func (s *stage) run(fun string, args map[string]any, test bool) outcome {
	mod, name, _ := strings.Cut(fun, ".")
	low := value.DictOf("state", mod, "fun", name, "__id__", "x", "__sls__", "x", "__env__", "base", "order", int64(1))
	for k, v := range args {
		low.Set(k, s.fill(v))
	}
	r := engine.New(s.deps, engine.Options{Test: test}).Single(s.t.Context(), low)
	o := outcome{Result: r.At("result"), Comment: strings.ReplaceAll(value.Str(r.At("comment")), s.root, "ROOT"), Changes: s.plain(r.At("changes"))}
	if w := r.At("warnings"); w != nil {
		o.Warnings = s.plain(w)
	}
	return o
}

// plain converts a value to the types of decoded JSON.
func (s *stage) plain(v any) any {
	switch v := v.(type) {
	case *value.Dict:
		m := map[string]any{}
		for k, it := range v.All() {
			m[strings.ReplaceAll(value.Str(k), s.root, "ROOT")] = s.plain(it)
		}
		return m
	case *value.List:
		l := []any{}
		for _, it := range v.Items {
			l = append(l, s.plain(it))
		}
		return l
	case string:
		return strings.ReplaceAll(v, s.root, "ROOT")
	case int64:
		return float64(v)
	}
	return v
}

// TestAgainstStock runs every recorded scenario as a test, for real and again.
func TestAgainstStock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("owners can only be changed by root")
	}
	old := syscall.Umask(0o022)
	defer syscall.Umask(old)
	rec := recorded(t)
	for i, c := range rec.Cases {
		args, _ := json.Marshal(c.Args)
		if betters[c.Fun+" "+string(args)] != "" {
			continue
		}
		t.Run(fmt.Sprintf("%03d %s %s", i, c.Fun, args), func(t *testing.T) {
			s := newStage(t)
			s.build(rec.Tree)
			before := s.look()
			s.compare("test", s.run(c.Fun, c.Args, true), c.Test)
			if after := s.look(); !reflect.DeepEqual(before, after) {
				t.Errorf("a test changed something")
			}
			s.build(rec.Tree)
			s.compare("run", s.run(c.Fun, c.Args, false), c.Run)
			s.tree(before, c.Tree, c.Gone)
			s.compare("again", s.run(c.Fun, c.Args, false), c.Again)
		})
	}
}

// compare checks that the outcomes are equal.
func (s *stage) compare(when string, got, want outcome) {
	s.t.Helper()
	if want.Crash != "" { // Brine returns an error where Salt has a traceback
		if got.Result != false || got.Comment == "" {
			s.t.Errorf("%s: %+v; Salt fails: %s", when, got, want.Crash)
		}
		return
	}
	if strings.HasPrefix(want.Comment, "An exception occurred in this state: Traceback") {
		lines := strings.Split(strings.TrimSpace(want.Comment), "\n")
		_, want.Comment, _ = strings.Cut(lines[len(lines)-1], ": ")
	}
	got.Comment, want.Comment = sections(got.Comment), sections(want.Comment)
	sortRemoved(got.Changes)
	sortRemoved(want.Changes)
	if got.Result != want.Result || got.Comment != want.Comment || !reflect.DeepEqual(got.Changes, want.Changes) ||
		!reflect.DeepEqual(got.Warnings, want.Warnings) {
		s.t.Errorf("%s:\n got %v %q %v %v\nwant %v %q %v %v", when, got.Result, got.Comment, got.Changes, got.Warnings, want.Result, want.Comment,
			want.Changes, want.Warnings)
	}
}

// sections sorts the parts of a comment that Salt shows in random order.
func sections(comment string) string {
	parts := strings.Split("\n"+comment, "\n#### ")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	slices.Sort(parts)
	return strings.TrimSpace(strings.Join(parts, "\n\n#### "))
}

// sortRemoved sorts the removed files in changes.
func sortRemoved(changes any) {
	m, _ := changes.(map[string]any)
	if l, ok := m["removed"].([]any); ok {
		slices.SortFunc(l, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// betters lists scenarios in which Brine deliberately differs from Salt, with the reason.
var betters = map[string]string{
	`file.managed {"name":"ROOT/w/new","source":"ROOT/srv/a.txt","source_hash":"md5=00000000000000000000000000000000"}`: "a wrong hash fails in tests, too",
	`file.directory {"name":"ROOT/w/d","recurse":["user","silent"],"user":"nobody"}`:                                    "silent is silent",
	`file.directory {"name":"ROOT/w/no/new"}`: "a failure shows no change " +
		"that was not made",
	`file.symlink {"force":true,"name":"ROOT/w/d","target":"conf"}`: "force replaces directories, as documented",
	`file.touch {"mtime":1000000000,"name":"ROOT/w/old"}`:           "what is right is not touched again",
}

// tree checks that the same files have changed.
func (s *stage) tree(before, changed map[string][]any, gone []string) {
	s.t.Helper()
	want := map[string][]any{}
	for k, v := range before {
		want[k] = v
	}
	for _, k := range gone {
		delete(want, k)
	}
	for k, v := range changed {
		want[k] = v
	}
	got := s.look()
	for k, v := range got {
		if !reflect.DeepEqual(v, want[k]) {
			s.t.Errorf("%s is %q, want %q", k, v, want[k])
		}
	}
	for k := range want {
		if got[k] == nil {
			s.t.Errorf("%s is missing", k)
		}
	}
}
