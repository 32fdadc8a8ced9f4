package master

import (
	"context"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/host"
	"brine/internal/host/disk"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// askHealth is what masters ask each other for cluster.doctor.
const askHealth = "health"

// clusterHealth asks all masters of the cluster how they find it, by their ids.
func (m *Master) clusterHealth(ctx context.Context) map[string]*value.Dict {
	all := m.cluster.Ask(ctx, askHealth)
	all[m.cfg.ID] = m.health(nil)
	return all
}

// health is what this master sees of the cluster, and how it is itself:
//
//	own, cluster  fingerprints of its public key and of the cluster's
//	peers         those of the other members, by id
//	sees          of each: up, problem, behind (changes, by stream)
//	voters        cluster_voters
//	disks         of each folder: path, free, size in bytes
//	few           minions, by id, that name fewer masters than there are: which
func (m *Master) health(*value.Dict) *value.Dict {
	d := value.DictOf("own", fingerOf(filepath.Join(m.cfg.PKIDir, "master.pub")), "cluster", fingerOf(filepath.Join(m.cfg.Cluster.PKIDir, cluster.PublicFile)))
	peers := value.NewDict(4)
	files, _ := os.ReadDir(m.cluster.PeersDir())
	for _, f := range files {
		if isPeerFile(f.Name()) {
			peers.Set(strings.TrimSuffix(f.Name(), ".pub"), fingerOf(filepath.Join(m.cluster.PeersDir(), f.Name())))
		}
	}
	d.Set("peers", peers)
	sees := value.NewDict(4)
	members := 1
	for _, p := range m.cluster.Members() {
		if p.Gone {
			continue
		}
		members++
		behind := value.NewDict(len(p.Behind))
		for _, stream := range slices.Sorted(maps.Keys(p.Behind)) {
			behind.Set(stream, p.Behind[stream])
		}
		sees.Set(p.ID, value.DictOf("up", p.Up, "problem", p.Problem, "behind", behind))
	}
	d.Set("sees", sees)
	voters := slices.Clone(m.cfg.Cluster.Voters)
	slices.Sort(voters)
	d.Set("voters", value.Strings(voters))
	disks := &value.List{}
	for _, path := range []string{m.cfg.CacheDir, m.keyDir()} {
		if s, err := disk.SpaceAt(&host.Machine{}, path); err == nil {
			disks.Append(value.DictOf("path", path, "free", s.Available, "size", s.Total))
		}
	}
	d.Set("disks", disks)
	d.Set("few", m.fewMasters(members))
	return d
}

func fingerOf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "cannot be read"
	}
	return crypt.Fingerprint(b, "sha256")
}

// maxFew bounds the minions that are named.
const maxFew = 100

// fewMasters returns the minions connected here that name some of the members as
// their masters, and fewer than there are. Who names none goes by a balancer.
func (m *Master) fewMasters(members int) *value.Dict {
	ours := map[string]bool{m.cfg.ID: true}
	for id, st := range m.cluster.Stations() {
		ours[id], ours[st.Host] = true, true
	}
	for _, p := range m.cluster.Members() {
		ours[p.ID] = true
	}
	out := value.NewDict(0)
	here := m.presence.current()
	for _, id := range slices.Sorted(maps.Keys(here)) {
		st, ok := m.standings.of(id)
		if !ok || len(st.Masters) >= members || out.Len() >= maxFew || salt.CheckID(id) != nil {
			continue
		}
		var names []string
		known := false
		for _, x := range st.Masters {
			name := x.Master
			if h, _, err := net.SplitHostPort(name); err == nil {
				name = h
			}
			names = append(names, name)
			known = known || ours[name]
		}
		if known {
			out.Set(id, value.Strings(names))
		}
	}
	return out
}
