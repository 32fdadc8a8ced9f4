package fleet

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/daemons/master"
	"brine/internal/daemons/minion"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
	"brine/test/eventually"
)

// write makes a file that only its owner may write.
func write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAutosignFileGrainsAndStub(t *testing.T) {
	dir := t.TempDir()
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutosignFile = write(t, filepath.Join(dir, "autosign.conf"), "# ours\nweb*\n")
		cfg.Keys.AutorejectFile = write(t, filepath.Join(dir, "autoreject.conf"), "bad*\n")
		write(t, filepath.Join(dir, "grains", "rack"), "r7\n")
		cfg.Keys.AutosignGrainsDir = filepath.Join(dir, "grains")
	})
	write(t, filepath.Join(m.cfg.PKIDir, "minions_autosign", "stub"), "")
	rack := func(c *minion.Config) {
		c.Options.AutosignGrains = []string{"rack"}
		c.CollectGrains = func(context.Context) *value.Dict { return value.DictOf("rack", "r7") }
	}
	for id, change := range map[string]func(*minion.Config){"web1": nil, "bad1": nil, "stub": nil, "byrack": rack, "other": nil} {
		startMinion(t, id, "zeromq", []*theMaster{m}, change)
	}
	want := map[string]keystore.State{"web1": keystore.Accepted, "stub": keystore.Accepted, "byrack": keystore.Accepted,
		"bad1": keystore.Rejected, "other": keystore.Pending}
	for id, state := range want {
		eventually.Nil(t, eventually.Limit, id+" is "+state.String(), func() error {
			if st, _, err := m.keys.Lookup(id); st != state {
				return errors.Join(errors.New(st.String()), err)
			}
			return nil
		})
	}
	if _, err := os.Stat(filepath.Join(m.cfg.PKIDir, "minions_autosign", "stub")); err == nil {
		t.Error("the stub is still there: it is good for one time only")
	}
}

func TestMaxMinionsKeepsFurtherOnesOut(t *testing.T) {
	m := startMaster(t, "one", "tcp", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Options.MaxMinions = 1
	})
	starts := m.events("salt/minion/")
	auths := m.events("salt/auth")
	startMinion(t, "w1", "tcp", []*theMaster{m}, nil)
	m.awaitStart(starts, "w1")
	startMinion(t, "w2", "tcp", []*theMaster{m}, nil)
	m.awaitStart(starts, "w2") // Salt refuses only above the limit
	time.Sleep(2500 * time.Millisecond)
	w3 := startMinion(t, "w3", "tcp", []*theMaster{m}, nil)
	timeout := time.After(time.Minute)
	for {
		select {
		case e := <-auths:
			if e.Data.Str("id") == "w3" {
				if e.Data.Str("act") != "full" || e.Data.Bool("result") {
					t.Errorf("event: %v", value.Repr(e.Data))
				}
				eventually.Nil(t, eventually.Limit, "the minion says why", func() error {
					if !strings.Contains(w3.log.String(), "max_minions") {
						return errors.New("not yet")
					}
					return nil
				})
				return
			}
		case <-timeout:
			t.Fatal("no event")
		}
	}
}

func TestOpenModeTakesAnotherKey(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Options.OpenMode = true })
	for range 2 { // two machines that claim one id
		starts := m.events("salt/minion/")
		w := startMinion(t, "w1", "zeromq", []*theMaster{m}, nil)
		m.awaitStart(starts, "w1")
		w.stop()
	}
}

func TestSameIDWithAnotherKeyIsDenied(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) { cfg.Keys.AutoAccept = true })
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, nil)
	m.awaitStart(starts, "w1")
	impostor := startMinion(t, "w1", "zeromq", []*theMaster{m}, nil)
	eventually.Nil(t, eventually.Limit, "the key is denied", func() error {
		_, err := m.keys.Read(keystore.Denied, "w1")
		return err
	})
	eventually.Nil(t, eventually.Limit, "the minion says so", func() error {
		if !strings.Contains(impostor.log.String(), handshake.ErrRejected.Error()) {
			return errors.New("not yet")
		}
		return nil
	})
	if ret := m.command("glob", "*", "test.ping", 1)["w1"]; ret.At("return") != true {
		t.Error("the real minion does not answer any more")
	}
}

func TestDeletedKeyEndsTheMinionsRights(t *testing.T) {
	m := startMaster(t, "one", "zeromq", nil)
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, nil)
	m.accept("w1")
	m.awaitStart(starts, "w1")
	if err := m.keys.Delete(keystore.Accepted, "w1"); err != nil {
		t.Fatal(err)
	}
	m.RotateAES() // as salt-key requests
	rep := m.Publish(value.DictOf("fun", "test.ping", "arg", value.ListOf(), "tgt", "*", "tgt_type", "glob", "ret", "", "user", "root", "kwargs",
		value.NewDict(0)))
	if !strings.Contains(value.Repr(rep), "Master could not resolve minions for target *") {
		t.Errorf("published to no minion: %v", value.Repr(rep))
	}
}

func TestSignedMasterKeys(t *testing.T) {
	sign := func(cfg *master.Config) { cfg.Options.MasterSignPubkey = true; cfg.Keys.AutoAccept = true }
	m := startMaster(t, "one", "zeromq", sign)
	pub, err := os.ReadFile(filepath.Join(m.cfg.PKIDir, "master_sign.pub"))
	if err != nil {
		t.Fatal(err)
	}
	verify := func(c *minion.Config) {
		c.Handshake.VerifyMasterPubkeySign = true
		write(t, filepath.Join(c.PKIDir, "master_sign.pub"), string(pub))
	}
	starts := m.events("salt/minion/")
	startMinion(t, "w1", "zeromq", []*theMaster{m}, verify)
	m.awaitStart(starts, "w1")

	// A master without the signing key is refused, and the reason is given.
	other := startMaster(t, "other", "zeromq", sign)
	w2 := startMinion(t, "w2", "zeromq", []*theMaster{other}, verify)
	eventually.Nil(t, eventually.Limit, "the refusal is told", func() error {
		if !strings.Contains(w2.log.String(), "is not signed by master_sign.pub") {
			return errors.New("not yet")
		}
		return nil
	})
}

func TestIPv6AndTwoTransportsAtOnce(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Listen[0].Publish, cfg.Listen[0].Request = "[::1]:0", "[::1]:0"
		l := cfg.Listen[0]
		l.Transport = transportOf(t, "tcp", nilLog)
		l.Publish, l.Request = "127.0.0.1:0", "127.0.0.1:0"
		l.Options = transport.ListenOptions{Filter: true}
		cfg.Listen = append(cfg.Listen, l)
	})
	pub, req := m.Addrs()
	starts := m.events("salt/minion/")
	startMinion(t, "six", "zeromq", []*theMaster{m}, nil)
	startMinion(t, "four", "tcp", []*theMaster{m}, func(c *minion.Config) {
		c.Options.Master = minion.Masters{req[1].String()}
		// The announced port is that of the first transport.
		c.Options.PublishPort = portOf(t, pub[1])
	})
	m.awaitStart(starts, "six")
	m.awaitStart(starts, "four")
	if rets := m.command("glob", "*", "test.ping", 2); rets["six"].At("return") != true || rets["four"].At("return") != true {
		t.Errorf("returns: %v", rets)
	}
}

func TestFilteringByTopic(t *testing.T) {
	m := startMaster(t, "one", "zeromq", func(cfg *master.Config) {
		cfg.Keys.AutoAccept = true
		cfg.Listen[0].Options.Filter = true
	})
	starts := m.events("salt/minion/")
	for _, id := range []string{"w1", "w2"} {
		startMinion(t, id, "zeromq", []*theMaster{m}, func(c *minion.Config) { c.Options.FilterPublications = true })
		m.awaitStart(starts, id)
	}
	if rets := m.command("glob", "*", "test.ping", 2); len(rets) != 2 {
		t.Errorf("glob: %v", rets)
	}
	if rets := m.command("list", "w2", "test.ping", 1); rets["w2"].At("return") != true {
		t.Errorf("list: %v", rets)
	}
	if rets := m.command("grain", "role:web", "test.ping", 2); len(rets) != 2 {
		t.Errorf("grain: %v", rets)
	}
}
