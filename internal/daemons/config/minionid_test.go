package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/py/value"
)

func machine(hostname, full string, addrs []string, files map[string]string) Machine {
	return Machine{
		Hostname: func() (string, error) { return hostname, nil },
		FullName: func(string) string { return full },
		ReadFile: func(p string) ([]byte, error) {
			if s, ok := files[p]; ok {
				return []byte(s), nil
			}
			return nil, os.ErrNotExist
		},
		Addresses: func() []netip.Addr {
			var out []netip.Addr
			for _, a := range addrs {
				out = append(out, netip.MustParseAddr(a))
			}
			return out
		},
	}
}

func TestGuessID(t *testing.T) {
	for name, c := range map[string]struct {
		m    Machine
		want string
	}{
		"full name":          {machine("box", "box.example.com", nil, nil), "box.example.com"},
		"hostname":           {machine("box", "localhost", nil, nil), "box"},
		"etc hostname":       {machine("localhost", "localhost.localdomain", nil, map[string]string{"/etc/hostname": "# x\n\nfile\n"}), "file"},
		"nodename":           {machine("", "", nil, map[string]string{"/etc/nodename": "node # c"}), "node"},
		"loopback of hosts":  {machine("localhost", "localhost", nil, map[string]string{"/etc/hosts": "10.0.0.1 other\n127.0.0.1 localhost alias\n"}), "alias"},
		"v6 loopback":        {machine("localhost", "localhost", nil, map[string]string{"/etc/hosts": "::1 ip6-localhost six\n"}), "six"},
		"a long 127 address": {machine("localhost", "localhost", nil, map[string]string{"/etc/hosts": "127.99.0.1 localhost\n"}), "localhost"},
		"least address":      {machine("localhost", "localhost", []string{"127.0.0.1", "10.0.0.20", "fe80::1", "10.0.0.3"}, nil), "10.0.0.3"},
		"nothing":            {machine("localhost", "ip6-localhost", []string{"::1"}, nil), "localhost"},
	} {
		if got := c.m.guessID(); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestThisMachineHasAnID(t *testing.T) {
	m := ThisMachine()
	m.FullName = func(n string) string { return n } // no DNS in tests
	if id := m.guessID(); id == "" {
		t.Error("no id")
	}
}

func TestIdentity(t *testing.T) {
	guess := machine("Box", "Box.Example.com", nil, nil)
	address := machine("localhost", "localhost", []string{"10.0.0.3"}, nil)
	for name, c := range map[string]struct {
		opts *value.Dict
		m    Machine
		want string
	}{
		"id":                    {value.DictOf("id", "x", "minion_id_lowercase", true), guess, "x"},
		"guessed":               {value.DictOf(), guess, "Box.Example.com"},
		"lower case":            {value.DictOf("minion_id_lowercase", true), guess, "box.example.com"},
		"without any domain":    {value.DictOf("minion_id_remove_domain", true), guess, "Box"},
		"without this domain":   {value.DictOf("minion_id_remove_domain", "example.COM"), guess, "Box"},
		"with another domain":   {value.DictOf("minion_id_remove_domain", "ample.com"), guess, "Box.Example.com"},
		"domain added":          {value.DictOf("id", "x", "append_domain", "y.z"), guess, "x.y.z"},
		"domain there already":  {value.DictOf("id", "x.y.z", "append_domain", "y.z"), guess, "x.y.z"},
		"ends with a dot":       {value.DictOf("id", "x.", "append_domain", "y.z"), guess, "x."},
		"none for an address":   {value.DictOf("append_domain", "y.z"), address, "10.0.0.3"},
		"except one given":      {value.DictOf("id", "10.0.0.3", "append_domain", "y.z"), address, "10.0.0.3.y.z"},
		"lower case and domain": {value.DictOf("minion_id_lowercase", true, "minion_id_remove_domain", true, "append_domain", "N.z"), guess, "box.N.z"},
	} {
		tree := NewTree(MinionKind, "", quiet())
		tree.Set("root_dir", t.TempDir(), "test")
		for k, v := range c.opts.All() {
			tree.Set(k.(string), v, "test")
		}
		m, err := NewMinion(tree, c.m, true, quiet())
		if err != nil || m.Files.ID != c.want {
			t.Errorf("%s: got %v, %v, want %s", name, m, err, c.want)
		}
	}
}

func TestIDIsKept(t *testing.T) {
	root := t.TempDir()
	start := func(host string, save bool, more ...any) string {
		t.Helper()
		tree := NewTree(MinionKind, "", quiet())
		tree.Set("root_dir", root, "test")
		for i := 0; i < len(more); i += 2 {
			tree.Set(more[i].(string), more[i+1], "test")
		}
		this := machine(host, host, nil, nil)
		this.ReadFile = os.ReadFile
		m, err := NewMinion(tree, this, save, quiet())
		if err != nil {
			t.Fatal(err)
		}
		return m.Files.ID
	}
	file := filepath.Join(root, "etc/salt/minion_id")
	if start("one", false); exists(file) {
		t.Error("kept without being asked")
	}
	if id := start("one", true, "append_domain", "d"); id != "one.d" {
		t.Error(id)
	}
	if data, err := os.ReadFile(file); string(data) != "one" || err != nil {
		t.Errorf("%q, %v", data, err)
	}
	if id := start("two", true); id != "one" {
		t.Errorf("the kept id is not used: %s", id)
	}
	if id := start("two", true, "minion_id_caching", false); id != "two" {
		t.Errorf("the kept id is used: %s", id)
	}
	if id := start("two", true, "id", "three"); id != "three" {
		t.Error(id)
	}
	for content, want := range map[string]string{"\ufeffbom \nsecond": "bom", "localhost\n": "two", "": "two"} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if id := start("two", false); id != want {
			t.Errorf("%q: got %s, want %s", content, id, want)
		}
	}
	if err := os.WriteFile(file, []byte("../evil\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	tree := NewTree(MinionKind, "", quiet())
	tree.Set("root_dir", root, "test")
	this := box
	this.ReadFile = os.ReadFile
	if _, err := NewMinion(tree, this, false, quiet()); err == nil {
		t.Error("a kept id that leaves its directory is taken")
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
