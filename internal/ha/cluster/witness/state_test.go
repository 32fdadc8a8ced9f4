package witness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/ha/cluster/clustertest"
	"brine/test/fuzztest"
)

// FuzzState reads the file with the state of a witness.
func FuzzState(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	pairs, err := clustertest.Keys()
	if err != nil {
		f.Fatal(err)
	}
	pub := string(pairs[0].Public().PEM())
	b, err := json.Marshal(known{Configured: "x", Secret: Secret(witnessSecret), SecretFrom: 1, Members: map[string]string{"a": pub}, TLS: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	path := filepath.Join(f.TempDir(), knownFile)
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := openState(path, Secret(witnessSecret), "")
		if err != nil {
			return
		}
		if secret, _, _ := a.terms(); secret == "" {
			t.Fatal("a witness without a secret")
		}
	})
}
