package grains

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/host"
	"brine/internal/py/value"
)

var quiet = slog.New(slog.DiscardHandler)

// fill adds to m what testdata/facts.txt describes: an SMBIOS table, PCI
// devices, and programs that print the contents of their files.
func fill(t *testing.T, m *host.Machine, files map[string]string) {
	t.Helper()
	write := func(name, text string) {
		t.Helper()
		path := m.Path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text, ok := files["dmi"]; ok {
		write("/sys/firmware/dmi/tables/DMI", smbiosTable(t, text))
	}
	for i, line := range strings.Split(strings.TrimSpace(files["lspci"]), "\n") {
		ids, rest, ok := strings.Cut(line, " ")
		if !ok {
			continue
		}
		vendor, device, _ := strings.Cut(ids, ":")
		class, _, _ := strings.Cut(rest, " ")
		dir := fmt.Sprintf("/sys/bus/pci/devices/0000:00:%02x.0/", i)
		write(dir+"vendor", "0x"+vendor+"\n")
		write(dir+"device", "0x"+device+"\n")
		write(dir+"class", "0x"+class+"\n")
	}
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		text, ok := files[strings.TrimPrefix(path, "/")]
		if !ok {
			t.Errorf("%s is not there to run", path)
		}
		var exit int
		status, out, _ := strings.Cut(text, "\n")
		if _, err := fmt.Sscanf(status, "exit %d", &exit); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if strings.HasSuffix(path, "fw_printenv") && !strings.HasPrefix(out, args[0]+"=") {
			exit = 1
		}
		return strings.TrimRight(out, "\n"), exit, nil
	}
}

// smbiosTable builds a table with one structure per line "type Key: text".
func smbiosTable(t *testing.T, text string) string {
	t.Helper()
	var table []byte
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		var kind byte
		kindText, rest, _ := strings.Cut(line, " ")
		key, val, ok := strings.Cut(rest, ": ")
		if _, err := fmt.Sscan(kindText, &kind); err != nil || !ok {
			t.Fatalf("bad line %q", line)
		}
		at, ok := map[string]int{"0 Vendor": 4, "1 Manufacturer": 4, "1 Product Name": 5, "1 Version": 6, "3 Manufacturer": 4, "4 Manufacturer": 7,
			"17 Manufacturer": 0x17}[kindText+" "+key]
		if !ok {
			t.Fatalf("unknown key in %q", line)
		}
		s := make([]byte, 0x1b)
		s[0], s[1], s[at] = kind, byte(len(s)), 1
		binary.LittleEndian.PutUint16(s[2:], uint16(i))
		table = append(table, s...)
		table = append(append(table, val...), 0, 0)
	}
	return string(append(table, 127, 4, 0xff, 0xff, 0, 0))
}

// TestFacts compares the grains of machines made of files with the grains that
// Salt's functions derive from the same files. testdata/facts.py wrote those.
func TestFacts(t *testing.T) {
	golden, all := answers(t, "facts.json"), machines(t, "facts.txt")
	if len(all) != len(golden) || len(all) < 60 {
		t.Fatalf("%d machines, %d answers", len(all), len(golden))
	}
	// These grains must be absent unless Salt has them too.
	optional := []string{"virtual_subtype", "manufacturer", "productname", "serialnumber", "uuid", "biosversion", "biosvendor", "boardname",
		"biosreleasedate",
		"virtual_hv_version", "virtual_hv_features", "dns", "machine_id", "mdadm", "kernelparams"}
	for name, files := range all {
		t.Run(name, func(t *testing.T) {
			m := machine(t, files)
			fill(t, m, files)
			if name == "efi-old" {
				if err := os.WriteFile(m.Path("/sys/firmware/efi/vars/SecureBoot-8be4df61/data"), []byte("\x06\x00\x00\x00\x01"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Collect(t.Context(), Options{Machine: m, PCI: true, ISCSI: true, NVMe: true}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			want := model(golden[name]).(*value.Dict)
			compare(t, got, want, func(n string) bool { return slices.Contains(optional, n) })
		})
	}
}
