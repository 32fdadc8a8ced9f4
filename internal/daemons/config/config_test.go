package config

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/test/fuzztest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestNames(t *testing.T) {
	names := knownNames()
	for i := 1; i < len(names); i++ {
		if names[i-1] >= names[i] {
			t.Errorf("known_options.txt is not sorted at %s", names[i])
		}
	}
	for _, n := range []string{"master", "worker_threads", "cluster_id", "cluster_secret", "fileserver_backend", "mine_functions"} {
		if !isKnown(n) {
			t.Errorf("%s is not known", n)
		}
	}
}

func TestStructsAreSound(t *testing.T) {
	for _, ptr := range []any{&Master{}, &Minion{}} {
		if _, _, err := options(ptr); err != nil {
			t.Error(err)
		}
		all, err := Describe(MasterKind, ptr)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if d.Doc == "" || d.Group == "" {
				t.Errorf("%s: no help or group: %+v", d.Name, d)
			}
		}
	}
}

func TestPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := func(kv ...string) func(string) string {
		return func(k string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == k {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		dir, want string
		env       func(string) string
	}{
		{"/x", "/x/minion", env("SALT_MINION_CONFIG", file)},
		{"", file, env("SALT_MINION_CONFIG", file, "SALT_CONFIG_DIR", "/y")},
		{"", "/y/minion", env("SALT_MINION_CONFIG", file+"missing", "SALT_CONFIG_DIR", "/y")},
		{"", "/etc/salt/minion", env()},
	} {
		if got := Path(MinionKind, c.dir, c.env); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestValuesReachTheParts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "minion", "master: [m1, m2:5506]\nauth_timeout: 2.5\nhash_type: SHA512\nid: 123\ngrains: {role: web}\nsign_pub_messages: true\n")
	m, tree, err := LoadMinion(filepath.Join(dir, "minion"), false, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Options.Master) != 2 || m.Options.Master[1] != "m2:5506" || m.Options.AuthTimeout != 2500*time.Millisecond ||
		m.Handshake.HashType != "sha512" || m.Files.ID != "123" || m.Grains.Static.Str("role") != "web" || !m.Options.SignPubMessages {
		t.Errorf("%+v", m)
	}
	if o, ok := tree.Origin("grains"); !ok || o.Line != 5 || o.File != filepath.Join(dir, "minion") {
		t.Errorf("origin %v", o)
	}
	tree.Set("auth_timeout", 7, "command line")
	if m, err = NewMinion(tree, box, false, quiet()); err != nil || m.Options.AuthTimeout != 7*time.Second {
		t.Errorf("%v, %v", m.Options.AuthTimeout, err)
	}
	tree.Set("auth_timeout", "soon", "command line")
	_, err = NewMinion(tree, box, false, quiet())
	if err == nil || err.Error() != `command line: auth_timeout: expected a number of seconds, got the string "soon"` {
		t.Error(err)
	}
	var f *Fault
	if !errors.As(err, &f) || f.Key != "auth_timeout" || salt.KindOf(err) != salt.Invalid {
		t.Errorf("%#v", err)
	}
}

func TestDump(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "minion", "master: m1\nstart_event_grains: os\nmy_own: [1]\nroot_dir: /opt\nfile_roots: {base: [/srv]}\nid: box\n")
	m, tree, err := LoadMinion(filepath.Join(dir, "minion"), false, quiet())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Dump(tree, m)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"master": "m1", "start_event_grains": "os", "my_own": value.ListOf(1), "pki_dir": "/opt/etc/salt/pki/minion",
		"file_roots": value.DictOf("base", value.ListOf("/srv")), "id": "box", "auth_timeout": int64(5), "log_file": "/opt/var/log/salt/minion",
		"append_domain": nil, "grains": value.DictOf(),
	} {
		if got, ok := d.Get(key); !ok || !value.Equal(got, want) {
			t.Errorf("%s: got %s, want %s", key, value.Repr(got), value.Repr(want))
		}
	}
	for i := 1; i < d.Len(); i++ {
		a, _ := d.Entry(i - 1)
		b, _ := d.Entry(i)
		if a.(string) >= b.(string) {
			t.Errorf("%v before %v", a, b)
		}
	}
	if x := tree.Extra(m); x.Len() != 1 || !x.Has("my_own") {
		t.Errorf("extra: %s", value.Repr(x))
	}
}

func TestSampleIsItsOwnDefault(t *testing.T) {
	for _, k := range []Kind{MasterKind, MinionKind} {
		var ptr any = &Master{}
		if k == MinionKind {
			ptr = &Minion{}
		}
		var b bytes.Buffer
		if err := WriteSample(&b, k, ptr); err != nil {
			t.Fatal(err)
		}
		if v, err := yaml.Load(b.Bytes(), ""); v != nil || err != nil {
			t.Errorf("not all is commented out: %v, %v", v, err)
		}
		// Without the comment signs of its options, the sample must equal the defaults.
		var text strings.Builder
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "# ") && !strings.HasPrefix(line, "##") {
				text.WriteString(line[1:])
			}
		}
		dir := t.TempDir()
		write(t, dir, string(k), text.String())
		tree, err := Load(filepath.Join(dir, string(k)), k, quiet())
		if err != nil {
			t.Fatal(err)
		}
		var got, want any
		if k == MasterKind {
			got, want = mustMaster(t, tree), mustMaster(t, NewTree(k, tree.Path, quiet()))
		} else {
			got, want = mustMinion(t, tree), mustMinion(t, NewTree(k, tree.Path, quiet()))
		}
		a, err := Dump(NewTree(k, "", quiet()), got)
		if err != nil {
			t.Fatal(err)
		}
		b2, err := Dump(NewTree(k, "", quiet()), want)
		if err != nil || !value.Equal(a, b2) {
			t.Errorf("%s: the sample differs from the defaults:\n%s\n%s", k, yaml.Dump(a), yaml.Dump(b2))
		}
	}
}

func mustMaster(t *testing.T, tree *Tree) *Master {
	t.Helper()
	m, err := NewMaster(tree, box, quiet())
	if err != nil {
		t.Fatal(err)
	}
	m.Files.ID = ""
	return m
}

func mustMinion(t *testing.T, tree *Tree) *Minion {
	t.Helper()
	m, err := NewMinion(tree, box, false, quiet())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDisagreementPanicsAtStart(t *testing.T) {
	type a struct {
		X int `salt:"x" default:"1"`
	}
	type b struct {
		X int `salt:"x" default:"2"`
	}
	err := Decode(NewTree(MasterKind, "", quiet()), &struct {
		A a
		B b
	}{})
	if err == nil || !strings.Contains(err.Error(), "disagree about the default of x") {
		t.Error(err)
	}
}

func TestDeniedFile(t *testing.T) {
	err := join([]error{&Fault{Origin: Origin{File: "/f"}, Err: fs.ErrPermission}})
	if ExitCode(err) != ExitDenied || ExitCode(nil) != 0 {
		t.Errorf("exit codes %d, %d", ExitCode(err), ExitCode(nil))
	}
	if os.Getuid() == 0 {
		t.Skip("root may read every file")
	}
	dir := t.TempDir()
	write(t, dir, "master", "timeout: 1\n")
	if err := os.Chmod(filepath.Join(dir, "master"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(filepath.Join(dir, "master"), MasterKind, quiet()); ExitCode(err) != ExitDenied {
		t.Error(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func FuzzLoad(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add([]byte("master: [a]\nid: x\ntcp_pub_port: [1]\n"))
	f.Add([]byte("master: {}\nlog_dir: 1\nminion_id_remove_domain: [1]\n1: 2\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		write(t, dir, "minion", string(data))
		tree, err := Load(filepath.Join(dir, "minion"), MinionKind, quiet())
		if err != nil || tree.Values.Has("include") || tree.Values.Has("default_include") || tree.Values.Has("root_dir") {
			return
		}
		m, err := NewMinion(tree, box, false, quiet())
		if err != nil {
			return
		}
		if _, err := Dump(tree, m); err != nil {
			t.Fatal(err)
		}
	})
}

// TestExamples: each example differs from the default and is accepted.
func TestExamples(t *testing.T) {
	used := map[string]bool{}
	for _, k := range []Kind{MasterKind, MinionKind} {
		var ptr any = &Master{}
		if k == MinionKind {
			ptr = &Minion{}
		}
		all, err := Describe(k, ptr)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			used[string(k)+" "+d.Name], used["both "+d.Name] = true, true
			if d.Example == nil {
				continue
			}
			if value.Equal(d.Example, d.Default) {
				t.Errorf("%s: the example for %s is its default", k, d.Name)
			}
			dir := t.TempDir()
			tree := NewTree(k, filepath.Join(dir, string(k)), slog.New(slog.DiscardHandler))
			tree.Set("root_dir", dir, "test")
			tree.Set("id", "web1", "test")
			for key, v := range companions[d.Name] {
				tree.Set(key, v, "test")
			}
			tree.Set(d.Name, d.Example, "examples.yaml")
			if k == MasterKind {
				_, err = NewMaster(tree, Machine{}, slog.New(slog.DiscardHandler))
			} else {
				_, err = NewMinion(tree, Machine{}, false, slog.New(slog.DiscardHandler))
			}
			if err != nil {
				t.Errorf("%s: the example for %s is refused: %v", k, d.Name, err)
			}
		}
	}
	sections, err := examples()
	if err != nil {
		t.Fatal(err)
	}
	for kind, own := range sections.All() {
		for name := range own.(*value.Dict).All() {
			if k := value.Str(kind); k != "witness" && k != "hub" && !used[k+" "+value.Str(name)] && !byAPI[value.Str(name)] {
				t.Errorf("examples.yaml has %s for %s, which has no such option", name, k)
			}
		}
	}
}

// companions are the further options that an example needs to be accepted.
var companions = map[string]map[string]any{
	"federation_urls":   {"federation_hub": true},
	"federation_hub":    {"federation_urls": value.ListOf("tls://hub.example.com:4515")},
	"federation_finger": {"federation_urls": value.ListOf("tls://hub.example.com:4515")},
	"store_of_record": {"cluster_id": "main", "cluster_isolated_filesystem": true, "cluster_secret": "5ee6f5b3c9d1a0b72f4c8e6d9a1b3c5d",
		"store_of_record_secret": "0f4d1b0a3f2e6c5d8b7a9e0f1c2d3b4a"},
}

// byAPI are options of salt-api.
var byAPI = map[string]bool{"api_metrics_address": true, "netapi_enable_clients": true, "rest_cherrypy": true}

// TestOwnOptions: options that the struct itself declares, beside its parts, are read as those of the parts.
func TestOwnOptions(t *testing.T) {
	var s struct {
		Part struct {
			Name string `salt:"id" default:""`
		}
		Level string `salt:"log_level" default:"info"`
		Other string `salt:"log_file" default:"none"`
	}
	tree := NewTree(MasterKind, "", quiet())
	tree.Set("log_level", "debug", "here")
	if err := Decode(tree, &s); err != nil || s.Level != "debug" || s.Other != "none" {
		t.Errorf("%+v %v", s, err)
	}
}
