package cluster

import (
	"os"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestTwoClusters: two masters name each other by names that are not their ids, and each creates a cluster while the other does not run.
// Both report it, in their logs and in the doctor, and one of them joins the other after the steps that they name.
func TestTwoClusters(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, for an /etc/hosts of its own")
	}
	t.Parallel()
	a := &apart{t: t}
	one, two := a.add(daemontest.Host(), "peer2"), a.add(daemontest.Host(), "peer1")
	for _, m := range a.masters {
		m.Write("hosts", "127.0.0.1 localhost\n"+one.Host+" peer1\n"+two.Host+" peer2\n")
		m.Within = []string{"unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, m.Path("hosts")}
	}
	one.Launch().Await()
	one.Kill() // each creates its cluster while the other does not run
	two.Launch().Await()
	one.Launch().Await()
	for _, c := range []struct {
		m, other *node
		name     string
	}{{one, two, "peer2"}, {two, one, "peer1"}} {
		why := "the master there, " + c.other.Host + ", is in another cluster of the name test"
		refused(t, c.m, why+".*remove cluster_pki_dir and cachedir there.*peer="+c.name)
		eventually.True(t, "the doctor of "+c.m.Name+" reports it", func() bool {
			out, _, code := c.m.Run(brine, "ha", "doctor", "--out=json")
			return code == 1 && strings.Contains(out, "its cluster_peers names "+c.name+": "+why)
		})
	}
	two.Kill()
	must(t, os.RemoveAll(two.Path("cluster")))
	must(t, os.RemoveAll(two.Path("var/cache/salt/master")))
	rewrite(t, two, "[peer1]", "["+one.Host+"]")
	two.Launch().Await()
	a.equal(one, 2, map[string]int{"peer": 2})
	// The name that is not an id does no harm in one cluster.
	eventually.True(t, "one has nothing to report", func() bool {
		out, _, _ := one.Run(brine, "ha", "doctor", "--out=json")
		return !strings.Contains(out, "cluster_peers")
	})
}
