package cluster

import (
	"os"
	"testing"

	"brine/test/daemontest"
)

// TestKeysOnFullDisk: the disk with the keys and data of a member, and of a master that is in no cluster, is full while salt-key decides
// there, and is killed then. What salt-key reports as done is done, on all members when there is space again; what it reports as failed is as before.
func TestKeysOnFullDisk(t *testing.T) {
	t.Parallel()
	a := newApart(t, 2, "")
	one, full := a.masters[0], a.masters[1]
	plain := daemontest.NewMaster(t, brine, "plain", daemontest.Host(), "")
	put := func(m *node, keys string) *daemontest.Disk {
		t.Helper()
		disk := daemontest.NewDisk(t, m.Path("disk"), "48m")
		for path, name := range map[string]string{keys: "pki", "var/cache/salt/master": "cache"} {
			must(t, os.MkdirAll(m.Path(path+"/.."), 0o755))
			must(t, os.Mkdir(m.Path("disk/"+name), 0o700))
			must(t, os.Symlink(m.Path("disk/"+name), m.Path(path)))
		}
		return disk
	}
	diskFull, diskPlain := put(full, "cluster"), put(plain, "etc/salt/pki/master")
	a.start()
	plain.Start()
	ids := []string{"c0", "c1", "c2", "c3"}
	a.pend(one, ids...)
	for _, id := range ids {
		plain.Write("etc/salt/pki/master/minions_pre/"+id, one.Read("cluster/minions_pre/"+id))
		isState(t, full, id, "minions_pre")
	}
	for _, c := range []struct {
		m    *node
		disk *daemontest.Disk
		all  []*node
	}{{full, diskFull, a.masters}, {plain, diskPlain, []*node{plain}}} {
		want := map[string]string{}
		for _, id := range ids {
			want[id] = "minions_pre"
		}
		for _, step := range [][]struct{ how, id, to string }{
			{{"-a", "c0", "minions"}, {"-r", "c1", "minions_rejected"}, {"-d", "c2", ""}},
			{{"-D", "", ""}},
		} {
			c.disk.Fill()
			for _, s := range step {
				args := []string{"-y", s.how}
				if s.id != "" {
					args = append(args, s.id)
				}
				out, errs, code := c.m.Run(brine, "salt-key", args...)
				t.Logf("%s: salt-key %v: exit code %d, %s%s", c.m.Name, args, code, out, errs)
				for _, id := range ids {
					if code == 0 && (s.id == id || s.id == "") {
						want[id] = s.to
					}
					if s := state(c.m, id); s != want[id] {
						t.Errorf("%s is in %q on %s, not in %q", id, s, c.m.Name, want[id])
					}
				}
			}
			if len(step) == 1 { // the master is killed before it could record this
				c.m.Kill()
			}
			c.disk.Free()
			if len(step) == 1 {
				c.m.Start()
			}
			for _, m := range c.all {
				for _, id := range ids {
					isState(t, m, id, want[id])
				}
			}
		}
	}
	a.equal(one, 2, nil)
}
