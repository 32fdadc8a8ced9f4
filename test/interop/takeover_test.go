package interop

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestTakeOver migrates a master and a minion in place and back: the same directories, keys and
// configuration are used by Salt's programs, then by Brine's, then by Salt's again.
func TestTakeOver(t *testing.T) {
	stockTree(t)
	host := daemontest.Host()
	master := newMaster(t, stock, "boss", host, "")
	minion := newMinion(t, stock, "worker", []string{host}, "grains: {role: web}\n")
	master.Start()
	minion.Start()
	master.Accept("worker")
	eventually.Nil(t, stockLimit, "the minion answers Salt's master", func() error { return master.PingAll(stock, "worker") })
	before := pkiOf(t, master)

	for _, step := range []struct {
		what string
		n    *daemontest.Node
		kind kind
	}{
		{"master by Brine", master, brine}, {"minion by Brine", minion, brine},
		{"master by Salt", master, stock}, {"minion by Salt", minion, stock},
	} {
		step.n.Kill()
		step.n.Kind = step.kind
		step.n.Start()
		eventually.Nil(t, stockLimit, "the minion answers after the take-over of the "+step.what, func() error {
			return master.PingAll(master.Kind, "worker")
		})
		if rets, err := master.SaltJSON(master.Kind, "-G", "role:web", "test.ping"); err != nil || rets["worker"] != true {
			t.Errorf("by grain after the take-over of the %s: %v, %v", step.what, rets, err)
		}
		if after := pkiOf(t, master); after != before {
			t.Errorf("the take-over of the %s changed the keys from\n%s\nto\n%s", step.what, before, after)
		}
	}
}

// pkiOf lists the keys of a master with their contents.
func pkiOf(t *testing.T, master *daemontest.Node) string {
	t.Helper()
	var b strings.Builder
	root := master.Path("etc/salt/pki/master")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		b.WriteString(strings.TrimPrefix(path, root) + ": " + strings.TrimSpace(string(text)) + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFrozenMaster stops a master without closing its connections, like a host that hangs. The
// minion detects it by heartbeats, and commands through the other master still work.
func TestFrozenMaster(t *testing.T) {
	for _, k := range []kind{brine, stock} {
		t.Run(string(k), func(t *testing.T) {
			if k == stock {
				stockTree(t)
			}
			ha, hb := daemontest.Host(), daemontest.Host()
			a := newMaster(t, k, "one", ha, "").Start()
			b := newMaster(t, brine, "two", hb, "")
			copyKeys(t, a, b)
			b.Start()
			w := newMinion(t, brine, "worker", []string{ha, hb}, "heartbeat_interval: 1\n").Start()
			for _, m := range []*daemontest.Node{a, b} {
				m.Accept("worker")
				eventually.Nil(t, stockLimit, "the minion answers "+m.Name, func() error { return m.PingAll(m.Kind, "worker") })
			}
			// Stop all its processes: the first process of a stock master does not communicate with
			// minions.
			freeze := func(s syscall.Signal) {
				if err := syscall.Kill(-a.PID(), s); err != nil {
					t.Fatal(err)
				}
			}
			freeze(syscall.SIGSTOP)
			w.Logged("cannot connect to the master; retrying master=" + ha)
			if err := b.PingAll(brine, "worker"); err != nil {
				t.Errorf("through the other master: %v", err)
			}
			freeze(syscall.SIGCONT)
			took := eventually.Nil(t, stockLimit, "the minion answers the master that woke up", func() error { return a.PingAll(a.Kind, "worker") })
			t.Logf("answered %.1f s after the master woke up", took.Seconds())
		})
	}
}
