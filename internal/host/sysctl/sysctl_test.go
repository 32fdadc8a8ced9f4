package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/host"
)

func TestThisKernel(t *testing.T) {
	m := &host.Machine{}
	v, err := Get(m, "kernel.ostype")
	if err != nil || v != "Linux" {
		t.Errorf("%q, %v", v, err)
	}
	if All(m)["kernel.ostype"] != "Linux" {
		t.Error("not among all")
	}
	if _, err := Get(m, "kernel.nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what is not there: %v", err)
	}
	for _, bad := range []string{"", "..", "../../etc/passwd", "////etc.passwd"} {
		if v, err := Get(m, bad); err == nil {
			t.Errorf("%q gives %q", bad, v)
		}
	}
}

func TestSetAndKeep(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	p := m.Path("/proc/sys/net/ipv4/conf/eth0.5/forwarding")
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Set(m, "net.ipv4.conf.eth0/5.forwarding", "1"); err != nil {
		t.Fatal(err)
	}
	if v, err := Get(m, "net.ipv4.conf.eth0/5.forwarding"); v != "1" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if All(m)["net.ipv4.conf.eth0/5.forwarding"] != "1" {
		t.Errorf("%v", All(m))
	}
	const file = "/etc/sysctl.d/x.conf"
	for _, c := range []struct {
		name, value string
		changed     bool
		want        string
	}{
		{"a.b", "1", true, heading + "a.b = 1\n"},
		{"c.d", "1 2", true, heading + "a.b = 1\nc.d = 1 2\n"},
		{"c.d", "1\t2", false, heading + "a.b = 1\nc.d = 1 2\n"},
		{"a.b", "3", true, heading + "a.b = 3\nc.d = 1 2\n"},
	} {
		changed, err := Keep(m, file, c.name, c.value)
		if changed != c.changed || err != nil || m.Text(file) != c.want {
			t.Errorf("%v: %v, %v, %q", c, changed, err, m.Text(file))
		}
	}
	if _, err := Keep(m, file, "a.b", "1\nc.d = 2"); err == nil {
		t.Error("a value of two lines is accepted")
	}
}
