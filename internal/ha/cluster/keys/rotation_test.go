package keys

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/clustertest"
	"brine/internal/net/crypt"
	"brine/test/fuzztest"
)

// FuzzRotation decodes the file that names the cluster's current key.
func FuzzRotation(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	pairs, err := clustertest.Keys()
	if err != nil {
		f.Fatal(err)
	}
	pub := string(pairs[0].Public().PEM())
	b, err := json.Marshal(Rotation{Pub: pub, Endorsed: []Endorsement{{By: string(pairs[1].Public().PEM()), Pub: pub, Sig: []byte("x")}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, RotationFile), b, 0o600); err != nil {
			t.Fatal(err)
		}
		r, ok, err := ReadRotation(dir)
		if err == nil != ok || err != nil && salt.KindOf(err) != salt.Unavailable {
			t.Fatalf("%v, %v", ok, err)
		}
		if ok {
			pub, err := crypt.ParsePublic([]byte(r.Pub))
			if err != nil || len(r.Endorsed) > maxEndorsed {
				t.Fatalf("%+v", r)
			}
			Ancestors(pub, r.Endorsed)
			r.Endorsements()
		}
	})
}

// TestKeyThatIsNotKept: a master does not switch to a key that it cannot write, for example because
// its directory is missing.
func TestKeyThatIsNotKept(t *testing.T) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	if err := StoreKey(filepath.Join(t.TempDir(), "unmounted"), "", key); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("without a directory: %v", err)
	}
	if err := StoreKey(t.TempDir(), "", key); err != nil { // created by another member: no nextFile
		t.Error(err)
	}
}

// TestSameChain compares full lists, which have the same length.
func TestSameChain(t *testing.T) {
	one, two, three := Endorsement{By: "a", Pub: "b"}, Endorsement{By: "b", Pub: "c"}, Endorsement{By: "x", Pub: "c"}
	if !SameChain([]Endorsement{one, two}, []Endorsement{one, two}) || SameChain([]Endorsement{one, two}, []Endorsement{two, three}) ||
		SameChain([]Endorsement{one}, nil) {
		t.Error("lists are compared wrongly")
	}
}
