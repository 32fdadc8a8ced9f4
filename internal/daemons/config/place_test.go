package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlace: clients of the master on this machine use TLS where the master does.
func TestPlace(t *testing.T) {
	for text, want := range map[string]struct {
		tls   bool
		fault string
	}{
		"interface: 127.0.0.9\nret_port: 4600\nuser: salt\n": {},
		"transport: tcp\n":            {},
		"transport: tcp\nssl: true\n": {tls: true},
		"ssl: true\n":                 {}, // zeromq has none
		"transport: tcp\nssl: {ca_certs: /no/such/ca}\n": {fault: "/no/such/ca"},
	} {
		path := filepath.Join(t.TempDir(), "master")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		tree, err := Load(path, MasterKind, quiet())
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMaster(tree, box, quiet())
		if err != nil {
			t.Fatal(err)
		}
		place, err := m.Place()
		if want.fault != "" {
			if err == nil || !strings.Contains(err.Error(), want.fault) {
				t.Errorf("%q: %v, want an error with %s", text, err, want.fault)
			}
			continue
		}
		if err != nil || (place.TLS != nil) != want.tls || place.RetPort != m.Network.RetPort || place.Interface != m.Network.Interface ||
			place.User != m.Files.User || place.CacheDir != m.Files.CacheDir {
			t.Errorf("%q: %+v, %v", text, place, err)
		}
	}
}
