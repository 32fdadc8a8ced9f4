package runner

import (
	"context"
	"errors"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// definition has the keys of a scheduled job that the runner reads.
type definition struct {
	Args         any         `wire:"args,omitempty"`
	Kwargs       any         `wire:"kwargs,omitempty"`
	DryRun       bool        `wire:"dry_run,omitempty"`
	Returner     any         `wire:"returner,omitempty"`
	ReturnConfig any         `wire:"return_config,omitempty"`
	ReturnKwargs any         `wire:"return_kwargs,omitempty"`
	Metadata     any         `wire:"metadata,omitempty"`
	ReturnJob    any         `wire:"return_job,omitempty"`
	Rest         *value.Dict `wire:"*"`
}

// Scheduled runs one scheduled job and sends its return to all masters, because each has
// its own job cache.
func (r *Runner) Scheduled(name, fun string, d *value.Dict) {
	var def definition
	wire.View(d, &def)
	if def.DryRun {
		return
	}
	args := append([]any(nil), value.Items(def.Args)...)
	if kw, _ := def.Kwargs.(*value.Dict); kw.Len() > 0 {
		marked := kw.Clone()
		fn.Mark(marked)
		args = append(args, marked)
	}
	jid := salt.NewJID(time.Now())
	load := value.DictOf("fun", fun, "arg", &value.List{Items: args}, "jid", jid, "tgt", r.cfg.ID, "schedule", name)
	if names := append(value.Texts(def.Returner), value.Texts(r.cfg.ScheduledReturners)...); len(names) > 0 {
		load.Set("ret", strings.Join(names, ","))
		if def.ReturnConfig != nil {
			load.Set("ret_config", def.ReturnConfig)
		}
		if def.ReturnKwargs != nil {
			load.Set("ret_kwargs", def.ReturnKwargs)
		}
	}
	j, _, _ := r.cfg.Jobs.Admit(load, nil)
	if j == nil {
		return
	}
	ctx, cancel := context.WithCancelCause(r.cfg.Background.Context())
	defer cancel(nil)
	c := r.cfg.Calls.New(r.cfg.Links.WithPillar(), jid)
	o := r.cfg.Funcs().Run(ctx, c, fn.Job{Fun: fun, Arg: args, Pub: load, Blackout: true})
	if unknown, ok := errors.AsType[*fn.UnknownError](o.Err); ok {
		r.cfg.Log.Error("scheduled job names a function that does not exist", "job", name, "fun", fun, "err", unknown)
	}
	ret := r.returnLoad(j, o)
	ret.Set("schedule", name)
	if meta, ok := def.Metadata.(*value.Dict); ok {
		now := time.Now()
		_, offset := now.Zone()
		meta = meta.Clone()
		meta.Set("_TOS", -offset)
		meta.Set("_TS", now.Format(time.ANSIC))
		meta.Set("_TT", now.UTC().Format("2006 January 02 Mon 15 01"))
		ret.Set("metadata", meta)
	}
	r.cfg.Returners.Send(&j.Pub, r.cfg.Links.Pillar(), ret)
	r.cfg.Jobs.Finish(j, ret)
	if _, set := d.Get("return_job"); set && !value.Truth(def.ReturnJob) {
		return
	}
	r.cfg.Outbox.GiveBack(ret, queues(r.cfg.Links.Receivers()), true)
}
