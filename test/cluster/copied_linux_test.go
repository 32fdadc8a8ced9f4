package cluster

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// TestCopiedMember: a copy of a member's machine starts at another address while the member runs.
// The members refuse it and report why, it does not start, and the member continues. When the
// member is gone, the copy starts.
func TestCopiedMember(t *testing.T) {
	t.Parallel()
	net := netns.New(t)
	a := &apart{t: t}
	names := []string{"master1", "master2", "master3"}
	var where []*netns.Machine
	for i := range 4 {
		where = append(where, net.Machine(i+1))
	}
	// add configures a master that others know by a name. On the machine itself this name is a
	// local address, as on a machine with a copied disk.
	add := func(name string, at *netns.Machine) *node {
		n := daemontest.NewMaster(t, brine, name, at.Addr, "")
		peers := slices.DeleteFunc(slices.Clone(names), func(s string) bool { return s == name })
		n.Write("master", n.Read("master")+a.options(n, secret, peers...))
		hosts := "127.0.0.1 localhost\n"
		for i, s := range names {
			addr := where[i].Addr
			if s == name {
				addr = at.Addr
			}
			hosts += addr + " " + s + "\n"
		}
		n.Write("hosts", hosts)
		n.Within = append(at.Within(), "unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, n.Path("hosts"))
		return n
	}
	for i, name := range names {
		a.masters = append(a.masters, add(name, where[i]).Launch())
	}
	one, member := a.masters[0], a.masters[2]
	a.equal(one, 3, nil)
	member.Kill()
	clone := add(member.Name, where[3])
	for _, dir := range []string{"cluster", "var", "etc"} {
		if out, err := exec.Command("cp", "-a", member.Path(dir), clone.Dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	member.Launch()
	a.equal(one, 3, nil)
	clone.Launch()
	if code := clone.Wait(soon); code == 0 || code == -1 {
		t.Errorf("the copy ends with %d", code)
	}
	refused(t, clone, `another process is connected as `+member.Name+`, from `+regexp.QuoteMeta(member.Host))
	for _, m := range a.masters[:2] {
		refused(t, m, `another process is connected as `+member.Name+`, from `+regexp.QuoteMeta(member.Host))
	}
	a.pend(one, "m0")
	one.Accept("m0")
	isState(t, member, "m0", "minions")
	member.Kill()
	clone.Launch()
	eventually.True(t, "the copy starts when the member is gone", func() bool { return strings.Contains(clone.Log(), "salt-master is up") })
}
