package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/log"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// byPrograms are options that no part of a daemon declares. Command-line programs read them, or
// functions read them by config.get; the tests of those show their effect.
var byPrograms = map[string]string{
	"backup_mode":              "internal/sls/state/sources",
	"batch_safe_limit":         "internal/cli/salt",
	"batch_safe_size":          "internal/cli/salt",
	"cli_summary":              "internal/cli/salt",
	"gpg_decrypt_must_succeed": "internal/sls/render",
	"jinja_env":                "internal/sls/render",
	"jinja_sls_env":            "internal/sls/render",
	"failhard":                 "internal/sls/highstate", // of the master, by _master_opts
	"netapi_enable_clients":    "internal/daemons/api",
	"no_proxy":                 "internal/catalogue/modules/network",
	"output_file":              "internal/cli/frame",
	"pillar_raise_on_missing":  "internal/catalogue/modules/core",
	"preserve_minion_cache":    "internal/cli/key",
	"providers":                "internal/catalogue/modules/services",
	"proxy_host":               "internal/catalogue/modules/network",
	"proxy_password":           "internal/catalogue/modules/network",
	"proxy_port":               "internal/catalogue/modules/network",
	"proxy_username":           "internal/catalogue/modules/network",
	"renderer":                 "internal/daemons/master",
	"return":                   "internal/cli/salt",
	"show_jid":                 "internal/cli/salt",
	"show_timeout":             "internal/cli/salt",
	"state_aggregate":          "internal/sls/highstate",
	"state_events":             "internal/sls/highstate",
	"syndic_finger":            "internal/cli/daemon", // by salt-syndic
}

// TestSampleOptions sets each option of the sample files of Salt 3007.10 to a value other than its
// default, one at a time. Each must change the daemon's configuration, be read by a program, or be
// named by the check and at the start.
func TestSampleOptions(t *testing.T) {
	text, err := os.ReadFile("testdata/sample_options.txt")
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		kind, option, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ := strings.Cut(option, ":")
		counts[kind+" "+fateOf(t, config.Kind(kind), name, option)]++
	}
	t.Log(counts)
	if all := counts["master works"] + counts["master named"] + counts["minion works"] + counts["minion named"]; all < 365 {
		t.Errorf("only %d options were tried", all)
	}
}

// fateOf returns "named" if --check-config names the option, else "works".
func fateOf(t *testing.T, kind config.Kind, name, option string) string {
	t.Helper()
	base := "root_dir: " + t.TempDir() + "\nenable_fqdns_grains: false\n"
	for key, v := range map[string]string{"id": "one", "master": "127.0.0.1", "interface": "127.0.0.1"} {
		if key != name {
			base += key + ": " + v + "\n"
		}
	}
	if isNamed(t, kind, base+option+"\n", name) {
		return "named"
	}
	if byPrograms[name] != "" {
		return "works"
	}
	if reflect.DeepEqual(decoded(t, kind, base), decoded(t, kind, base+option+"\n")) {
		t.Errorf("%s %s: nothing changes, and neither the check nor a warning names it", kind, option)
	}
	return "works"
}

// isNamed reports whether --check-config names an option.
func isNamed(t *testing.T, kind config.Kind, conf, name string) bool {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, string(kind)), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	applet := map[config.Kind]frame.Applet{config.MasterKind: MasterApplet(), config.MinionKind: MinionApplet()}[kind]
	var out bytes.Buffer
	env := frame.OSEnv()
	env.Stdout, env.Stderr = &out, &out
	applet.Run(context.Background(), env, []string{"-c", dir, "--check-config"})
	for line := range strings.Lines(out.String()) {
		if words := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" :=", r) }); slices.Contains(words, name) &&
			!strings.HasPrefix(line, "OK") {
			return true
		}
	}
	return false
}

// decoded returns the decoded options of a daemon.
func decoded(t *testing.T, kind config.Kind, conf string) any {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(kind))
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	held := &log.Held{}
	tree, err := config.Load(path, kind, held.Logger())
	if err != nil {
		t.Fatal(err)
	}
	// The paths of the two configurations differ.
	tree.Path = ""
	if kind == config.MasterKind {
		m, err := config.NewMaster(tree, config.ThisMachine(), held.Logger())
		if err != nil {
			t.Errorf("%s: %v", conf, err)
		}
		return m
	}
	m, err := config.NewMinion(tree, config.ThisMachine(), false, held.Logger())
	if err != nil {
		t.Errorf("%s: %v", conf, err)
	}
	return m
}

// accepted are wrong forms that are not wrong for an option: any setting may have any value.
var accepted = map[string]string{
	"master decrypt_pillar": "map of null", "minion decrypt_pillar": "map of null",
	"minion grains": "map map of map map of null", "minion mine_functions": "map of map map of null", "minion x509_signing_policies": "map of map",
}

// TestWrongForms sets each option that is a list or a map to values of other forms. The check, which
// reads the options as the start does, names the option, since a part of it would do nothing.
func TestWrongForms(t *testing.T) {
	wrong := map[string]any{
		"list of lists": value.ListOf(value.ListOf("a")), "list of null": value.ListOf(nil), "map": value.DictOf("xyzzy", 7),
		"map of map": value.DictOf("xyzzy", value.DictOf("a", 1)), "map of null": value.DictOf("xyzzy", nil),
	}
	tried, silent := 0, 0
	for kind, ptr := range map[config.Kind]any{config.MasterKind: &config.Master{}, config.MinionKind: &config.Minion{}} {
		all, err := config.Describe(kind, ptr)
		if err != nil {
			t.Fatal(err)
		}
		byName, err := config.DescribeByName(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range slices.Concat(all, byName) {
			if d.Type != "list" && d.Type != "mapping" && d.Type != "any" {
				continue
			}
			for form, v := range wrong {
				if strings.Contains(accepted[string(kind)+" "+d.Name], form) {
					continue
				}
				tried++
				conf := yaml.Dump(value.DictOf("root_dir", t.TempDir(), "id", "one", "master", "127.0.0.1", "interface", "127.0.0.1",
					"enable_fqdns_grains", false, d.Name, v))
				if !isRemarked(t, kind, ptr, conf, d.Name) && !isNamed(t, kind, conf, d.Name) {
					silent++
					t.Errorf("%s %s: a %s is called fine", kind, d.Name, form)
				}
			}
		}
	}
	t.Logf("%d values, %d not found", tried, silent)
	if tried < 500 {
		t.Errorf("only %d values were tried", tried)
	}
}

// isRemarked reports whether the warnings of a start, or the error about the configuration, name an option.
func isRemarked(t *testing.T, kind config.Kind, ptr any, conf, name string) bool {
	t.Helper()
	path := filepath.Join(t.TempDir(), string(kind))
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	tree, err := config.Load(path, kind, (&log.Held{}).Logger())
	if err != nil {
		return false
	}
	if slices.ContainsFunc(tree.Remarks(ptr), func(r config.Remark) bool { return r.Key == name }) {
		return true
	}
	if kind == config.MasterKind {
		_, err = config.NewMaster(tree, config.ThisMachine(), (&log.Held{}).Logger())
	} else {
		_, err = config.NewMinion(tree, config.ThisMachine(), false, (&log.Held{}).Logger())
	}
	return err != nil && strings.Contains(err.Error(), " "+name+": ")
}
