package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/test/fuzztest"
)

// FuzzFiles reads files that members leave for each other: which key of the
// cluster counts, and what a witness knows.
func FuzzFiles(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	keys, err := testKeys()
	if err != nil {
		f.Fatal(err)
	}
	pub := string(keys[0].Public().PEM())
	for _, v := range []any{
		rotation{Pub: pub, Endorsed: []endorsement{{By: string(keys[1].Public().PEM()), Pub: pub, Sig: []byte("x")}}},
		known{Configured: "x", Secret: WitnessSecret(witnessSecret), SecretFrom: 1, Members: map[string]string{"a": pub}, TLS: true},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	dir := f.TempDir()
	c := &Cluster{cfg: Config{ID: "b", Options: Options{PKIDir: dir}}, log: quiet()}
	witness := filepath.Join(dir, knownFile)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, path := range []string{c.rotationPath(), witness} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, ok, err := c.readRotation()
		if err == nil != ok || err != nil && salt.KindOf(err) != salt.Unavailable {
			t.Fatalf("%v, %v", ok, err)
		}
		if ok {
			pub, err := crypt.ParsePublic([]byte(r.Pub))
			if err != nil || len(r.Endorsed) > maxEndorsed {
				t.Fatalf("%+v", r)
			}
			ancestors(pub, r.Endorsed)
			r.endorsements()
		}
		a, err := openWitnessState(witness, WitnessSecret(witnessSecret), "")
		if err != nil {
			return
		}
		if secret, _, _ := a.terms(); secret == "" {
			t.Fatal("a witness without a secret")
		}
	})
}
