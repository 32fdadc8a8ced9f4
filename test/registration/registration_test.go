// Package registration proves that a new unit of any kind changes one file, or two if its package
// must be imported. It adds one of each kind to the tree and runs the result.
package registration

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/test/tools"
)

// unit is a new unit of a kind, named unit_x. Its files are below internal.
type unit struct {
	kind  string
	files map[string]string
	// imports are lines to insert after the first import line of existing files.
	imports map[string]string
}

const driver = `package unitx

import (
	"time"

	"brine/internal/net/remote"
	"brine/internal/store/cache"
)

func init() {
	cache.RegisterDriver("unit_x", func(remote.Source, time.Duration) (cache.Driver, error) { return nil, nil })
}
`

// file returns a file that imports some packages and calls something in its init function.
func file(pkg, call string, imports ...string) string {
	lines := []string{"package " + pkg}
	for _, i := range imports {
		lines = append(lines, `import "`+i+`"`)
	}
	return strings.Join(append(lines, "func init() { "+call+" }", ""), "\n")
}

const (
	fnPkg    = "brine/internal/call/fn"
	valuePkg = "brine/internal/py/value"
)

func units() []unit {
	one := func(kind, path, text string) unit { return unit{kind, map[string]string{path: text}, nil} }
	return []unit{
		one("execution module", "catalogue/modules/shell/unit_x.go",
			file("shell", `units.Declare("unit_x", func() fn.Module { return fn.Module{Name: "unit_x", Doc: "d"} })`, fnPkg)),
		one("state module", "catalogue/states/core/unit_x.go",
			file("core", `units.Declare("unit_x", func() state.Module { return state.Module{Name: "unit_x", Doc: "d"} })`, "brine/internal/sls/state")),
		one("runner", "catalogue/runners/unit_x.go", file("runners",
			`runners.Register("unit_x", func(Deps) fn.Module { return fn.Module{Name: "unit_x", Doc: "d"} })`, fnPkg)),
		one("wheel module", "catalogue/wheel/unit_x.go", file("wheel",
			`modules.Register("unit_x", func(Deps) fn.Module { return fn.Module{Name: "unit_x", Doc: "d"} })`, fnPkg)),
		one("group of grains", "catalogue/grains/unit_x.go", file("grains",
			`collectors.Register("unit_x", func(context.Context, *collection) (*value.Dict, error) { return value.DictOf("unit_x", true), nil })`, "context", valuePkg)),
		one("beacon", "catalogue/beacons/unit_x.go", file("beacons",
			`kinds.Register("unit_x", func(machine) Beacon { return Beacon{Validate: valid} })`)),
		one("outputter", "call/output/unit_x.go", file("output",
			`outputters.Register("unit_x", (*Printer).quiet)`)),
		one("authentication system", "call/auth/unit_x.go", file("auth",
			`systems.Register("unit_x", func(*value.Dict, *Options) (System, error) { return nil, nil })`, valuePkg)),
		one("returner", "store/returner/unit_x.go", file("returner",
			`kinds.Register("unit_x", kind{open: func(Config) (Returner, error) { return nil, nil }})`)),
		one("renderer", "sls/render/unit_x.go", file("render",
			`steps.Register("unit_x", func(context.Context, *Renderer, *Request, any, string) (any, error) { return nil, nil })`, "context")),
		one("external pillar", "sls/pillar/unit_x.go", file("pillar",
			`externals.Register("unit_x", func(context.Context, *run, *value.Dict, args) (any, error) { return nil, nil })`, "context", valuePkg)),
		one("file server backend", "files/fileserver/backends/unit_x.go", file("backends",
			`makers.Register("unit_x", func(Options, Config, string) (fileserver.Backend, error) { return nil, nil })`, "brine/internal/files/fileserver")),
		one("executor", "daemons/minion/runner/unit_x.go", file("runner",
			`executors.Register("unit_x", executor{run: func(context.Context, *execution) (any, error) { return nil, nil }})`, "context")),
		one("source of master_tops", "daemons/master/unit_x.go", file("master",
			`topSources.Register("unit_x", func(context.Context, string, any) (*value.Dict, error) { return nil, nil })`, "context", valuePkg)),
		one("serializer", "py/serialize/unit_x.go", file("serialize", `register("unit_x", Format{})`)),
		{"cache driver", map[string]string{"store/cache/unitx/unitx.go": driver},
			map[string]string{"store/cache/drivers/drivers.go": "\t_ \"brine/internal/store/cache/unitx\"\n"}},
	}
}

// show prints the names of the units of each kind.
const show = `package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"

	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue"
	"brine/internal/catalogue/beacons"
	"brine/internal/catalogue/grains"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion/runner"
	"brine/internal/files/fileserver/backends"
	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/sls/render"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
)

func names(all []fn.Module) (out []string) {
	for _, m := range all {
		out = append(out, m.Name)
	}
	return out
}

func main() {
	var states, found []string
	for _, m := range catalogue.States(orchestration.Deps{}) {
		states = append(states, m.Name)
	}
	var formats []string
	for _, name := range []string{"json", "unit_x"} {
		if _, ok := serialize.Named(name); ok {
			formats = append(formats, name)
		}
	}
	all, _ := grains.Collect(context.Background(), grains.Options{}, slog.New(slog.DiscardHandler))
	for k := range all.All() {
		found = append(found, value.Str(k))
	}
	json.NewEncoder(os.Stdout).Encode(map[string][]string{
		"execution module": names(catalogue.Modules()), "state module": states, "group of grains": found,
		"runner": names(runners.New(runners.Deps{})), "wheel module": names(wheel.New(wheel.Deps{})), "beacon": beacons.Names(),
		"outputter": output.Names(), "authentication system": auth.Systems(), "returner": returner.Names(), "renderer": render.Names(),
		"external pillar": pillar.Externals(), "file server backend": backends.Names(), "executor": runner.ExecutorNames(),
		"source of master_tops": master.TopSources(), "serializer": formats, "cache driver": drivers.Names(),
	})
}
`

// TestOneFile adds the units by an overlay, so that the source tree can be read-only.
func TestOneFile(t *testing.T) {
	tools.Slow(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	before := names(t, root, nil)
	added := map[string]string{}
	for _, u := range units() {
		if len(u.files) != 1 || len(u.imports) > 1 {
			t.Errorf("a new %s touches %d new files and %d others", u.kind, len(u.files), len(u.imports))
		}
		for path, text := range u.files {
			added[filepath.Join(root, "internal", path)] = text
		}
		for path, line := range u.imports {
			path = filepath.Join(root, "internal", path)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			const imports = "import (\n"
			added[path] = strings.Replace(string(text), imports, imports+line, 1)
		}
	}
	after := names(t, root, added)
	for _, u := range units() {
		if slices.Contains(before[u.kind], "unit_x") || !slices.Contains(after[u.kind], "unit_x") {
			t.Errorf("%s: the units are %v, with a new one %v", u.kind, before[u.kind], after[u.kind])
		}
	}
	if kinds := len(units()); len(before) != kinds {
		t.Errorf("%d kinds are shown and %d get a unit", len(before), kinds)
	}
}

// names runs the program that prints the names, with additional files.
func names(t *testing.T, root string, files map[string]string) map[string][]string {
	t.Helper()
	dir := t.TempDir()
	files = maps.Clone(files)
	if files == nil {
		files = map[string]string{}
	}
	files[filepath.Join(root, "cmd", "showunits", "main.go")] = show
	replace := map[string]string{}
	for path, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "showunits")
	build := exec.Command("go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "./cmd/showunits")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var all map[string][]string
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatal(err)
	}
	return all
}
