package disk

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/host"
)

func put(t *testing.T, m *host.Machine, name, text string, mode os.FileMode) {
	t.Helper()
	path := m.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestDevices(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	for name, flag := range map[string]string{"pci/vdb": "1\n", "pci/nvme0n1": "0\n", "pci/odd": "\n", "virtual/loop0": "1\n", "virtual/dm-0": "0\n"} {
		put(t, m, "/sys/devices/"+name+"/queue/rotational", flag, 0o644)
		link := m.Path("/sys/block/" + filepath.Base(name))
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../devices/"+name, link); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := Devices(m), []Device{{"nvme0n1", false}, {"vdb", true}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestGroupsAndPools(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if g, ok := Groups(t.Context(), m); g != nil || ok {
		t.Errorf("without tools: %v, %v", g, ok)
	}
	put(t, m, "/sbin/lvm", "", 0o755)
	put(t, m, "/sbin/zpool", "", 0o755)
	put(t, m, "/sys/module/zfs/x", "", 0o644)
	if !ZFS(m) {
		t.Error("ZFS is not detected")
	}
	answers := map[string]string{
		"vgs -o vg_name --noheadings":         "  data\n  empty\n",
		"lvs -o vg_name,lv_name --noheadings": "  data home\n  data swap\n  gone x\n\n",
		"list -H -o name,size":                "tank\t9.94G\nrpool\t1T\n",
	}
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		out, ok := answers[strings.Join(args, " ")]
		if !ok {
			t.Errorf("unexpected %s %q", path, args)
		}
		return out, 0, nil
	}
	got, ok := Groups(t.Context(), m)
	if want := []Group{{"data", []string{"home", "swap"}}, {"empty", nil}}; !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got, want := Pools(t.Context(), m), []Pool{{"tank", "9.94G"}, {"rpool", "1T"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFibreChannelPorts(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	put(t, m, "/sys/class/fc_host/host1/port_name", "0x2100000e1e30c5f1\n", 0o644)
	put(t, m, "/sys/class/fc_host/host0/port_name", "0x2100000e1e30c5f0\n", 0o644)
	if got, want := FibreChannelPorts(m), []string{"2100000e1e30c5f0", "2100000e1e30c5f1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
