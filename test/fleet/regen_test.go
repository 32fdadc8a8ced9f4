package fleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/store/keystore"
	"brine/test/eventually"
)

// TestRegenKeys: a minion gets a new key pair. Its return and further commands work, the next start
// uses the new key, and the master accepts it once the operator has removed the old one.
func TestRegenKeys(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	events := m.events("salt/minion/")
	first := startMinion(t, "w1", "zeromq", []*theMaster{m}, nil)
	m.awaitStart(events, "w1")
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(first.cfg.PKIDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	pem, pub, trusted := read("minion.pem"), read("minion.pub"), read("minion_master.pub")
	if ret := m.command("list", "w1", "saltutil.regen_keys", 1)["w1"]; ret.Int("retcode") != 0 {
		t.Fatalf("regen_keys: %v", ret.At("return"))
	}
	if read("minion.pem") == pem || read("minion.pub") == pub || read("minion_master.pub") != trusted {
		t.Error("the key pair is the old one, or the master's key has changed")
	}
	if fi, err := os.Stat(filepath.Join(first.cfg.PKIDir, "minion.pem")); err != nil || fi.Mode().Perm() != 0o400 {
		t.Errorf("the private key: %v %v", fi.Mode(), err)
	}
	m.command("list", "w1", "test.ping", 1)
	first.stop()
	second := startMinion(t, "w1", "zeromq", []*theMaster{m}, func(cfg *minion.Config) { cfg.PKIDir = first.cfg.PKIDir })
	eventually.Nil(t, eventually.Limit, "the new key is denied", func() error {
		if !strings.Contains(m.log.String(), "sign-in denied") {
			return errors.New("it is not")
		}
		return nil
	})
	if err := m.keys.Delete(keystore.Accepted, "w1"); err != nil {
		t.Fatal(err)
	}
	m.awaitStart(events, "w1")
	m.command("list", "w1", "test.ping", 1)
	if _, key, err := m.keys.Lookup("w1"); err != nil || strings.TrimSpace(key) != strings.TrimSpace(read("minion.pub")) {
		t.Error(fmt.Errorf("the master has another key: %w", err))
	}
	second.stop()
}
