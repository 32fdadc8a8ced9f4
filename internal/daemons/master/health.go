package master

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// askHealth is the query among masters for cluster.doctor.
const askHealth = "health"

// health reports the state of this master and of the cluster.
type health struct {
	id       string // id of this master
	pkiDir   string
	cacheDir string
	keyDir   string // directory of minion keys
	options  cluster.Options
	settings *settings
	cluster  *cluster.Cluster
	presence *presence
	reports  *connectionReports
	// replicated is nil with a shared directory.
	replicated *replicated
}

// collect returns the reports of all masters of the cluster by id.
func (h *health) collect(ctx context.Context) map[string]*value.Dict {
	all := h.cluster.Queries.Ask(ctx, askHealth)
	all[h.id] = h.own(nil)
	return all
}

// own returns this master's report on itself and the cluster:
//
//	own, cluster  fingerprints of its public key and of the cluster's
//	peers         fingerprints of the other members' keys, by id
//	sees          the other members, by id: up, problem, behind (changes, by stream)
//	voters        the voters as this master knows them
//	configured    cluster_voters
//	disks         the directories: path, free and size in bytes
//	options       checksums of the deciding options
//	foreign       why masters that cluster_peers names are no members, by the entry there
//	unwritten     why files and records of a kind differ, by kind
//	few           masters of the minions that list fewer than there are, by minion
func (h *health) own(*value.Dict) *value.Dict {
	d := value.DictOf("own", fingerOf(filepath.Join(h.pkiDir, "master.pub")), "cluster", fingerOf(filepath.Join(h.options.PKIDir, cluster.PublicFile)))
	peers := value.NewDict(4)
	files, _ := os.ReadDir(h.cluster.Paths.PeersDir())
	for _, f := range files {
		if isPeerFile(f.Name()) {
			peers.Set(strings.TrimSuffix(f.Name(), ".pub"), fingerOf(filepath.Join(h.cluster.Paths.PeersDir(), f.Name())))
		}
	}
	d.Set("peers", peers)
	sees := value.NewDict(4)
	members := 1
	for _, p := range h.cluster.Members() {
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
	d.Set("voters", value.Strings(slices.Sorted(slices.Values(h.cluster.Voting.List().Names))))
	d.Set("configured", value.Strings(slices.Sorted(slices.Values(h.options.Voters))))
	disks := &value.List{}
	for _, path := range []string{h.cacheDir, h.keyDir} {
		if s, err := disk.SpaceAt(&host.Machine{}, path); err == nil {
			disks.Append(value.DictOf("path", path, "free", s.Available, "size", s.Total))
		}
	}
	d.Set("disks", disks)
	d.Set("few", h.fewMasters(members))
	d.Set("options", h.sums())
	foreign := value.NewDict(0)
	for entry, why := range h.cluster.Foreign() {
		foreign.Set(entry, why)
	}
	d.Set("foreign", foreign)
	if h.replicated != nil {
		d.Set("unwritten", h.replicated.problems())
	}
	return d
}

// sums returns the checksums of the current deciding options: a reload may have
// changed some of them.
func (h *health) sums() *value.Dict {
	opts := h.settings.current().opts
	out := value.NewDict(len(deciding))
	for _, name := range deciding {
		sum := sha256.Sum256([]byte(value.Repr(opts.At(name))))
		out.Set(name, hex.EncodeToString(sum[:8]))
	}
	return out
}

// deciding are the options that determine what minions get from a master. Masters
// compare only checksums, because the values may contain passwords.
var deciding = []string{"file_roots", "pillar_roots", "ext_pillar", "fileserver_backend", "reactor", "nodegroups", "external_auth", "publisher_acl", "peer"}

func fingerOf(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return "cannot be read"
	}
	return crypt.Fingerprint(b, "sha256")
}

// maxFew bounds the minions in a report.
const maxFew = 100

// fewMasters returns the connected minions that list some members as their
// masters, but not all, with their lists. A minion that lists no member uses a
// load balancer.
func (h *health) fewMasters(members int) *value.Dict {
	ours := map[string]bool{h.id: true}
	for id, st := range h.cluster.Stations() {
		ours[id], ours[st.Host] = true, true
	}
	for _, p := range h.cluster.Members() {
		ours[p.ID] = true
	}
	out := value.NewDict(0)
	here := h.presence.current()
	for _, id := range slices.Sorted(maps.Keys(here)) {
		st, ok := h.reports.of(id)
		if !ok || len(st.Masters) >= members || out.Len() >= maxFew || salt.CheckID(id) != nil {
			continue
		}
		var names []string
		known := false
		for _, x := range st.Masters {
			name := x.Master
			if host, _, err := net.SplitHostPort(name); err == nil {
				name = host
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
