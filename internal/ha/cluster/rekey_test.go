package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/clustertest"
	"brine/internal/ha/cluster/keys"
)

// TestOneRotationAtATime: two concurrent rotations would write one file for the
// private half, and the cluster could get a key that no member has.
func TestOneRotationAtATime(t *testing.T) {
	c := assemble(Config{}, &keys.Secrets{}, nil, clustertest.Quiet())
	c.rotating.Lock()
	if _, _, err := c.RotateKey(t.Context(), false); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("a second rotation: %v", err)
	}
	c.rotating.Unlock()
	if _, _, err := c.RotateKey(t.Context(), false); salt.KindOf(err) != salt.Invalid { // the directory is shared
		t.Errorf("a rotation after it: %v", err)
	}
}

// TestRemovalIsOnRecord: no new secret is sent before the records exclude the removed id. If the id
// could not be banned, the removal can be retried.
func TestRemovalIsOnRecord(t *testing.T) {
	dir := t.TempDir()
	c := assemble(Config{Options: Options{PKIDir: dir}}, &keys.Secrets{Dir: dir}, nil, clustertest.Quiet())
	peer := c.secrets.PeerPath("b")
	if err := os.MkdirAll(filepath.Dir(peer), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(path string) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(peer)
	write(c.Paths.RemovedDir()) // a file in place of the directory
	if err := c.Removal.take(t.Context(), "b"); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("the ban cannot be written: %v", err)
	}
	if _, err := os.Stat(peer); err != nil {
		t.Errorf("the member is half removed: %v", err)
	}
	if err := os.Remove(c.Paths.RemovedDir()); err != nil {
		t.Fatal(err)
	}
	if err := c.Removal.take(t.Context(), "unknown"); salt.KindOf(err) != salt.NotFound {
		t.Errorf("an unknown id: %v", err)
	}
	if _, banned, _ := c.files.Banned("unknown"); banned {
		t.Error("an unknown id was banned")
	}
	c.Removal.excludes = func(string) bool { return false }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Removal.take(ctx, "b"); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("not on record: %v", err)
	}
	write(peer)
	c.Removal.excludes = func(id string) bool { return id == "b" }
	if err := c.Removal.take(t.Context(), "b"); err != nil {
		t.Errorf("on record: %v", err)
	}
}
