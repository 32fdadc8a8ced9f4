package federation

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/net/sealed"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// TestClusterAbove: a cluster of three commands a site. The key of the site is accepted at one member, and
// a command is given at another one, which is killed before the result arrives: the others have it.
func TestClusterAbove(t *testing.T) {
	tools.Slow(t)
	busHost := daemontest.Host()
	cert, key := certificate(t, busHost)
	conf := fmt.Sprintf("federation_urls: ['tls://%s:%d']\nfederation_ca: %s\n", busHost, daemontest.HubPort, cert)
	var hosts []string
	for range 3 {
		hosts = append(hosts, daemontest.Host())
	}
	slices.Sort(hosts)
	var members []*daemontest.Node
	for i, h := range hosts {
		n := daemontest.NewMaster(t, brine, h, h, "")
		n.Write("master", n.Read("master")+conf+fmt.Sprintf("federation_hub: true\nkeysize: 2048\ncluster_id: above\ncluster_isolated_filesystem: True\n"+
			"cluster_secret: %s\ncluster_peers: [%s]\ncluster_pki_dir: %s\ncluster_pool_port: %d\ncluster_voters: [%s]\n", clusterSecret,
			strings.Join(slices.Delete(slices.Clone(hosts), i, i+1), ", "), n.Path("cluster"), poolPort, strings.Join(hosts, ", ")))
		members = append(members, n.Launch())
	}
	for _, n := range members {
		n.Await()
	}
	finger := ""
	eventually.Nil(t, limit, "the members have one key", func() error {
		for i, n := range members {
			k, err := crypt.LoadPublic(n.Path("cluster/cluster.pub"))
			if err != nil {
				return err
			}
			now := sealed.Fingerprint(string(k.PEM()))
			if i > 0 && now != finger {
				return fmt.Errorf("%s and %s", now, finger)
			}
			finger = now
		}
		return nil
	})
	daemontest.NewHub(t, "bus", busHost, fmt.Sprintf("tls_cert: %s\ntls_key: %s\n", cert, key), finger).Launch()
	site := daemontest.NewMaster(t, brine, "eu", daemontest.Host(), "auto_accept: true\n"+conf+fmt.Sprintf("federation_finger: ['%s']\n", finger)).Start()
	minion := daemontest.NewMinion(t, brine, "meu", []string{site.Host}, "").Start()
	eventually.Nil(t, limit, "the minion answers its master", func() error { return site.PingAll(brine, "meu") })

	at := func(n *daemontest.Node) *fleet { return &fleet{t: t, above: n} }
	decide := func(n *daemontest.Node, what string) {
		t.Helper()
		eventually.Nil(t, limit, n.Name+" has the key of the site", func() error {
			out, errs, code := n.Run(brine, "salt-run", "federation."+what, "eu")
			if code != 0 || !strings.Contains(out, "True") {
				return fmt.Errorf("%s %s", out, errs)
			}
			return nil
		})
	}
	has := func(state string, all ...*daemontest.Node) {
		t.Helper()
		for _, n := range all {
			eventually.Nil(t, limit, "the key is "+state+" at "+n.Name, func() error {
				out, errs, _ := n.Run(brine, "salt-run", "--out=json", "federation.keys")
				var keys map[string]map[string]string
				if err := json.Unmarshal([]byte(out), &keys); err != nil || keys[state]["eu"] == "" {
					return fmt.Errorf("%s %s %w", out, errs, err)
				}
				return nil
			})
		}
	}
	// Decisions arrive at members that were down, and none undoes a later one.
	members[2].Kill()
	decide(members[0], "accept")
	has("accepted", members[:2]...)
	members[2].Start()
	has("accepted", members[2])
	members[0].Kill()
	decide(members[1], "reject")
	has("rejected", members[1:]...)
	members[1].Kill()
	members[0].Start()
	has("rejected", members[0])
	decide(members[2], "accept")
	has("accepted", members[0], members[2])
	members[1].Start()
	has("accepted", members...)
	for _, n := range members {
		eventually.Nil(t, limit, n.Name+" commands the site", func() error { return n.PingOnly(brine, "meu") })
	}

	results := func(n *daemontest.Node, jid, word string) {
		t.Helper()
		at(n).isComplete(jid, "eu")
		eventually.Nil(t, limit, n.Name+" has the return", func() error {
			rets, err := at(n).returns(jid)
			if err == nil && rets["meu"] != word {
				err = fmt.Errorf("%v", rets)
			}
			return err
		})
	}
	gate := filepath.Join(t.TempDir(), "gate")
	for i, issuer := range members {
		word := fmt.Sprint("word", i)
		jid := at(issuer).give("--expire", "10m", "meu", "cmd.run",
			"echo "+word+" >> /proc/$PPID/cwd/ran; while [ ! -e "+gate+word+" ]; do sleep 0.1; done; echo "+word)
		for _, n := range members {
			eventually.Nil(t, limit, n.Name+" has the command", func() error {
				all, err := at(n).job(jid)
				if err == nil && all["eu"].State != "stored" {
					err = fmt.Errorf("%+v", all)
				}
				return err
			})
		}
		issuer.Kill()
		if err := os.WriteFile(gate+word, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, n := range members {
			if n != issuer {
				results(n, jid, word)
			}
		}
		issuer.Start()
		results(issuer, jid, word)
	}
	b, err := os.ReadFile(minion.Path("ran"))
	if err != nil || strings.Join(strings.Fields(string(b)), " ") != "word0 word1 word2" {
		t.Errorf("the minion ran %q %v", b, err)
	}
}
