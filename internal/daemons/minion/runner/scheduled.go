package runner

import (
	"context"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// Scheduled runs one scheduled job and returns it to the masters, each of
// which keeps its own job cache.
func (r *Runner) Scheduled(name, fun string, d *value.Dict) {
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
	load := value.DictOf("fun", fun, "arg", &value.List{Items: args}, "jid", jid, "tgt", r.cfg.ID, "schedule", name)
	if names := append(value.Texts(d.At("returner")), value.Texts(r.cfg.ScheduledReturners)...); len(names) > 0 {
		load.Set("ret", strings.Join(names, ","))
		for key, of := range map[string]string{"ret_config": "return_config", "ret_kwargs": "return_kwargs"} {
			if v, ok := d.Get(of); ok {
				load.Set(key, v)
			}
		}
	}
	j, _ := r.cfg.Jobs.Admit(load, nil)
	if j == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(r.cfg.Background.Context())
	defer cancel(nil)
	c := r.cfg.Calls.New(r.cfg.Links.WithPillar(), jid)
	o := r.cfg.Funcs().Run(ctx, c, fn.Job{Fun: fun, Arg: args, Pub: load, Blackout: true})
	ret := r.returnLoad(j, o)
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
	r.cfg.Returners.Send(load, r.cfg.Links.Pillar(), ret)
	r.cfg.Jobs.Finish(j, ret)
	if v, ok := d.Get("return_job"); ok && !value.Truth(v) {
		return
	}
	r.cfg.Outbox.GiveBack(ret, queues(r.cfg.Links.Receivers()), true)
}
