package api

import (
	"strings"

	"brine/internal/py/value"
)

// formatted is the view of jobs and minions that a WebSocket with format_events sends
// instead of events.
type formatted struct {
	jobs  map[string]*value.Dict
	order []string
}

// maxFormatted bounds the jobs of a view; the oldest are dropped.
const maxFormatted = 1000

func newFormatted() *formatted { return &formatted{jobs: map[string]*value.Dict{}} }

// take returns the messages for an event.
func (f *formatted) take(m *message) []string {
	parts := strings.Split(m.tag, "/")
	switch {
	case len(parts) == 4 && parts[1] == "job" && parts[3] == "new":
		return f.job(parts[2], f.begin(parts[2], m.data))
	case len(parts) == 5 && parts[1] == "job" && parts[3] == "ret":
		d := f.jobs[parts[2]]
		if d == nil {
			return nil
		}
		id := parts[4]
		minions := d.Dict("minions")
		minions.Set(id, value.DictOf("return", m.data.At("return"), "retcode", m.data.At("retcode"), "success", m.data.At("success")))
		done := true
		for _, v := range minions.All() {
			done = done && v.(*value.Dict).Len() > 0
		}
		if done {
			d.Set("state", "complete")
		}
		texts := f.job(parts[2], d)
		if g, ok := m.data.At("return").(*value.Dict); ok && m.data.Str("fun") == "grains.items" {
			texts = append(texts, text(value.DictOf("minions", value.ListOf(value.DictOf("id", id, "grains", g))))...)
		}
		return texts
	}
	return nil
}

func (f *formatted) begin(jid string, data *value.Dict) *value.Dict {
	minions := value.NewDict(0)
	for _, id := range data.List("minions") {
		minions.Set(id, value.NewDict(0))
	}
	d := value.DictOf("jid", jid, "start_time", data.At("_stamp"), "minions", minions, "fun", data.At("fun"), "tgt", data.At("tgt"),
		"tgt_type", data.At("tgt_type"), "state", "running")
	if len(f.order) >= maxFormatted {
		delete(f.jobs, f.order[0])
		f.order = f.order[1:]
	}
	f.jobs[jid], f.order = d, append(f.order, jid)
	return d
}

func (f *formatted) job(jid string, d *value.Dict) []string {
	return text(value.DictOf("jobs", value.DictOf(jid, d)))
}

func text(v any) []string {
	b, err := encode(v, typeJSON)
	if err != nil {
		return nil
	}
	return []string{string(b)}
}
