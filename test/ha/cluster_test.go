package ha

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/netns"
)

// TestPartitionedCluster: one of three masters without a shared directory is silently cut off from
// the other two. Both sides continue: jobs run and keys are decided about, also by the single
// master. After reconnection all have the same records: a key rejected on one side and accepted on
// the other is rejected, and a deleted key stays deleted.
func TestPartitionedCluster(t *testing.T) {
	t.Parallel()
	n := netns.New(t)
	var ms []*netns.Machine
	var masters []*daemontest.Node
	for i := range 3 {
		ms = append(ms, n.Machine(i+1))
	}
	for i, m := range ms {
		var peers []string
		for j, p := range ms {
			if j != i {
				peers = append(peers, p.Addr)
			}
		}
		d := daemontest.NewMaster(t, daemontest.Brine, m.Addr, m.Addr,
			fmt.Sprintf("cluster_id: apart\ncluster_isolated_filesystem: True\ncluster_secret: 7ef7697a5ec2e70f7e5755ecd0123456\ncluster_peers: [%s]\n",
				strings.Join(peers, ", ")))
		d.Within = m.Within()
		masters = append(masters, d)
		d.Launch()
	}
	for i := range 3 {
		d := daemontest.NewMinion(t, daemontest.Brine, fmt.Sprint("m", i), []string{ms[i].Addr}, "")
		d.Within = ms[i].Within()
		d.Start()
	}
	equal := func() {
		t.Helper()
		eventually.Nil(t, 90*time.Second, "all have the same", func() error {
			out, errs, _ := masters[0].Run(daemontest.Brine, "salt-run", "--out=json", "cluster.check")
			var r struct {
				Equal   bool
				Masters []string
			}
			if err := json.Unmarshal([]byte(out), &r); err != nil || !r.Equal || len(r.Masters) != 3 {
				return errors.New(out + errs)
			}
			return nil
		})
	}
	keyState := func(m *daemontest.Node, id, want string) {
		t.Helper()
		eventually.Nil(t, 60*time.Second, fmt.Sprintf("%s is %q at %s", id, want, m.Name), func() error {
			keys, err := m.Keys()
			if err != nil {
				return err
			}
			for directory, ids := range keys {
				if slices.Contains(ids, id) != (directory == want) {
					return fmt.Errorf("%v", keys)
				}
			}
			return nil
		})
	}
	decide := func(m *daemontest.Node, args ...string) {
		t.Helper()
		if _, errs, code := m.Run(daemontest.Brine, "salt-key", append([]string{"-y"}, args...)...); code != 0 {
			t.Fatalf("salt-key %v: %s", args, errs)
		}
	}
	answer := func(m *daemontest.Node, ids ...string) { // not from all: it would wait for unreachable minions
		t.Helper()
		eventually.Nil(t, 60*time.Second, fmt.Sprintf("%v answer to %s", ids, m.Name), func() error {
			rets, err := m.SaltJSON(daemontest.Brine, "-L", strings.Join(ids, ","), "test.ping")
			for _, id := range ids {
				if rets[id] != true {
					err = errors.Join(err, errors.New("no answer of "+id))
				}
			}
			return err
		})
	}
	masters[0].Accept("m0", "m1", "m2")
	for _, m := range masters {
		eventually.Nil(t, 60*time.Second, "all answer to "+m.Name, func() error { return m.PingAll(daemontest.Brine, "m0", "m1", "m2") })
	}
	// More keys to decide about, of minions that no longer exist.
	for _, id := range []string{"x", "y", "z"} {
		decide(masters[0], "--gen-keys="+id, "--gen-keys-dir="+masters[0].Dir)
		masters[0].Write("etc/salt/pki/master/minions_pre/"+id, masters[0].Read(id+".pub"))
	}
	for _, m := range masters {
		keyState(m, "x", "minions_pre")
		keyState(m, "y", "minions_pre")
		keyState(m, "z", "minions_pre")
	}
	equal()

	for _, other := range ms[1:] {
		n.Swallow(ms[0], other)
		n.Swallow(other, ms[0])
	}
	decide(masters[0], "-r", "x")
	decide(masters[1], "-a", "x")
	decide(masters[0], "-a", "y")
	decide(masters[2], "-d", "y")
	decide(masters[0], "-a", "z")
	keyState(masters[2], "x", "minions") // the two connected masters agree
	keyState(masters[1], "y", "")
	for side, who := range map[*daemontest.Node][]string{masters[0]: {"m0"}, masters[1]: {"m1", "m2"}} {
		answer(side, who...)
	}
	if keys, err := masters[1].Keys(); err != nil || !slices.Contains(keys["minions_pre"], "z") {
		t.Fatalf("the sides are not apart: %v %v", keys, err)
	}

	for _, other := range ms[1:] {
		n.Pass(ms[0], other)
		n.Pass(other, ms[0])
	}
	for _, m := range masters {
		keyState(m, "x", "minions_rejected")
		keyState(m, "y", "")
		keyState(m, "z", "minions")
	}
	equal()
	for _, m := range masters {
		answer(m, "m0", "m1", "m2")
	}
}
