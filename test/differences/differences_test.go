// Package differences checks docs/differences.md: for each kind of module or option that Salt loads
// by name, the page lists exactly the names that Brine lacks.
//
// testdata/salt-3007.10.txt holds the names of Salt 3007.10: of its modules of
// each kind for all platforms, of the options that it knows, and of the
// functions of those modules that Brine has.
package differences

import (
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue"
	"brine/internal/catalogue/actions/sdb"
	"brine/internal/catalogue/beacons"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/catalogue/wheel"
	"brine/internal/cli/migrate/compat"
	"brine/internal/daemons/config"
	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/files/fileserver"
	"brine/internal/files/fileserver/backends"
	"brine/internal/host"
	"brine/internal/sls/pillar"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
)

const page = "../../docs/differences.md"

// table reads Salt's names by kind. A kind is one or two words, for functions followed by the
// module.
func table(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("testdata/salt-3007.10.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		kind, names, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			t.Fatalf("malformed: %q", line)
		}
		out[kind] = strings.Fields(names)
	}
	return out
}

var (
	// mark begins a list in the page, which ends with the next heading.
	mark   = regexp.MustCompile(`^<!-- names: ([a-z ]+) -->$`)
	quoted = regexp.MustCompile("`([^`]+)`")
	row    = regexp.MustCompile("^\\| `([^`]+)` \\| (.*) \\|$")
)

// listed reads the lists of the page. In a list of functions each row of the
// table is a module, and the kind is followed by its name.
func listed(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	kind := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch m := mark.FindStringSubmatch(line); {
		case m != nil:
			kind = m[1]
			out[kind] = nil
		case strings.HasPrefix(line, "#") || line == "<!-- end -->":
			kind = ""
		case kind == "":
		case strings.HasSuffix(kind, "functions"):
			if r := row.FindStringSubmatch(line); r != nil {
				key := strings.TrimSuffix(kind, "s") + " " + r[1]
				out[key] = append(out[key], words(r[2])...)
			}
		default:
			out[kind] = append(out[kind], words(line)...)
		}
	}
	return out
}

func words(line string) (names []string) {
	for _, m := range quoted.FindAllStringSubmatch(line, -1) {
		names = append(names, m[1])
	}
	return names
}

func moduleNames(all []fn.Module) (names []string) {
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}

func functionNames(m fn.Module) (names []string) {
	for i := range m.Funcs {
		names = append(names, m.Funcs[i].Name())
	}
	return names
}

// have returns the names that Brine has, by kind.
func have(t *testing.T) map[string][]string {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	files := slices.Collect(maps.Keys(backends.More(backends.Options{}, backends.Config{CacheDir: t.TempDir(), Files: fileserver.Options{}, Log: log})))
	out := map[string][]string{
		"modules": moduleNames(minion.Catalogue()), "runners": moduleNames(runners.New(runners.Deps{})), "wheel": moduleNames(wheel.New(wheel.Deps{})),
		"renderers": render.Names(), "outputters": output.Names(), "returners": returner.Names(), "beacons": slices.Collect(maps.Keys(beacons.All(&host.Machine{}))),
		"auth": auth.Systems(), "pillar": pillar.Externals(), "tops": master.TopSources(), "file server": append(files, "roots"), "executors": minion.ExecutorNames(),
		"cache": drivers.Names(), "tokens": {"localfs"}, "sdb": sdb.Names(),
	}
	for _, m := range minion.Catalogue() {
		out["function "+m.Name] = append(out["function "+m.Name], functionNames(m)...)
	}
	for _, m := range runners.New(runners.Deps{}) {
		out["runner function "+m.Name] = functionNames(m)
	}
	for _, m := range wheel.New(wheel.Deps{}) {
		out["wheel function "+m.Name] = functionNames(m)
	}
	for _, m := range states(t) {
		out["states"] = append(out["states"], m.Name)
		for i := range m.Funcs {
			out["state function "+m.Name] = append(out["state function "+m.Name], m.Funcs[i].Name())
		}
	}
	for _, ptr := range []any{&config.Master{}, &config.Minion{}} {
		all, err := config.Describe(config.MasterKind, ptr)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			out["options"] = append(append(out["options"], d.Name), d.Alias...)
		}
	}
	for _, k := range []config.Kind{config.MasterKind, config.MinionKind} {
		all, err := config.DescribeByName(k)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			out["options"] = append(out["options"], d.Name)
		}
	}
	out["options"] = append(out["options"], readByName...)
	out["serializers"] = []string{"configparser", "json", "keyvalue", "msgpack", "plist", "python", "toml", "yaml", "yamlex"}
	out["queues"] = []string{"sqlite"}
	return out
}

// readByName are the options of salt-api, and two that Salt sets itself.
var readByName = strings.Fields(`netapi_enable_clients rest_timeout conf_file local`)

func states(t *testing.T) []state.Module {
	t.Helper()
	return catalogue.States(orchestration.Deps{})
}

// TestPageListsWhatIsMissing compares, for each kind, Salt's names that Brine lacks with the list
// in the page.
func TestPageListsWhatIsMissing(t *testing.T) {
	salts, ours, page := table(t), have(t), listed(t)
	for _, kind := range slices.Sorted(maps.Keys(salts)) {
		want := map[string]bool{}
		for _, n := range salts[kind] {
			want[n] = true
		}
		for _, n := range ours[kind] {
			delete(want, n)
		}
		if strings.Contains(kind, "function ") && ours[kind] == nil {
			t.Errorf("%s: Brine does not have the module: take the row out of testdata", kind)
			continue
		}
		for _, n := range page[kind] {
			if !want[n] {
				t.Errorf("%s: the page lists %s, which Brine has, or Salt has not, or which is there twice: take it out", kind, n)
			}
			delete(want, n)
		}
		for _, n := range slices.Sorted(maps.Keys(want)) {
			t.Errorf("%s: Brine does not have %s of Salt's: list it", kind, n)
		}
	}
	for kind := range page {
		if _, ok := salts[kind]; !ok && len(page[kind]) > 0 {
			t.Errorf("the page lists %s, of which testdata has no names", kind)
		}
	}
}

// TestLackingFunctions compares the page with the functions that migrate check takes for those of Salt alone.
func TestLackingFunctions(t *testing.T) {
	page := listed(t)
	for prefix, lacking := range map[string]map[string]string{"function ": compat.LackingFunctions(), "state function ": compat.LackingStates()} {
		rows := 0
		for row, names := range page {
			if module, ok := strings.CutPrefix(row, prefix); ok {
				rows++
				if got := strings.Fields(lacking[module]); !slices.Equal(got, names) {
					t.Errorf("%s%s: migrate check has %v, the page %v", prefix, module, got, names)
				}
			}
		}
		if rows != len(lacking) {
			t.Errorf("%s: migrate check has %d modules, the page %d", prefix, len(lacking), rows)
		}
	}
}

// TestModulesHaveTheirFunctions fails if Brine has a module whose functions in Salt are missing in
// testdata.
func TestModulesHaveTheirFunctions(t *testing.T) {
	salts, ours := table(t), have(t)
	for prefix, kind := range map[string]string{"function ": "modules", "state function ": "states", "runner function ": "runners", "wheel function ": "wheel"} {
		for _, m := range ours[kind] {
			// A module without functions exists only to refuse: it is for another system.
			if slices.Contains(salts[kind], m) && salts[prefix+m] == nil && len(ours[prefix+m]) > 0 {
				t.Errorf("testdata lacks a row %q: the names of Salt's functions of the module", prefix+m)
			}
		}
	}
}

// TestUnsupportedNames compares the page with the lists that errors use to say that only Salt has a
// state module or beacon.
func TestUnsupportedNames(t *testing.T) {
	page := listed(t)
	salts, ours := table(t)["options"], have(t)["options"]
	ineffective := map[string]bool{}
	for _, o := range config.IneffectiveOptions() {
		ineffective[o.Name] = true
		// An option that Brine has is without effect only in the other daemon.
		if slices.Contains(salts, o.Name) && !slices.Contains(ours, o.Name) && !slices.Contains(page["options"], o.Name) {
			t.Errorf("the configuration warns that %s has no effect, and the page does not list it", o.Name)
		}
	}
	for _, n := range page["options"] {
		if !ineffective[n] {
			t.Errorf("the page lists the option %s, and a start with it says nothing: add it to internal/daemons/config/ineffective.go", n)
		}
	}
	for _, n := range page["states"] {
		if !state.Unsupported(n) {
			t.Errorf("internal/sls/state/unsupported.go lacks %s", n)
		}
	}
	for _, n := range page["beacons"] {
		if beacons.Unsupported(n) == "" {
			t.Errorf("internal/catalogue/beacons/unsupported.go lacks %s", n)
		}
	}
}
