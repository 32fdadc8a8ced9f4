package master

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// clusterHost is the interface of the master that its cluster calls.
type clusterHost struct {
	cluster    *cluster.Cluster
	bus        *event.Bus
	queue      *queue
	presence   *presence
	reconnects *reconnects
	jobs       *peerJobs
	// rotated reads the key for publications again.
	rotated func()
	log     *slog.Logger
}

var _ cluster.Host = (*clusterHost)(nil)

// Relay implements cluster.Host.
func (h *clusterHost) Relay(from, tag string, data *value.Dict) {
	parts := strings.SplitN(tag, "/", 5)
	if len(parts) == 5 && parts[1] == "job" && parts[3] == "ret" && h.jobs.heard(parts[2], parts[4]) {
		return
	}
	if err := h.bus.Relay(tag, data); err != nil {
		h.log.Warn("dropped event of a peer", "peer", from, "err", err)
		return
	}
	switch {
	case tag == tagPresent && h.cluster.IsBrine(from): // stock masters report their own minions
		h.presence.told(data)
	case len(parts) == 4 && parts[1] == "job" && parts[3] == "publish" && !h.cluster.Isolated(): // isolated clusters have no stock masters
		h.jobs.fromStock(from, parts[2], data)
	case tag == "salt/auth":
		var in wire.AuthEvent
		if wire.View(data, &in); in.Act == "accept" && salt.CheckID(in.ID) == nil {
			h.reconnects.signedIn(in.ID, time.Now())
		}
	case len(parts) == 5 && parts[1] == "job" && parts[3] == "ret":
		h.queue.returned(parts[2], parts[4])
	case len(parts) == 5 && parts[1] == "job" && parts[3] == "state":
		var in wire.JobEvent
		wire.View(data, &in)
		state, _ := in.State.(string)
		h.queue.told(parts[2], parts[4], state)
	}
}

// Note implements cluster.Host.
func (h *clusterHost) Note(n cluster.Note, minion string) {
	switch n {
	case cluster.NoteSpeaks:
		h.queue.spokeElsewhere(minion)
	case cluster.NoteSignedIn:
		h.reconnects.signedIn(minion, time.Now())
	}
}

// Present implements cluster.Host.
func (h *clusterHost) Present() []string { return slices.Collect(maps.Keys(h.presence.current())) }

// Rotated implements cluster.Host.
func (h *clusterHost) Rotated() { h.rotated() }

// Job implements cluster.Host.
func (h *clusterHost) Job(j cluster.Job) { h.jobs.publish(j) }

// Lost implements cluster.Host.
func (h *clusterHost) Lost(peer string) { h.jobs.takeOver(peer) }
