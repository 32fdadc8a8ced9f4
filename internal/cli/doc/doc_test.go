package doc

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/catalogue/beacons"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

const reference = "../../../docs/reference"

// TestReferenceIsCurrent compares docs/reference with the declarations.
func TestReferenceIsCurrent(t *testing.T) {
	pages, err := Pages()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range pages {
		if old, err := os.ReadFile(filepath.Join(reference, name)); err != nil || !bytes.Equal(old, text) {
			t.Errorf("docs/reference/%s is not current: run make reference (%v)", name, err)
		}
	}
	err = filepath.WalkDir(reference, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, _ := filepath.Rel(reference, path)
		if pages[name] == nil {
			t.Errorf("docs/reference/%s describes nothing: run make reference", name)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestAllIsDescribed: each option has a description, a default and an example, and each function
// and argument has a description.
func TestAllIsDescribed(t *testing.T) {
	options := 0
	for _, c := range []struct {
		kind config.Kind
		ptr  any
	}{{config.MasterKind, &config.Master{}}, {config.MinionKind, &config.Minion{}}} {
		all, err := config.Describe(c.kind, c.ptr)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			options++
			if d.Doc == "" || d.Type == "" {
				t.Errorf("%s: %s has no description", c.kind, d.Name)
			}
			if d.Example == nil && !unusable[d.Name] {
				t.Errorf("%s: %s has no example: add one to internal/daemons/config/examples.yaml", c.kind, d.Name)
			}
		}
	}
	if options < 530 {
		t.Errorf("only %d options", options)
	}
	for _, k := range kinds() {
		units, err := k.units()
		if err != nil || len(units) == 0 {
			t.Errorf("%s: %d units, %v", k.name, len(units), err)
		}
		for _, u := range units {
			if u.summary == "" {
				t.Errorf("%s: %s has no description", k.name, u.name)
			}
		}
	}
}

// unusable are options that are declared only to report that they have no effect.
var unusable = map[string]bool{"id_function": true}

// TestBeaconExamples: beacons accept the settings of their examples.
func TestBeaconExamples(t *testing.T) {
	for name, b := range beacons.All(&host.Machine{}) {
		v, err := yaml.LoadText(b.Example, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		c, err := beacons.ParseConfig(v)
		if err == nil {
			err = b.Validate(c)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSamples: a sample without its comment signs is a configuration file that sets each option
// once, to its default.
func TestSamples(t *testing.T) {
	for _, s := range samples() {
		text, err := sampleFile(s.name)
		if err != nil {
			t.Fatal(err)
		}
		var active strings.Builder
		for line := range strings.Lines(string(text)) {
			if len(line) > 1 && line[0] == '#' && line[1] != ' ' && line[1] != '#' {
				active.WriteString(line[1:])
			} else if strings.TrimSpace(line) != "" && line[0] != '#' {
				t.Errorf("%s sets something: %q", s.name, line)
			}
		}
		v, err := yaml.LoadText(active.String(), s.name)
		if err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		got, want := v.(*value.Dict), value.DictOf()
		for _, set := range s.sets {
			all, err := described(s.kind, set)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range all {
				want.Set(d.Name, d.Default)
				if n := strings.Count(active.String(), "\n"+d.Name+":"); n > 1 {
					t.Errorf("%s sets %s %d times", s.name, d.Name, n)
				}
			}
		}
		if got.Len() != want.Len() {
			t.Errorf("%s sets %d options of %d", s.name, got.Len(), want.Len())
		}
		for k, v := range want.All() {
			if flow(got.At(k)) != flow(v) {
				t.Errorf("%s sets %v to %s instead of %s", s.name, k, flow(got.At(k)), flow(v))
			}
		}
	}
}

func TestDoc(t *testing.T) {
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"states file.managed", "# file.managed", 0},
		{"modules test", "## test.ping", 0},
		{"options log_level", "# log_level", 0},
		{"options witness", "cluster_witness_secret", 0},
		{"beacons load", "averages", 0},
		{"sample minion", "\n#master: salt\n", 0},
		{"sample api", "", 1},
		{"runners", "## jobs.list_jobs", 0},
		{"modules nothing.here", "", 1},
		{"nothing", "", 1},
		{"", "", 64},
		{"modules test more", "", 64},
		{"--dir x modules", "", 64},
	} {
		var out, faults bytes.Buffer
		env := frame.OSEnv()
		env.Stdout, env.Stderr = &out, &faults
		a := Applet()
		code := a.Run(t.Context(), env, strings.Fields(c.args))
		if code != c.code || !strings.Contains(out.String(), c.want) || code != 0 && faults.Len() == 0 {
			t.Errorf("doc %s: exit code %d, %.200q %.200q", c.args, code, out.String(), faults.String())
		}
	}
}

// TestWrite: Write removes pages of units that no longer exist, and no other files.
func TestWrite(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"modules/gone.md": generated + "x", "own.md": "mine", "modules/own.md": "mine"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"modules/gone.md": false, "own.md": true, "modules/own.md": true, "modules/file.md": true, "README.md": true} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
