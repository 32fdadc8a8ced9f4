package core

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"brine/internal/files/fileclient"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

// knowledge is the test table for the modules that read pillar, data and targets.
const knowledge = "testdata/knowledge.json"

// recordedEnvironment sets the environment of the recording.
func recordedEnvironment(t *testing.T) {
	t.Helper()
	for name, v := range map[string]string{"HOME": "/", "BRINE_T": "", "BRINE_U": ""} {
		t.Setenv(name, v)
	}
	os.Unsetenv("BRINE_T") // Setenv restores it
	os.Unsetenv("BRINE_U")
}

func TestKnowledgeLikeSalt(t *testing.T) {
	recordedEnvironment(t)
	opts := stocktest.Options(t, knowledge)
	grains := opts.Dict("grains")
	opts.Set("cachedir", t.TempDir())
	opts.Set("pki_dir", t.TempDir())
	s, pillar := &store{all: grains}, fn.Tree{Dict: stocktest.Pillar(t, knowledge)}
	stocktest.Compare(t, knowledge, registry(t, s), func() *fn.Call {
		return &fn.Call{Grains: s, Config: fn.Tree{Dict: opts}, Pillar: pillar}
	})
}

func TestKnowledgeRecordingIsTrue(t *testing.T) { stocktest.Verify(t, knowledge) }

func TestPillarOptions(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "top.sls"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opts := value.DictOf("pillar_raise_on_missing", true, "pillar_merge_lists", true, "pillar_roots", value.DictOf("base", value.ListOf(dir)))
	call := func() *fn.Call {
		return &fn.Call{Config: fn.Tree{Dict: opts}, Pillar: fn.Tree{Dict: value.DictOf("a", value.DictOf("l", value.ListOf(1)))}}
	}
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"pillar.get", []any{"no"}, "'ERROR: Pillar key not found: no'"},
		{"pillar.get", []any{"no", "x"}, "'x'"},
		{"pillar.get", []any{"a", value.DictOf("l", value.ListOf(0)), true}, "{'l': [0, 1]}"},
		{"pillar.get", []any{"a", "saltenv=base"}, "{'l': [1]}"},
		{"pillar.file_exists", []any{"top.sls"}, "True"},
		{"pillar.file_exists", []any{"top.sls", "dev"}, "False"},
		{"pillar.file_exists", []any{"../" + filepath.Base(dir) + "/top.sls"}, "False"},
	} {
		if got := value.Repr(run(t, r, call(), c.fun, c.args...).Return); got != c.want {
			t.Errorf("%s %v: got %s, want %s", c.fun, c.args, got, c.want)
		}
	}
	for _, arg := range []string{"pillarenv=dev", "pillar={a: 1}"} {
		if o := run(t, r, call(), "pillar.items", arg); !strings.HasPrefix(value.Str(o.Return),
			"ERROR: there is no master to make a pillar of another environment") {
			t.Errorf("%s: %+v", arg, o)
		}
	}
}

func TestMatchData(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	conf := fn.Tree{Dict: value.DictOf("cachedir", t.TempDir())}
	run(t, r, &fn.Call{Config: conf}, "data.dump", value.DictOf("s", "spam", "l", value.ListOf("a", "b"), "d", value.DictOf("k", 1)))
	for tgt, want := range map[string]bool{"s:sp*": true, "s:x": false, "l:b": true, "l:c": false, "d:k": true, "d:v": false, "s": false, "no:x": false} {
		if o := run(t, r, &fn.Call{Config: conf}, "match.data", tgt); o.Return != want {
			t.Errorf("%s: %+v", tgt, o)
		}
	}
}

func TestDataIsNotLost(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	dir := t.TempDir()
	conf := fn.Tree{Dict: value.DictOf("cachedir", dir)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r.Run(t.Context(), &fn.Call{Config: conf}, fn.Job{Fun: "data.update", Arg: []any{value.Str(int64(i)), i}})
		})
	}
	wg.Wait()
	if keys := run(t, r, &fn.Call{Config: conf}, "data.keys").Return.(*value.List); keys.Len() != 20 {
		t.Errorf("%d of 20", keys.Len())
	}
	if err := os.WriteFile(filepath.Join(dir, "datastore"), []byte{0xc1}, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := run(t, r, &fn.Call{Config: conf}, "data.update", "a", 1); !strings.HasSuffix(value.Str(o.Return), "is damaged; data.clear removes it") {
		t.Errorf("%+v", o)
	}
}

func TestFinger(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "minion.pub"), []byte("-----BEGIN\nabc\n-----END\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	conf := fn.Tree{Dict: value.DictOf("pki_dir", dir, "hash_type", "md5")}
	for arg, want := range map[string]string{"hash_type=null": "0b:ee:89:b0:7a:24:8e:27:c8:3f:c3:d5:95:12:13:c1",
		"hash_type=x": "ERROR executing 'key.finger': there is no hash \"x\"; use md5, sha1, sha224, sha256, sha384 or sha512"} {
		if o := run(t, r, &fn.Call{Config: conf}, "key.finger", arg); o.Return != want {
			t.Errorf("%s: %+v", arg, o)
		}
	}
}

func TestRandom(t *testing.T) {
	r := registry(t, &store{all: value.NewDict(0)})
	text := func(args ...any) string { return value.Str(run(t, r, &fn.Call{}, "random.get_str", args...).Return) }
	if a, b := text(), text(); len(a) != 20 || a == b {
		t.Errorf("%q, %q", a, b)
	}
	if got := text(500, "chars=ab"); len(got) != 500 || strings.Trim(got, "ab") != "" || !strings.Contains(got, "a") || !strings.Contains(got, "b") {
		t.Errorf("%q", got)
	}
	if got := text(200, "lowercase=false", "uppercase=false", "punctuation=false"); strings.Trim(got, decimals) != "" {
		t.Errorf("%q", got)
	}
	for _, arg := range [][]any{{1 << 21}, {5, "lowercase=false", "uppercase=false", "punctuation=false", "digits=false"}} {
		if got := text(arg...); !strings.HasPrefix(got, "ERROR executing") {
			t.Errorf("%v: %q", arg, got)
		}
	}
	for fun, args := range map[string][]any{"random.rand_int": {5, 4}, "random.seed": {0}, "random.sample": {value.ListOf(1), 2},
		"random.shadow_hash": {"ab", "x", "des"}} {
		if o := run(t, r, &fn.Call{ID: "x"}, fun, args...); o.Success || !strings.HasPrefix(value.Str(o.Return), "ERROR executing") {
			t.Errorf("%s: %+v", fun, o)
		}
	}
	a, b := run(t, r, &fn.Call{}, "random.shadow_hash").Return, run(t, r, &fn.Call{}, "random.shadow_hash").Return
	if !strings.HasPrefix(value.Str(a), "$6$") || a == b {
		t.Errorf("%v, %v", a, b)
	}
	if l := run(t, r, &fn.Call{}, "random.shuffle", value.ListOf(1, 2, 3)).Return.(*value.List); l.Len() != 3 {
		t.Errorf("%v", l)
	}
}

const signatures = "testdata/signatures.json"

func TestSignatures(t *testing.T) {
	var mods []fn.Module
	for _, m := range Modules() {
		if slices.Contains([]string{"pillar", "match", "log", "environ", "key", "data", "random", "slsutil", "defaults"}, m.Name) {
			mods = append(mods, m)
		}
	}
	stocktest.Signatures(t, signatures, mods, map[string]string{})
}

func TestSignaturesAreTrue(t *testing.T) { stocktest.Verify(t, signatures) }

const merges = "testdata/merge.json"

// TestMergesLikeSalt merges maps, shows values and makes banners.
func TestMergesLikeSalt(t *testing.T) {
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	stocktest.Compare(t, merges, r, func() *fn.Call { return &fn.Call{} })
}

func TestMergesAreTrue(t *testing.T) { stocktest.Verify(t, merges) }

// tree is a state tree that consists of names only.
type tree map[string][]any

func (t tree) Request(_ context.Context, load *value.Dict) (any, error) {
	return &value.List{Items: t[load.Str("cmd")+" "+load.Str("saltenv")]}, nil
}

func TestStateTree(t *testing.T) {
	src := tree{"_file_list base": {"top.sls", "a/map.jinja", "a/b/x.sls"}, "_dir_list base": {"a", "a/b"}}
	files := fileclient.New(src, fileclient.Options{CacheDir: t.TempDir()}, slog.New(slog.DiscardHandler))
	r, err := fn.NewRegistry(nil, Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		fun  string
		args []any
		want string
	}{
		{"slsutil.file_exists", []any{"a/map.jinja"}, "True"},
		{"slsutil.file_exists", []any{"a"}, "False"},
		{"slsutil.dir_exists", []any{"a/b"}, "True"},
		{"slsutil.path_exists", []any{"a/b"}, "True"},
		{"slsutil.path_exists", []any{"top.sls", "dev"}, "False"},
		{"slsutil.findup", []any{"a/b/", "map.jinja"}, "'a/map.jinja'"},
		{"slsutil.findup", []any{"a/b", value.ListOf("no", "top.sls")}, "'top.sls'"},
		{"slsutil.findup", []any{"", "top.sls"}, "'top.sls'"},
		{"slsutil.findup", []any{"a", "no"}, "'ERROR: File pattern(s) not found in path ancestry'"},
		{"slsutil.findup", []any{"c", "top.sls"}, "\"ERROR executing 'slsutil.findup': Starting path not found in the state tree: c\""},
		{"defaults.get", []any{"none"}, "None"},
		{"defaults.get", []any{"none:a", "else"}, "'else'"},
	} {
		if got := value.Repr(r.Run(t.Context(), &fn.Call{Files: files}, fn.Job{Fun: c.fun, Arg: c.args}).Return); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.fun, c.args, got, c.want)
		}
	}
}
