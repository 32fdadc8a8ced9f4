package master

import (
	"strings"

	"brine/internal/channel"
	"brine/internal/salt"
	"brine/internal/target"
	"brine/internal/value"
)

// events takes events that minions send.
type events struct{ m *Master }

// reserved are the tags that only the master itself may use: a minion that
// could fire them could pose as the master or as another minion. Salt guards
// a part of these, and only in events sent as a list.
var reserved = globs(
	"salt/job/*/publish", "salt/job/*/new", "salt/job/*/return", "salt/job/*/ret/*", "salt/job/*/state/*", "salt/job/*/expired",
	"salt/key", "salt/auth", "salt/cloud/*", "salt/run/*", "salt/cluster/*",
	"salt/wheel/*", "salt/presence/*", "key", "rotate_cluster_aes_key", "cluster/*",
)

func globs(patterns ...string) []target.Glob {
	out := make([]target.Glob, len(patterns))
	for i, p := range patterns {
		out[i] = target.ParseGlob(p)
	}
	return out
}

// allowed reports whether minion id may fire an event with this tag.
func allowed(id, tag string) bool {
	for _, g := range reserved {
		if g.Match(tag) {
			return false
		}
	}
	// salt/minion/ID/... speaks for the minion of that id.
	if rest, ok := strings.CutPrefix(tag, "salt/minion/"); ok && !strings.HasPrefix(rest, id+"/") {
		return false
	}
	return tag != "" && !strings.Contains(tag, "\n")
}

// take fires one event, or a list of them.
func (e *events) take(c *channel.Call) {
	defer c.Reply(nil)
	load := c.Load
	load.Set("id", c.ID)
	list := load.List("events")
	if list == nil {
		if !load.Has("tag") || !load.Has("data") {
			return
		}
		e.fire(c.ID, load.Str("tag"), load)
		return
	}
	for _, it := range list {
		ev, ok := it.(*value.Dict)
		if !ok {
			continue
		}
		data, ok := ev.At("data").(*value.Dict)
		if !ok {
			data = value.DictOf("data", ev.At("data"))
		}
		if _, ok := data.Get("id"); !ok {
			data.Set("id", c.ID)
		}
		e.fire(c.ID, ev.Str("tag"), data)
		if pre, ok := load.At("pretag").(string); ok && pre != "" {
			e.fire(c.ID, pre+"/"+ev.Str("tag"), data)
		}
	}
}

func (e *events) fire(id, tag string, data *value.Dict) {
	if !allowed(id, tag) {
		e.m.log.Warn("an event of a minion was refused: its tag is the master's or another minion's", "minion", id, "tag", tag)
		return
	}
	e.m.bus.Fire(tag, data)
	if tag == salt.Tag("minion", id, "start") {
		e.m.log.Debug("minion started", "minion", id)
		if e.m.cluster == nil { // else it may have asked another master
			e.m.queue.started(id)
		}
		e.m.whereabouts.start(id)
	}
}
