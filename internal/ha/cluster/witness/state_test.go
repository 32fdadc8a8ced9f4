package witness

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

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

// TestUpdateFromTheFuture: an update that came while the clocks of a master and of the witness were days
// ahead does not block later ones. Of two updates the later one counts otherwise.
func TestUpdateFromTheFuture(t *testing.T) {
	pairs, err := clustertest.Keys()
	if err != nil {
		t.Fatal(err)
	}
	a, err := openState(filepath.Join(t.TempDir(), knownFile), Secret(witnessSecret), "")
	if err != nil {
		t.Fatal(err)
	}
	update := func(secret string, at time.Time, ids ...string) Update {
		u := Update{Secret: Secret(secret), SecretFrom: at, MembersFrom: at, Members: map[string]string{}}
		for i, id := range ids {
			u.Members[id] = string(pairs[i].Public().PEM())
		}
		return u
	}
	learn := func(u Update, now time.Time, secret, names string) {
		t.Helper()
		if _, _, err := a.learn(u, now); err != nil {
			t.Fatal(err)
		}
		if now, _, _ := a.terms(); now != Secret(secret) || a.names() != names {
			t.Errorf("it has %q and %q, want %q", now, a.names(), names)
		}
	}
	now, first, second := time.Now(), "the first secret of the tests", "the second secret of the tests"
	ahead := now.Add(72 * time.Hour)
	learn(update(first, ahead.Add(-time.Minute), "a", "b"), ahead, first, "a, b")
	learn(update(second, now.Add(-time.Minute), "a"), now, second, "a")
	learn(update(first, now.Add(-time.Hour), "a", "b"), now, second, "a")
	learn(update(first, now.Add(-time.Second), "a", "b"), now, first, "a, b")
}
