// Package cluster runs clusters of masters as processes: Brine masters, and stock masters if the
// environment says where Salt is (see daemontest), behind a real HAProxy where that matters.
package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

type (
	kind = daemontest.Kind
	node = daemontest.Node
)

const (
	brine = daemontest.Brine
	stock = daemontest.Stock
)

const poolPort = 24520

// soon is the timeout for anything that should happen soon.
const soon = 90 * time.Second

// fleet is a set of masters on one shared directory. They are named by their addresses.
type fleet struct {
	t *testing.T
	// shared is the shared directory. shares are its paths, one for each master that newFleet makes.
	shared  string
	shares  []string
	masters []*node
}

// newFleet configures a master of each kind.
func newFleet(t *testing.T, more string, kinds ...kind) *fleet {
	t.Helper()
	shares := daemontest.Shared(t, len(kinds))
	f := &fleet{t: t, shared: shares[0], shares: shares}
	var hosts []string
	for range kinds {
		hosts = append(hosts, daemontest.Host())
	}
	for _, dir := range []string{"pki", "cache"} {
		if err := os.Mkdir(filepath.Join(f.shared, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i, k := range kinds {
		peers := slices.Delete(slices.Clone(hosts), i, i+1)
		f.masters = append(f.masters, f.master(k, hosts[i], peers, more))
	}
	return f
}

// master configures a master whose cachedir is the shared one.
func (f *fleet) master(k kind, host string, peers []string, more string) *node {
	f.t.Helper()
	shared := f.shared
	if i := len(f.masters); i < len(f.shares) {
		shared = f.shares[i]
	}
	n := daemontest.NewMaster(f.t, k, host, host, fmt.Sprintf("cluster_id: test\ncluster_peers: [%s]\ncluster_pki_dir: %s/pki\ncluster_pool_port: %d\n",
		strings.Join(peers, ", "), shared, poolPort)+more)
	if err := os.MkdirAll(n.Path("var/cache/salt"), 0o755); err != nil {
		f.t.Fatal(err)
	}
	// root_dir is prepended to cachedir, so that the shared directory cannot be named directly.
	if err := os.Symlink(filepath.Join(shared, "cache"), n.Path("var/cache/salt/master")); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// mounted reports whether masters reach the shared directory through different mounts (BRINE_SHARE).
func (f *fleet) mounted() bool {
	return slices.ContainsFunc(f.shares, func(dir string) bool { return dir != f.shared })
}

// start runs all masters.
func (f *fleet) start() *fleet {
	f.t.Helper()
	for _, m := range f.masters {
		m.Launch()
	}
	for _, m := range f.masters {
		m.Await()
	}
	return f
}

// minion runs a minion of a master.
func (f *fleet) minion(k kind, id string, host string, more string) *node {
	f.t.Helper()
	return daemontest.NewMinion(f.t, k, id, []string{host}, more).Start()
}

// TestEachCommandsAll: minions of three masters answer each of them, and all masters have the same
// returns.
func TestEachCommandsAll(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "auto_accept: true\n", brine, brine, brine).start()
	var ids []string
	var minions []*node
	for i, m := range f.masters {
		id := fmt.Sprintf("m%d", i)
		minions = append(minions, f.minion(brine, id, m.Host, ""))
		ids = append(ids, id)
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "all answer to "+m.Name, func() error { return m.PingAll(brine, ids...) })
	}
	out, errs, _ := f.masters[0].Run(brine, "salt", "--async", "--out=json", "*", "test.echo", "hello")
	jid := jidIn(out + errs)
	if jid == "" {
		t.Fatalf("no job: %q %q", out, errs)
	}
	for _, m := range f.masters {
		eventually.Nil(t, soon, "the job is known to "+m.Name, func() error {
			out, _, _ := m.Run(brine, "salt-run", "--out=json", "jobs.lookup_jid", jid)
			if strings.Count(out, "hello") != 3 {
				return errors.New(out)
			}
			return nil
		})
	}

	// A minion is unreachable until a job expires: every master knows that the others have
	// returned, even if only one master received the returns.
	minions[2].Kill()
	// A busy machine needs longer.
	kept := 2500 * time.Millisecond
	eventually.Nil(t, soon, "two return before the job expires", func() error {
		kept = min(2*kept, 20*time.Second)
		from := time.Now()
		out, errs, _ := f.masters[0].Run(brine, "salt", "--async", fmt.Sprintf("--expire=%.0f", kept.Seconds()), "*", "test.ping")
		if jid = jidIn(out + errs); jid == "" {
			return errors.New(out + errs)
		}
		for !f.returned(jid, ids[0]) || !f.returned(jid, ids[1]) {
			if time.Since(from) > kept {
				return errors.New("they were too slow")
			}
			time.Sleep(20 * time.Millisecond)
		}
		if time.Since(from) > kept {
			return errors.New("they may have been too slow")
		}
		return nil
	})
	for _, m := range f.masters {
		eventually.Nil(t, soon, "the job has expired at "+m.Name, func() error {
			for line := range strings.Lines(m.Log()) {
				if strings.Contains(line, "job expired before some minions received it") && strings.Contains(line, jid) {
					if !strings.Contains(line, "minions=1 ") {
						t.Error(line)
					}
					return nil
				}
			}
			return errors.New("it has not")
		})
	}
}

func jidIn(text string) string {
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		if len(w) == 20 {
			return w
		}
	}
	return ""
}
