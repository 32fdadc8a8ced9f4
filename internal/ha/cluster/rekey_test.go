package cluster

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/crypt"
)

// TestOneRotationAtATime: two rotations at once would write one file for the
// private half, and the cluster could get a key that no member has.
func TestOneRotationAtATime(t *testing.T) {
	var c Cluster
	c.rotating.Lock()
	if _, _, err := c.RotateKey(t.Context(), false); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("a second rotation: %v", err)
	}
	c.rotating.Unlock()
	if _, _, err := c.RotateKey(t.Context(), false); salt.KindOf(err) != salt.Invalid { // the directory is shared
		t.Errorf("a rotation after it: %v", err)
	}
}

// TestKeyThatIsNotKept: a master does not go on with a key that is not on its
// disk, as when its directory is gone.
func TestKeyThatIsNotKept(t *testing.T) {
	key, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	var c Cluster
	c.cfg.Options.PKIDir = filepath.Join(t.TempDir(), "unmounted")
	if err := c.storeKey(key); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("without a directory: %v", err)
	}
	c.cfg.Options.PKIDir = t.TempDir()
	if err := c.storeKey(key); err != nil { // made by another member: no nextFile
		t.Error(err)
	}
}

// TestSameChain compares full lists, which have the same length.
func TestSameChain(t *testing.T) {
	one, two, three := endorsement{By: "a", Pub: "b"}, endorsement{By: "b", Pub: "c"}, endorsement{By: "x", Pub: "c"}
	if !sameChain([]endorsement{one, two}, []endorsement{one, two}) || sameChain([]endorsement{one, two}, []endorsement{two, three}) || sameChain([]endorsement{one}, nil) {
		t.Error("lists are compared wrongly")
	}
}

// TestRemovalIsOnRecord: nothing new is sent before the records exclude the
// removed id, and a removal that could not ban the id can be tried again.
func TestRemovalIsOnRecord(t *testing.T) {
	dir := t.TempDir()
	c := &Cluster{secrets: &Secrets{dir: dir}}
	c.cfg.Options.PKIDir = dir
	c.peers.Store(&map[string]*peer{})
	peer := c.secrets.peerPath("b")
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
	write(c.RemovedDir()) // in the place of the directory
	if err := c.take(t.Context(), "b"); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("the ban cannot be written: %v", err)
	}
	if _, err := os.Stat(peer); err != nil {
		t.Errorf("the member is half removed: %v", err)
	}
	if err := os.Remove(c.RemovedDir()); err != nil {
		t.Fatal(err)
	}
	if err := c.take(t.Context(), "nobody"); salt.KindOf(err) != salt.NotFound {
		t.Errorf("a stranger: %v", err)
	}
	if _, banned, _ := c.banned("nobody"); banned {
		t.Error("a stranger was banned")
	}
	c.excludes = func(string) bool { return false }
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.take(ctx, "b"); salt.KindOf(err) != salt.Unavailable {
		t.Errorf("not on record: %v", err)
	}
	write(peer)
	c.excludes = func(id string) bool { return id == "b" }
	if err := c.take(t.Context(), "b"); err != nil {
		t.Errorf("on record: %v", err)
	}
}
