package usermodules

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/python"
	"brine/internal/catalogue"
	"brine/internal/catalogue/grains"
	"brine/internal/py/value"
	"brine/test/tools"
)

// kindOfDirectory are the loaders of the directories that have modules of the user's.
var kindOfDirectory = map[string]string{
	"_auth": "auth", "_beacons": "beacons", "_cache": "cache", "_engines": "engines", "_executors": "executors", "_fileserver": "fileserver",
	"_grains": "grains", "_log_handlers": "log_handlers", "_matchers": "matchers", "_modules": "modules", "_output": "outputters",
	"_outputters": "outputters", "_pillar": "pillar", "_proxy": "proxy", "_renderers": "renderers", "_returners": "returners",
	"_roster": "roster", "_runners": "runners", "_sdb": "sdb", "_serializers": "serializers", "_states": "states", "_tokens": "tokens",
	"_tops": "tops", "_utils": "utils", "_wheel": "wheel",
}

// TestPublicTrees loads every module in Python of the trees in the directory that
// BRINE_PYTHON_TREES names, a tree per subdirectory. It prints how many can be used on this
// machine, why each other one cannot, and the names of Salt's package that the trees use and Brine lacks. BRINE_PYTHON_LEAST
// is the number of modules that have to be usable.
func TestPublicTrees(t *testing.T) {
	dir := os.Getenv("BRINE_PYTHON_TREES")
	if dir == "" {
		t.Skip("BRINE_PYTHON_TREES names no directory with public trees, one per subdirectory")
	}
	tools.NeedPython(t, "python3", "marshal")
	trees, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := publicTrees{env: onThisMachine(t)}
	for _, tree := range trees {
		if tree.IsDir() {
			sum.add(t, filepath.Join(dir, tree.Name()))
		}
	}
	names := make([]string, 0, len(sum.lacks))
	for name := range sum.lacks {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return 2*(len(sum.lacks[b])-len(sum.lacks[a])) + strings.Compare(a, b) })
	for _, name := range names {
		t.Logf("lacking %s: %d trees, such as %s", name, len(sum.lacks[name]), sum.lacks[name][0])
	}
	t.Logf("%d trees with modules: %d of %d files can be used; %d names of Salt are lacking", sum.trees, sum.loaded, sum.files, len(names))
	if sum.files == 0 {
		t.Errorf("no modules below %s", dir)
	}
	if least, _ := strconv.Atoi(os.Getenv("BRINE_PYTHON_LEAST")); sum.loaded < least {
		t.Errorf("%d modules are fewer than %d", sum.loaded, least)
	}
}

// publicTrees are the sums over trees.
type publicTrees struct {
	env                  *python.Env
	trees, files, loaded int
	lacks                map[string][]string // trees by name
}

// add loads the modules of a tree.
func (s *publicTrees) add(t *testing.T, tree string) {
	loaders := map[string]python.Files{}
	var utils []string
	_ = filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if data, err := os.ReadFile(path); err == nil && strings.HasSuffix(path, ".py") && !strings.Contains(path, "/tests/") {
			s.lacking(filepath.Base(tree), data)
		}
		kind := kindOfDirectory[filepath.Base(filepath.Dir(path))]
		stem, isPython := strings.CutSuffix(e.Name(), ".py")
		if name := filepath.Base(filepath.Dir(path)); kind == "" && e.Name() == "__init__.py" {
			kind, stem = kindOfDirectory[filepath.Base(filepath.Dir(filepath.Dir(path)))], name
		} else if stem == "__init__" {
			return nil
		}
		if kind == "" || !isPython || strings.Contains(path, "/tests/") {
			return nil
		}
		if dir := filepath.Dir(path); kind == "utils" && !slices.Contains(utils, dir) {
			utils = append(utils, dir)
		}
		if loaders[kind].Paths == nil {
			loaders[kind] = python.Files{Paths: map[string]string{}, Claims: map[string][]string{}}
		}
		for loaders[kind].Paths[stem] != "" {
			stem += "_" // of another environment
		}
		loaders[kind].Paths[stem], loaders[kind].Claims[stem] = path, []string{stem}
		return nil
	})
	if len(loaders) == 0 {
		return
	}
	s.trees++
	pool := python.New(python.Config{
		Options: python.Options{Helper: true, Helpers: 1, Idle: time.Minute, Memory: 1 << 30, Program: "/usr/bin/python3"},
		Dir:     t.TempDir(), Log: slog.New(slog.DiscardHandler), Loaders: func() map[string]python.Files { return loaders },
		Path: utils,
	})
	defer pool.Close()
	for kind, files := range loaders {
		_, missing, err := pool.List(t.Context(), s.env, kind)
		if err != nil {
			t.Errorf("%s in %s: %v", kind, tree, err)
			continue
		}
		s.files += len(files.Paths)
		s.loaded += len(files.Paths)
		for stem, path := range files.Paths {
			reason, ok := missing.Get(stem)
			if !ok {
				continue
			}
			s.loaded--
			if reason == nil {
				reason = "its function __virtual__ returned a false value without a reason"
			}
			t.Logf("%s: %s", path[len(filepath.Dir(tree))+1:], value.Str(reason))
		}
	}
}

// lacking counts the names of Salt's package that a file uses and Brine lacks.
func (s *publicTrees) lacking(tree string, data []byte) {
	for _, l := range python.Lacking(data) {
		if s.lacks == nil {
			s.lacks = map[string][]string{}
		}
		if !slices.Contains(s.lacks[l.Name], tree) {
			s.lacks[l.Name] = append(s.lacks[l.Name], tree)
		}
	}
}

// onThisMachine returns the environment of modules that are loaded: this machine's grains and Brine's
// execution functions.
func onThisMachine(t *testing.T) *python.Env {
	log := slog.New(slog.DiscardHandler)
	found, err := grains.Collect(t.Context(), grains.Options{ID: "m1"}, log)
	if err != nil {
		t.Log(err)
	}
	funcs, err := fn.NewRegistry(fn.Tree{Dict: found}, catalogue.Modules()...)
	if err != nil {
		t.Fatal(err)
	}
	call := (&fn.Call{ID: "m1", Grains: fn.Tree{Dict: found}, Pillar: fn.Tree{Dict: value.NewDict(0)}, Config: fn.Tree{Dict: value.DictOf("id", "m1")},
		Funcs: funcs, Log: log}).Prepare()
	return env(call, nil)
}
