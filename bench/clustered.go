package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
	"brine/internal/host/freeport"
)

// runCluster compares the cost of a return at a single master, at a cluster of one, and at three
// masters that share the minions: CPU time, and bytes read and written in files and connections, by
// all masters together.
func runCluster(ctx context.Context, b *bench, k kind) error {
	// It is removed after all measurements: a file system may take long to reuse inodes that have
	// just been freed (ext4 without a journal), which would be attributed to the second run.
	directories, err := os.MkdirTemp(b.tmp, "shared-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directories)
	var one clusterCost
	for _, c := range []struct {
		masters int
		name    string
	}{{0, "own"}, {1, "one"}, {3, "three"}} {
		cost, err := clusterReturns(ctx, b, k, c.masters, filepath.Join(directories, c.name))
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.add("cluster-cpu-"+c.name, k, 0, cost.cpu)
		b.add("cluster-bytes-"+c.name, k, 0, cost.bytes)
		switch c.masters {
		case 1:
			one = cost
		case 3:
			b.add("cluster-cpu-ratio", k, 0, cost.cpu/one.cpu)
			b.add("cluster-bytes-ratio", k, 0, cost.bytes/one.bytes)
		}
	}
	return nil
}

// clusterCost is the cost of one return: ms of CPU time, and KB.
type clusterCost struct{ cpu, bytes float64 }

// clusterMaster prepares a master of a cluster on the directory shared; all masters have the same
// ports: to publish, for requests, for profiles, and for each other.
func (b *bench) clusterMaster(k kind, hosts []string, i int, shared string, ports []int) (*master, error) {
	dir, err := os.MkdirTemp(b.tmp, string(k)+"-")
	if err != nil {
		return nil, err
	}
	host := hosts[i]
	m := &master{daemon: daemon{programs: b.programs, kind: k, dir: dir}, transport: transportNamed("zeromq"),
		publish: fmt.Sprintf("%s:%d", host, ports[0]), request: fmt.Sprintf("%s:%d", host, ports[1])}
	peers := slices.Delete(slices.Clone(hosts), i, i+1)
	text := fmt.Sprintf("root_dir: %s\nid: %s\ninterface: %s\npublish_port: %d\nret_port: %d\nuser: root\ncluster_id: bench\ncluster_pki_dir: "+
		"%s/pki\ncluster_pool_port: %d\ncluster_peers: [%s]\n",
		dir, host, host, ports[0], ports[1], shared, ports[3], strings.Join(peers, ", "))
	if b.profile != "" {
		m.profiling = fmt.Sprintf("%s:%d", host, ports[2])
		m.profiles = filepath.Join(b.profile, fmt.Sprintf("%s-%d-%d", b.running, len(hosts), i))
		text += "profiling_address: " + m.profiling + "\n"
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600),
		os.MkdirAll(filepath.Dir(m.cache()), 0o755), os.Symlink(filepath.Join(shared, "cache"), m.cache()))
	if err != nil {
		return nil, err
	}
	return m, b.keys[i].Write(m.pki(), "master")
}

// clusterReturns measures a number of masters on a directory that it creates; 0 means a single
// master without one.
func clusterReturns(ctx context.Context, b *bench, k kind, masters int, shared string) (c clusterCost, err error) {
	n := b.size(500)
	var all []*master
	defer func() {
		for _, m := range all {
			m.remove()
		}
	}()
	if masters == 0 {
		m, err := b.newMaster(k, "zeromq", n, "")
		if err != nil {
			return c, err
		}
		all = append(all, m)
	} else {
		err = errors.Join(os.MkdirAll(filepath.Join(shared, "cache"), 0o755), simulate.Accept(filepath.Join(shared, "pki"), b.keys, n),
			b.own.Write(filepath.Join(shared, "pki"), "cluster"))
		if err != nil {
			return c, err
		}
		ports, err := freeport.TCP(4)
		if err != nil {
			return c, err
		}
		var hosts []string
		for i := range masters {
			hosts = append(hosts, fmt.Sprintf("127.0.9.%d", i+1))
		}
		for i := range hosts {
			m, err := b.clusterMaster(k, hosts, i, shared, ports)
			if err != nil {
				return c, err
			}
			all = append(all, m)
		}
	}
	for _, m := range all {
		if masters > 0 {
			m.pub = b.own.PEM()
		}
		if err := m.run(ctx, b); err != nil {
			return c, err
		}
	}
	var minions []*simulate.Minion
	for i, m := range all {
		f := m.fleet(b, n, 0)
		defer f.Close()
		// Each has its share of the minions.
		part := f.Minions[i*n/len(all) : (i+1)*n/len(all)]
		if err := simulate.Each(part, 64, func(mi *simulate.Minion) error { return mi.SignInAnew(ctx) }); err != nil {
			return c, err
		}
		minions = append(minions, part...)
	}
	var ops []*simulate.Operator
	for _, m := range all {
		op, err := m.operator()
		if err != nil {
			return c, err
		}
		defer op.Close()
		ops = append(ops, op)
	}
	turn := 0
	send := func(count int) error {
		for done := 0; done < count; done += len(minions) {
			jid, err := ops[turn%len(ops)].Publish(ctx, "test.ping")
			if err != nil {
				return err
			}
			turn++
			if err := simulate.Each(minions, parallel, func(mi *simulate.Minion) error { return mi.Return(ctx, jid) }); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(n); err != nil { // the first request of a minion includes a check of its key
		return c, err
	}
	jobs := max(b.requests(k, 15000)/n, 3)
	total := func() (cpu time.Duration, bytes int64, err error) {
		for _, m := range all {
			t, err := m.settled()
			if err != nil {
				return 0, 0, err
			}
			n, err := system.Bytes(m.pid())
			if err != nil {
				return 0, 0, err
			}
			cpu, bytes = cpu+t, bytes+n
		}
		return cpu, bytes, nil
	}
	cpu, bytes, err := total()
	if err != nil {
		return c, err
	}
	stop := all[0].profile()
	if err := send(jobs * n); err != nil {
		return c, err
	}
	stop()
	cpu2, bytes2, err := total()
	if err != nil {
		return c, err
	}
	returns := jobs * len(minions)
	return clusterCost{per(cpu2-cpu, returns), float64(bytes2-bytes) / 1e3 / float64(returns)}, nil
}
