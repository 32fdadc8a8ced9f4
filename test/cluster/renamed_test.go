package cluster

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// rename gives a stopped master another id and address. Its directories stay.
func rename(n *node, host string) {
	n.Write("master", strings.ReplaceAll(n.Read("master"), n.Host, host))
	n.Name, n.Host = host, host
}

// ends waits until a master that may not start has ended with an error that matches a pattern.
func ends(t *testing.T, n *node, pattern string) {
	t.Helper()
	if code := n.Wait(soon); code == 0 || code == -1 {
		t.Errorf("%s ends with %d", n.Name, code)
	}
	refused(t, n, pattern)
}

// TestRenamedMember changes the id of a master, whose directories stay. It does not start, neither alone nor as a second member, and
// what it had acknowledged is on all masters when it has its id again.
func TestRenamedMember(t *testing.T) {
	t.Parallel()
	a := newApart(t, 3, "").start()
	one, three := a.masters[0], a.masters[2]
	a.pend(one, "m0")
	isState(t, three, "m0", "minions_pre")
	a.equal(one, 3, nil)
	for _, m := range a.masters[:2] {
		m.Kill()
	}
	if _, errs, code := three.Run(brine, "salt-key", "-y", "-r", "m0"); code != 0 {
		t.Fatal(errs)
	}
	isState(t, three, "m0", "minions_rejected")
	three.Kill()
	old, other := three.Host, daemontest.Host()
	was := fmt.Sprintf("the id of this master was %s and is %s now", regexp.QuoteMeta(old), regexp.QuoteMeta(other))
	rename(three, other)
	three.Launch()
	ends(t, three, was)
	for _, m := range a.masters[:2] {
		m.Launch().Await()
	}
	three.Launch()
	ends(t, three, was)

	// It is not a second member, either, if it has lost the keys of the cluster.
	must(t, os.Rename(three.Path("cluster"), three.Path("before")))
	three.Launch()
	ends(t, three, regexp.QuoteMeta(other+" has the key of the member "+old+", which is not connected"))
	must(t, os.RemoveAll(three.Path("cluster")))
	must(t, os.Rename(three.Path("before"), three.Path("cluster")))
	eventually.Nil(t, soon, "one lists three masters", func() error {
		out, _, _ := one.Run(brine, "cluster", "status", "--out=json")
		if strings.Contains(out, other) || !strings.Contains(out, old) {
			return errors.New(out)
		}
		return nil
	})
	rename(three, old)
	three.Launch().Await()
	for _, m := range a.masters {
		isState(t, m, "m0", "minions_rejected")
	}
	a.equal(one, 3, map[string]int{"peer": 3})
}

// TestRenamedSharing changes the id of a master in a shared directory. It starts after the steps that it names.
func TestRenamedSharing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine).start()
	one, two := f.masters[0], f.masters[1]
	two.Kill()
	old, other := two.Host, daemontest.Host()
	rename(two, other)
	two.Launch()
	ends(t, two, fmt.Sprintf("the id of this master was %s and is %s now", regexp.QuoteMeta(old), regexp.QuoteMeta(other)))
	own := two.Path("var/cache/salt/master/brine/masters")
	if _, err := os.Lstat(own + "/" + other); err == nil {
		t.Error("it has made a new directory")
	}
	must(t, os.Rename(own+"/"+old, own+"/"+other))
	must(t, os.Remove(f.shared+"/pki/peers/"+old+".pub"))
	one.Kill()
	rewrite(t, one, old, other)
	one.Launch().Await()
	two.Launch().Await()
	f.minion(brine, "m0", one.Host, "")
	eventually.Nil(t, soon, "the minion of the other answers", func() error { return two.PingAll(brine, "m0") })
}
