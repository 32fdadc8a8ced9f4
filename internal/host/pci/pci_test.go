package pci

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/host"
)

const database = `# comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
	1eb8  Not this one
	73bf  Navi 21
		1002 0e3a  A subsystem
10de  NVIDIA Corporation
	1eb8  TU104GL [Tesla T4]
		10de 12a2  Another
	2204  GA102
C 03  Display controller
	00  VGA compatible controller
`

func put(t *testing.T, m *host.Machine, name string, text []byte) {
	t.Helper()
	path := m.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestListAndLook(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	for addr, ids := range map[string][3]string{
		"0000:01:00.0": {"0x10de\n", "0x1eb8\n", "0x030200\n"},
		"0000:00:02.0": {"0x1002\n", "0x73bf\n", "0x030000\n"},
		"0000:00:03.0": {"0x0300\n", "0x0001\n", "0x120000\n"}, // 0300 here is neither our vendor nor a class
	} {
		for i, name := range []string{"vendor", "device", "class"} {
			put(t, m, sysfs+"/"+addr+"/"+name, []byte(ids[i]))
		}
	}
	devices := List(m)
	if len(devices) != 3 || devices[0].Address != "0000:00:02.0" || devices[2].Class>>8 != Class3D || devices[1].Class>>8 != ClassAccelerator {
		t.Fatalf("devices %+v", devices)
	}
	check := func(source string, want []Names) {
		t.Helper()
		for i, n := range Look(m, devices) {
			if n != want[i] {
				t.Errorf("%s: device %d is %+v, want %+v", source, i, n, want[i])
			}
		}
	}
	check("no database", []Names{{"Vendor 1002", "Device 73bf"}, {"Vendor 0300", "Device 0001"}, {"Vendor 10de", "Device 1eb8"}})
	known := []Names{{"Advanced Micro Devices, Inc. [AMD/ATI]", "Navi 21"}, {"Vendor 0300", "Device 0001"}, {"NVIDIA Corporation", "TU104GL [Tesla T4]"}}
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write([]byte(database)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	put(t, m, "/usr/share/misc/pci.ids.gz", zipped.Bytes())
	check("zipped", known)
	put(t, m, "/usr/share/misc/pci.ids", []byte(database))
	check("plain", known)
}
