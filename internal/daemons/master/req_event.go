package master

import (
	"brine/internal/base/ratelimit"
	"fmt"
	"log/slog"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// events handles events that minions send.
type events struct {
	settings  *settings
	bus       *event.Bus
	cluster   *cluster.Cluster // nil without a cluster
	queue     *queue
	addresses *addresses
	beacons   *beaconEvents
	syndics   *syndics
	jobs      jobStore
	log       *slog.Logger
	refused   *ratelimit.Log
}

// reserved are the tags that only the master, salt-api and syndics may use: a
// minion that fired them could impersonate these or another minion, or trigger
// reactions that trust them. Salt reserves only some of these, and only in
// events sent as a list.
var reserved = globs(
	"salt/key", "salt/auth", "salt/cloud/*", "salt/run/*", "salt/cluster/*", "salt/token*", "salt/fileserver/*", "salt/netapi/*", "salt/batch/*",
	"salt/wheel/*", "salt/presence/*", "salt/stats/*", "minion/refresh/*", "key", "rotate_cluster_aes_key", "cluster/*",
)

func globs(patterns ...string) []target.Glob {
	out := make([]target.Glob, len(patterns))
	for i, p := range patterns {
		out[i] = target.ParseGlob(p)
	}
	return out
}

// tagRules decides which tags a minion may use.
type tagRules struct {
	// syndic reports whether the sender may be a syndic, which forwards the events of the minions
	// below it.
	syndic bool
	// below reports whether a minion is below the sender; nil means any.
	below func(minion string) bool
}

// from reports whether the sender may fire an event with the id of a minion in its tag.
func (r tagRules) from(id, minion string) bool {
	return minion == id || r.syndic && (r.below == nil || r.below(minion))
}

// allowed reports whether a minion may fire an event with this tag.
func (r tagRules) allowed(id, tag string) bool {
	if tag == "" || strings.Contains(tag, "\n") {
		return false
	}
	for _, g := range reserved {
		if g.Match(tag) {
			return false
		}
	}
	// These tags contain the id of the sending minion.
	if rest, ok := strings.CutPrefix(tag, "salt/minion/"); ok && !strings.HasPrefix(rest, id+"/") {
		return false
	}
	if rest, ok := strings.CutPrefix(tag, "salt/beacon/"); ok {
		minion, _, more := strings.Cut(rest, "/")
		if !more || !r.from(id, minion) {
			return false
		}
	}
	// Job events belong to the master, except the progress of states.
	if rest, ok := strings.CutPrefix(tag, "salt/job/"); ok {
		_, rest, _ = strings.Cut(rest, "/")
		from, isProgress := strings.CutPrefix(rest, "prog/")
		minion, _, more := strings.Cut(from, "/")
		return isProgress && more && r.from(id, minion)
	}
	if r.syndic {
		return !strings.HasPrefix(tag, "syndic/") || strings.HasPrefix(tag, "syndic/"+id+"/")
	}
	// A bare job id is the old form of a return's tag.
	return !strings.HasPrefix(tag, "syndic/") && !salt.ValidJID(tag)
}

// take fires one event or a list of events.
func (e *events) take(c *channel.Call) {
	defer c.Reply(nil)
	load := c.Load
	load.Set("id", c.ID)
	var in wire.MinionEvent
	wire.View(load, &in)
	list := value.Items(in.Events)
	if list == nil {
		if load.Has("tag") && load.Has("data") {
			e.fire(c.ID, in.Tag, load)
		}
		return
	}
	pre, _ := in.Pretag.(string)
	for _, it := range list {
		d, ok := it.(*value.Dict)
		if !ok {
			continue
		}
		var ev wire.Fired
		wire.View(d, &ev)
		data, ok := ev.Data.(*value.Dict)
		if !ok {
			data = value.DictOf("data", ev.Data)
		}
		e.below(c.ID, data)
		e.sign(data, c.ID)
		if pre == "syndic/"+c.ID && e.syndics != nil && !e.rules(c.ID).allowed(c.ID, ev.Tag) {
			e.log.Debug("an event below a syndic is fired under the syndic's tag only", "syndic", c.ID, "tag", fmt.Sprintf("%.200s", ev.Tag))
		} else {
			e.fire(c.ID, ev.Tag, data)
		}
		if pre != "" {
			e.fire(c.ID, pre+"/"+ev.Tag, data)
		}
	}
}

// sign sets the id of an event to that of the minion that sent it. Another id is preserved only
// where minions may be syndics; then the authenticated id is added.
func (e *events) sign(data *value.Dict, id string) {
	given, ok := data.Get("id")
	switch {
	case !ok || given == id || !e.settings.options().OrderMasters:
		data.Set("id", id)
	default:
		data.Set("__minion_id", id)
	}
}

// rules returns what a sender may fire.
func (e *events) rules(id string) tagRules {
	b := e.syndics.minions()
	return tagRules{
		syndic: e.settings.options().OrderMasters && b.isSyndic(id) == nil,
		below:  func(minion string) bool { return b.may(id, minion) == nil },
	}
}

func (e *events) fire(id, tag string, data *value.Dict) {
	if !e.rules(id).allowed(id, tag) {
		e.refused.Log(slog.LevelWarn, "refused event of a minion: its tag belongs to the master or another minion", "minion", id, "tag",
			fmt.Sprintf("%.200s", tag))
		return
	}
	e.bus.Fire(tag, data)
	e.beacons.note(tag)
	if tag == salt.Tag("minion", id, "start") {
		e.log.Debug("minion started", "minion", id)
		e.syndics.minion(id)
		if e.cluster == nil { // in a cluster it may have asked another master
			e.queue.started(id)
		}
		e.addresses.start(id)
	}
	if tag == "syndic/"+id+"/start" {
		e.syndics.seen(id)
	}
}
