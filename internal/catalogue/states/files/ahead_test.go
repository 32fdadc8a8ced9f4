package files

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
)

// applied runs file.managed states. before is called just before each of them.
func applied(t *testing.T, before func(id string), chunks ...*value.Dict) *value.Dict {
	t.Helper()
	states, err := state.NewRegistry(nil, Modules(&host.Machine{})...)
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(engine.Deps{
		States: states,
		Call:   func() *fn.Call { return &fn.Call{} },
		Hold:   func(_ context.Context, id string) bool { before(id); return false },
	}, engine.Options{})
	return e.Run(t.Context(), chunks)
}

func managedChunk(path, contents string, more ...any) *value.Dict {
	d := value.DictOf("state", "file", "fun", "managed", "__id__", path, "name", path, "__sls__", "s", "contents", contents)
	d.Update(value.DictOf(more...))
	return d
}

// TestAhead writes many files in one run. Files written ahead must be invisible
// before their state runs, must be used only if they still have the wanted
// content, and must all be gone afterwards.
func TestAhead(t *testing.T) {
	dir := t.TempDir()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
	var chunks []*value.Dict
	for i := range 100 {
		chunks = append(chunks, managedChunk(path(i), fmt.Sprintf("content %d", i), "mode", "0640"))
	}
	os.WriteFile(path(7), []byte("content 7\n"), 0o640) // already correct
	os.WriteFile(path(8), []byte("something\n"), 0o604)
	chunks[9].Delete("mode")
	chunks[10].Set("makedirs", true)
	sub := filepath.Join(dir, "sub", "f")
	chunks[10].Set("name", sub)
	os.Mkdir(filepath.Join(dir, "d"), 0o700)
	inD := filepath.Join(dir, "d", "f")
	chunks[12].Set("name", inD)
	aside := 0
	results := applied(t, func(id string) {
		if id == path(1) {
			aside = len(temporaries(t, dir))
		}
		for i := range 100 {
			if id == path(i) && i != 7 && i != 8 && i != 12 && i != 10 {
				if _, err := os.Stat(id); err == nil {
					t.Errorf("%s is there before its turn", id)
				}
			}
		}
		if id == path(12) { // changes what the file inherits
			if err := os.Chmod(filepath.Join(dir, "d"), 0o711); err != nil {
				t.Error(err)
			}
		}
		if id == path(20) { // changed just before its state uses it
			for _, f := range temporaries(t, dir) {
				if b, _ := os.ReadFile(f); string(b) == "content 20\n" {
					os.WriteFile(f, []byte("forged\n"), 0o600)
				}
			}
		}
	}, chunks...)
	if aside < 40 {
		t.Errorf("only %d files were written aside", aside)
	}
	for i := range 100 {
		name := value.Str(chunks[i].At("name"))
		b, err := os.ReadFile(name)
		st, e := os.Stat(name)
		want := os.FileMode(0o640)
		if i == 9 {
			want = 0o644
		}
		if err != nil || e != nil || string(b) != fmt.Sprintf("content %d\n", i) || st.Mode().Perm() != want {
			t.Errorf("%s: %q %v %v %v", name, b, st.Mode(), err, e)
		}
	}
	for tag, r := range results.All() {
		if r.(*value.Dict).At("result") != true {
			t.Errorf("%v: %v", tag, value.Repr(r))
		}
	}
	if left := temporaries(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestAheadOfFailure ends a run before the states whose files were written ahead.
func TestAheadOfFailure(t *testing.T) {
	dir := t.TempDir()
	var chunks []*value.Dict
	for i := range 20 {
		chunks = append(chunks, managedChunk(filepath.Join(dir, fmt.Sprint(i)), "x", "failhard", true))
	}
	chunks[3].Set("name", filepath.Join(dir, "none", "f")) // its directory does not exist
	applied(t, func(string) {}, chunks...)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 3 {
		t.Errorf("%v %v", entries, err)
	}
}

// TestAheadOfRecurse writes many files with one state. The first one writes ahead and
// flushes those after it. Files that changed meanwhile, or whose directory does not
// exist yet, must be written, too.
func TestAheadOfRecurse(t *testing.T) {
	dir := t.TempDir()
	run := state.NewRun([]*value.Dict{value.DictOf("state", "file", "fun", "recurse")})
	e := &state.Env{Call: &fn.Call{}, Low: run.Chunks[0], Run: run}
	const n = aheadStates + 6
	var g group
	var plans []state.Plan
	path := func(i int) string {
		if i == 5 {
			return filepath.Join(dir, "sub", "f")
		}
		return filepath.Join(dir, fmt.Sprint(i))
	}
	if err := os.WriteFile(path(7), []byte("content 7\n"), 0o640); err != nil { // already correct
		t.Fatal(err)
	}
	for i := range n {
		m := newManaged(&host.Machine{}, e, &managedArgs{Name: path(i), Mode: "0640", Makedirs: true, Replace: true, Create: true,
			FollowSymlinks: true})
		m.args.Contents, m.args.ContentsNewline, m.args.AllowEmpty = fmt.Sprintf("content %d", i), true, true
		p, err := m.planned(t.Context(), &g)
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	if len(g.files) != n-1 {
		t.Errorf("%d of %d files are to be written", len(g.files), n)
	}
	for i, p := range plans {
		if i == 9 {
			if err := os.WriteFile(path(9), []byte("of another user\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, s := range p.Steps {
			if _, err := s.Do(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if aside := len(temporaries(t, dir)); i == 0 && aside != aheadStates-2 { // without the first one and the one in sub
			t.Errorf("%d files were written aside", aside)
		}
		if _, err := os.Stat(path(i + 1)); i == 1 && err == nil {
			t.Errorf("%s is there before its turn", path(i+1))
		}
		st, err := os.Stat(path(i))
		b, e := os.ReadFile(path(i))
		if err != nil || e != nil || string(b) != fmt.Sprintf("content %d\n", i) || st.Mode().Perm() != 0o640 {
			t.Errorf("%s: %q %v %v %v", path(i), b, st, err, e)
		}
	}
	run.End()
	if left := temporaries(t, dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// temporaries returns the unnamed files in a directory, and those with hidden
// temporary names.
func temporaries(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), atomicfile.TempPrefix) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Error(err)
	}
	for _, fd := range open {
		if to, err := os.Readlink(fd); err == nil && filepath.Dir(to) == dir && strings.HasSuffix(to, " (deleted)") {
			out = append(out, fd)
		}
	}
	return out
}
