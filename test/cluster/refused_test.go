package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/test/eventually"
)

// refused waits until n reports a reason: as the error with which it exits or, if a slow machine
// started it before the answer arrived, in its log.
func refused(t *testing.T, n *node, pattern string) {
	t.Helper()
	p := regexp.MustCompile(pattern)
	eventually.Nil(t, soon, "the refusal "+pattern, func() error {
		// Some log formats escape quotes.
		if text := strings.NewReplacer(`\`, "", `"`, "").Replace(n.Log()); !p.MatchString(text) {
			return fmt.Errorf("alive %v, says %s", n.Alive(), text)
		}
		return nil
	})
}

// TestRefusals: two incompatible masters both report which option has which value where, and the
// one that started first continues.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// before changes the configuration of the second master while the first one runs, and
		// returns the expected reason.
		before func(f *fleet)
		after  func(t *testing.T, f *fleet, n *node) string
	}{
		"another cluster_id": {after: func(t *testing.T, f *fleet, n *node) string {
			rewrite(t, n, "cluster_id: test", "cluster_id: prod")
			return fmt.Sprintf("cluster_id is prod on %s and test on %s", n.Host, f.masters[0].Host)
		}},
		"an unshared cachedir": {after: func(t *testing.T, f *fleet, n *node) string {
			cache := n.Path("var/cache/salt/master")
			must(t, os.Remove(cache))
			must(t, os.Mkdir(cache, 0o700))
			return fmt.Sprintf("cachedir of %s (%s) is not the directory that %s uses: it has no data of %[3]s", n.Host, cache, f.masters[0].Host)
		}},
		"an unknown peer": {before: func(f *fleet) { rewrite(f.t, f.masters[0], "["+f.masters[1].Host+"]", "[]") },
			after: func(t *testing.T, f *fleet, n *node) string {
				return fmt.Sprintf("cluster_peers of %s () does not name %s", f.masters[0].Host, n.Host)
			}},
		"a peer that names this one and is not named": {after: func(t *testing.T, f *fleet, n *node) string {
			rewrite(t, n, "["+f.masters[0].Host+"]", "[]")
			return fmt.Sprintf("cluster_peers of %s () does not name %s: name it there, or remove %[1]s from cluster_peers of %[2]s", n.Host,
				f.masters[0].Host)
		}},
		"another cluster key": {after: func(t *testing.T, f *fleet, n *node) string {
			// A copy of the directory in which the pair was created again.
			pki := n.Path("pki")
			must(t, os.CopyFS(pki, os.DirFS(filepath.Join(f.shared, "pki"))))
			for _, ext := range []string{".pem", ".pub"} {
				must(t, os.Remove(filepath.Join(pki, "cluster"+ext)))
			}
			k, err := crypt.GenerateKey(2048)
			must(t, err)
			must(t, crypt.WriteKeyPair(pki, "cluster", k, ""))
			there, err := crypt.LoadPublic(filepath.Join(f.shared, "pki/cluster.pub"))
			must(t, err)
			rewrite(t, n, f.shares[1]+"/pki", pki)
			print := func(k *crypt.PublicKey) string { return crypt.Fingerprint(k.PEM(), "sha256") }
			return fmt.Sprintf("the fingerprint of cluster.pub (is cluster_pki_dir one directory for all?) is %s on %s and %s on %s",
				print(k.Public()), n.Host, print(there), f.masters[0].Host)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, "", brine, brine)
			if c.before != nil {
				c.before(f)
			}
			f.masters[0].Start()
			why := c.after(t, f, f.masters[1])
			f.masters[1].Launch()
			for _, m := range f.masters {
				refused(t, m, `(?m)^(salt-master:|.*\[(ERROR|WARNING) *\]).*`+regexp.QuoteMeta(why))
			}
			if !f.masters[0].Alive() {
				t.Error("the one that was there has ended")
			}
		})
	}
}

// rewrite changes the configuration of a stopped master.
func rewrite(t *testing.T, n *node, from, to string) {
	t.Helper()
	text := n.Read("master")
	if strings.Count(text, from) != 1 {
		t.Fatalf("%q is not once in %s", from, text)
	}
	n.Write("master", strings.Replace(text, from, to, 1))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
