package ha

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// generate writes a key pair into a daemon's directory.
func generate(t *testing.T, n *daemontest.Node, directory, name string) *crypt.PrivateKey {
	t.Helper()
	k, err := crypt.GenerateKey(2048)
	if err != nil {
		t.Fatal(err)
	}
	give(t, n, directory, name, k)
	return k
}

// give writes an existing key pair.
func give(t *testing.T, n *daemontest.Node, directory, name string, k *crypt.PrivateKey) {
	t.Helper()
	n.Write(directory+"x", "") // creates the directory
	if err := crypt.WriteKeyPair(n.Path(directory), name, k, ""); err != nil {
		t.Fatal(err)
	}
}

const minionPKI = "etc/salt/pki/minion/"

// add starts one more master with a proxy, after prepare.
func (s *setup) add(name, more string, prepare func(*daemontest.Node)) *site {
	s.t.Helper()
	m := daemontest.NewMaster(s.t, daemontest.Brine, name, daemontest.Host(), "auto_accept: True\n"+more)
	if prepare != nil {
		prepare(m)
	}
	m.Start()
	x := &site{Node: m, front: newFront(s.t, m), heard: listen(s.t, m)}
	s.sites = append(s.sites, x)
	return x
}

// hot starts n masters with one key pair, each modified by prepare.
func hot(t *testing.T, n int, prepare func(*daemontest.Node)) *setup {
	t.Helper()
	s := &setup{t: t}
	for i := range n {
		s.add(fmt.Sprintf("m%d", i+1), "", func(m *daemontest.Node) {
			if i > 0 {
				shareKeys(t, s.sites[0].Node, m)
			}
			prepare(m)
		})
		waitKeys(t, s.sites[i].Node)
	}
	return s
}

func (s *setup) hosts() (out []string) {
	for _, x := range s.sites {
		out = append(out, x.front.host)
	}
	return out
}

// TestSigningKey: masters with different keys are signed by one signing key: all are used at once,
// and with failover. A master signed by another key is never obeyed, and the good masters get an
// event about it.
func TestSigningKey(t *testing.T) {
	for _, kind := range []string{"str", "failover"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := &setup{t: t}
			var signer *crypt.PrivateKey
			more := "master_sign_pubkey: True"
			s.add("m1", more, func(n *daemontest.Node) { signer = generate(t, n, pki, "master_sign") })
			s.add("m2", more, func(n *daemontest.Node) { give(t, n, pki, "master_sign", signer) })
			bad := s.add("m3", more, nil) // with a signing key of its own
			s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(),
				"master_type: "+kind+"\nverify_master_pubkey_sign: True\nalways_verify_signature: True\n")
			if err := os.MkdirAll(s.minion.Path(minionPKI), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := crypt.WritePublic(s.minion.Path(minionPKI+"master_sign.pub"), signer.Public()); err != nil {
				t.Fatal(err)
			}
			s.minion.Start()
			s.usable(0)
			if kind == "failover" {
				s.standsBy(0, 1)
				s.sites[0].Kill()
			}
			s.usable(1)
			s.minion.Logged("is not signed by master_sign.pub", "master="+bad.front.host)
			verified := "Successfully verified signature of master public key with verification public key master_sign.pub"
			s.minion.Logged(verified)
			if _, errs, _ := s.minion.Run(daemontest.Brine, "salt-call", "-l", "debug", "test.ping"); !strings.Contains(errs, verified) {
				t.Errorf("salt-call says nothing of the signature: %s", errs)
			}
			if rets, _ := bad.SaltJSON(daemontest.Brine, "*", "test.ping"); rets["w1"] == true {
				t.Error("the master without the right signature is obeyed")
			}
			eventually.Nil(t, within, "the good master hears of the bad one", func() error {
				d, n := s.sites[1].heard.last("salt/minion/w1/master_refused")
				if n == 0 || d.Dict("data").Str("master") != bad.front.host || !strings.Contains(d.Dict("data").Str("reason"), "not signed") {
					return fmt.Errorf("%d events, the last %v", n, d)
				}
				return nil
			})
			s.alive()
		})
	}
}

// TestOwnKeysForARunningFleet changes two hot masters from one shared key to separate keys without
// a change on the minion. The old private key is removed in between, and a minion that was down
// meanwhile accepts the new keys, too.
func TestOwnKeysForARunningFleet(t *testing.T) {
	s := newSetup(t, daemontest.Brine, daemontest.Brine, 2, "")
	s.usable(0)
	s.usable(1)
	public := func(i int) string {
		b, err := os.ReadFile(s.sites[i].Path(pki + "master.pub"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	shared := public(0)
	for i, x := range s.sites {
		if i == 1 {
			s.minion.Kill() // it is unreachable during the second move
		}
		x.Kill()
		for _, ext := range []string{".pem", ".pub"} {
			if err := os.Rename(x.Path(pki+"master"+ext), x.Path(pki+"master_previous"+ext)); err != nil {
				t.Fatal(err)
			}
		}
		x.Start()
		if public(i) == shared {
			t.Fatal("the key is the old one")
		}
		if i == 1 {
			// The old key is no longer needed.
			x.Kill()
			for _, ext := range []string{".pem", ".pub"} {
				if err := os.Remove(x.Path(pki + "master_previous" + ext)); err != nil {
					t.Fatal(err)
				}
			}
			x.Start()
			s.minion.Start()
		}
		t.Logf("answered %s %.1f s after it began with its own key", x.Name, s.usable(i).Seconds())
	}
	s.usable(0)
	if public(0) == public(1) {
		t.Error("the masters still share a key")
	}
	// A holder of the shared key is no longer accepted as the master, not even with the old
	// directory, which contains session keys, and with a job kept in it.
	thief := s.sites[0]
	thief.front.set(mode{cut: true})
	thief.Kill()
	if err := os.Remove(thief.Path(pki + "endorsements.json")); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".pem", ".pub"} {
		if err := os.Rename(thief.Path(pki+"master_previous"+ext), thief.Path(pki+"master"+ext)); err != nil {
			t.Fatal(err)
		}
	}
	thief.Start()
	marker := s.minion.Path("obeyed")
	if out, errs, code := thief.Run(daemontest.Brine, "salt", "--async", "--expire", "1h", "w1", "file.touch", marker); code != 0 {
		t.Fatal(out, errs)
	}
	thief.front.set(mode{})
	s.minion.Logged("minion_masters")
	if rets, _ := thief.SaltJSON(daemontest.Brine, "*", "test.ping"); rets["w1"] == true {
		t.Error("the shared key is still obeyed")
	}
	s.usable(1)
	if _, err := os.Stat(marker); err == nil {
		t.Error("a job that the thief kept was run")
	}
}

// TestFingers: a list of fingerprints permits masters with different keys at once. A minion that
// finds no matching master exits like a stock minion.
func TestFingers(t *testing.T) {
	s := &setup{t: t}
	for _, name := range []string{"m1", "m2"} {
		s.add(name, "", nil)
	}
	var fingers []string
	for _, x := range s.sites {
		b, err := os.ReadFile(filepath.Join(x.Dir, pki, "master.pub"))
		if err != nil {
			t.Fatal(err)
		}
		fingers = append(fingers, "'"+crypt.Fingerprint(b, "sha256")+"'")
	}
	s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "master_finger: ["+strings.Join(fingers, ", ")+"]\n").Start()
	s.usable(0)
	s.usable(1)

	wrong := daemontest.NewMinion(t, daemontest.Brine, "w2", s.hosts(), "master_finger: 'aa:bb'\n").Launch()
	if code := wrong.Wait(within); code != 42 {
		t.Errorf("the daemon ended with %d", code)
	}
	wrong.Logged("master_finger demands")
	_, errs, code := wrong.Run(daemontest.Brine, "salt-call", "test.ping")
	if code != 42 || !strings.Contains(errs, "master_finger demands") {
		t.Errorf("salt-call: %d %s", code, errs)
	}
}

// TestWrongAndRejectedKeys: one of two hot masters has another key, and a third one rejects this
// minion's. The good master continues to be used and gets events about both.
func TestWrongAndRejectedKeys(t *testing.T) {
	s := &setup{t: t}
	reject := func(n *daemontest.Node) { n.Write("reject", "w1\n") }
	s.add("m1", "", nil)
	s.minion = daemontest.NewMinion(t, daemontest.Brine, "w1", s.hosts(), "").Start()
	s.usable(0)
	s.minion.Kill()
	other := s.add("m2", "", nil)
	s.add("m3", "autoreject_file: reject", func(n *daemontest.Node) {
		reject(n)
		n.Write("master", strings.Replace(n.Read("master"), "autoreject_file: reject", "autoreject_file: "+n.Path("reject"), 1))
		shareKeys(t, s.sites[0].Node, n)
	})
	conf := s.minion.Read("minion")
	s.minion.Write("minion", strings.Replace(conf, s.sites[0].front.host, strings.Join(s.hosts(), ", "), 1))
	s.minion.Start()
	s.usable(0)
	for what, text := range map[string]string{"wrong key": "fingerprint", "rejected key": "has rejected"} {
		eventually.Nil(t, within, "the good master hears of a "+what, func() error {
			for _, e := range s.sites[0].heard.all("salt/minion/w1/master_refused") {
				if strings.Contains(e.Dict("data").Str("reason"), text) {
					return nil
				}
			}
			return errors.New("not yet")
		})
	}
	if rets, _ := other.SaltJSON(daemontest.Brine, "*", "test.ping"); rets["w1"] == true {
		t.Error("a master with another key is obeyed")
	}
	_, errs, code := s.minion.Run(daemontest.Brine, "salt-call", "--master", other.front.host, "test.ping")
	if code != 1 || !strings.Contains(errs, "Invalid master key") {
		t.Errorf("salt-call with the wrong master: %d %s", code, errs)
	}
	_, errs, code = s.minion.Run(daemontest.Brine, "salt-call", "--master", s.sites[2].front.host, "test.ping")
	if code != 77 || !strings.Contains(errs, "has rejected") {
		t.Errorf("salt-call with the master that rejects: %d %s", code, errs)
	}
	s.alive()

	// A refusal ends the daemon only if configured.
	s.minion.Kill()
	s.minion.Write("minion", strings.Replace(conf, s.sites[0].front.host, s.sites[2].front.host, 1)+"rejected_retry: False\n")
	s.minion.Launch()
	if code := s.minion.Wait(within); code != 77 {
		t.Errorf("with rejected_retry: False the daemon ended with %d", code)
	}
}
