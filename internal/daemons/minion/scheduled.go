package minion

import (
	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"context"
	"strings"
	"time"
)

// runScheduled runs one scheduled job and returns it to the masters, each of
// which keeps its own job cache.
func (m *Minion) runScheduled(name, fun string, d *value.Dict) {
	if value.Truth(d.At("dry_run")) {
		return
	}
	args := append([]any(nil), d.List("args")...)
	if kw := d.Dict("kwargs"); kw.Len() > 0 {
		marked := kw.Clone()
		marked.Set("__kwarg__", true)
		args = append(args, marked)
	}
	jid := salt.NewJID(time.Now())
	load := value.DictOf("fun", fun, "arg", &value.List{Items: args}, "jid", jid, "tgt", m.cfg.ID, "schedule", name)
	if names := append(value.Texts(d.At("returner")), value.Texts(m.cfg.Returners.Scheduled)...); len(names) > 0 {
		load.Set("ret", strings.Join(names, ","))
		for key, of := range map[string]string{"ret_config": "return_config", "ret_kwargs": "return_kwargs"} {
			if v, ok := d.Get(of); ok {
				load.Set(key, v)
			}
		}
	}
	j, _ := m.jobs.admit(load, nil, time.Now())
	if j == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(m.run)
	defer cancel(nil)
	c := m.newCall(m.links.WithPillar(), jid)
	o := m.funcs.Run(ctx, c, fn.Job{Fun: fun, Arg: args, Pub: load, Blackout: true})
	ret := m.returnLoad(j, o)
	ret.Set("schedule", name)
	if meta, ok := d.At("metadata").(*value.Dict); ok {
		now := time.Now()
		_, offset := now.Zone()
		meta = meta.Clone()
		meta.Set("_TOS", -offset)
		meta.Set("_TS", now.Format(time.ANSIC))
		meta.Set("_TT", now.UTC().Format("2006 January 02 Mon 15 01"))
		ret.Set("metadata", meta)
	}
	m.returners.send(j, ret)
	m.jobs.finish(j, ret)
	if v, ok := d.Get("return_job"); ok && !value.Truth(v) {
		return
	}
	m.outbox.GiveBack(ret, queues(m.links.Receivers()), true)
}
