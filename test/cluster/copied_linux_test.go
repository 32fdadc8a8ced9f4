package cluster

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
	"brine/test/tools"
)

// copied is a cluster whose members know each other by names, so that a copy of a member may run at another address.
type copied struct {
	*apart
	names []string
	where []*netns.Machine
}

// newCopied configures n members, and prepares a machine for a copy of one.
func newCopied(t *testing.T, net *netns.Network, n int, more string) *copied {
	t.Helper()
	c := &copied{apart: &apart{t: t, more: more}}
	for i := range n + 1 {
		c.where = append(c.where, net.Machine(i+1))
	}
	for i := range n {
		c.names = append(c.names, fmt.Sprintf("master%d", i+1))
	}
	for i, name := range c.names {
		c.masters = append(c.masters, c.add(name, c.where[i]))
	}
	return c
}

// add configures a master that others know by a name. On the machine itself this name is a
// local address, as on a machine with a copied disk.
func (c *copied) add(name string, at *netns.Machine) *node {
	c.t.Helper()
	n := daemontest.NewMaster(c.t, brine, name, at.Addr, "")
	peers := slices.DeleteFunc(slices.Clone(c.names), func(s string) bool { return s == name })
	n.Write("master", n.Read("master")+c.options(n, secret, peers...))
	hosts := "127.0.0.1 localhost\n"
	for i, s := range c.names {
		addr := c.where[i].Addr
		if s == name {
			addr = at.Addr
		}
		hosts += addr + " " + s + "\n"
	}
	n.Write("hosts", hosts)
	n.Within = append(at.Within(), "unshare", "-m", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$@"`, n.Path("hosts"))
	return n
}

// copy copies the disk of a member that does not run to a machine.
func (c *copied) copy(member *node, to *netns.Machine) *node {
	c.t.Helper()
	clone := c.add(member.Name, to)
	for _, dir := range []string{"cluster", "var", "etc"} {
		if out, err := exec.Command("cp", "-a", member.Path(dir), clone.Dir).CombinedOutput(); err != nil {
			c.t.Fatalf("%v: %s", err, out)
		}
	}
	return clone
}

// TestCopiedMember: a copy of a member's machine starts at another address while the member runs.
// The members refuse it and report why, it does not start, and the member continues. When the
// member is gone, the copy starts.
func TestCopiedMember(t *testing.T) {
	t.Parallel()
	a := newCopied(t, netns.New(t), 3, "")
	for _, m := range a.masters {
		m.Launch()
	}
	one, member := a.masters[0], a.masters[2]
	a.equal(one, 3, nil)
	member.Kill()
	clone := a.copy(member, a.where[3])
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

// TestCopiedMemberOfCopies: of four members that store each return twice, one is replaced by a copy of its machine at the same address, which
// gets and stores returns. Then the copy is lost, and the member is back with its older disk: no return is lost, and it gets those that the
// copy had. Another copy starts beside it, at another address, and is refused; no return is lost by that either.
func TestCopiedMemberOfCopies(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	net := netns.New(t)
	a := newCopied(t, net, 4, "auto_accept: true\ncluster_return_copies: 2\n")
	for _, m := range a.masters {
		m.Launch()
	}
	for _, m := range a.masters {
		m.Await()
	}
	one, member, others := a.masters[0], a.masters[3], a.masters[:3]
	ids := []string{"m0", "m1"}
	for i, m := range []*node{one, member} {
		m := daemontest.NewMinion(t, brine, ids[i], []string{m.Host}, "")
		m.Within = net.Machine(20 + i).Within()
		m.Start()
	}
	answer := func(masters ...*node) {
		t.Helper()
		for _, m := range masters {
			eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
		}
	}
	w := newWords(t, len(ids))
	publish := func(n int, at ...*node) {
		t.Helper()
		for range n {
			for _, m := range at {
				if err := w.publish(m); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	answer(a.masters...)
	awaitCopies(t, one, 4, "2 of 4")
	publish(1, one, member)
	w.all(one, member)
	member.Kill()
	clone, second := a.copy(member, a.where[3]), a.copy(member, a.where[4])
	clone.Launch().Await()
	answer(clone, one)
	publish(2, one, clone)
	w.all(one, others[2])

	clone.Kill()
	member.Launch().Await()
	w.all(one, member)
	awaitCopies(t, one, 4, "2 of 4")
	for _, m := range a.masters {
		eventually.Nil(t, soon, "all is well at "+m.Name, func() error {
			all, code, err := states(m)
			if code != 0 {
				err = fmt.Errorf("%v, exit code %d, %w", all, code, err)
			}
			return err
		})
	}
	answer(member)
	second.Launch()
	if code := second.Wait(soon); code == 0 || code == -1 {
		t.Errorf("the copy ends with %d", code)
	}
	publish(1, one, member)
	// Each return is on two of the masters: any one of them may be lost.
	awaitCopies(t, one, 4, "2 of 4")
	a.equal(one, 4, map[string]int{"return": len(ids) * len(w.ids())})
	for _, m := range []*node{one, member} {
		m.Kill()
		w.all(others[2])
		m.Launch()
	}
	t.Logf("%d jobs", len(w.ids()))
}
