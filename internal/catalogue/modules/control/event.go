package control

import (
	"context"
	"os"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type event struct {
	masters Masters
	bus     Bus
}

// Event returns the module event.
func Event(masters Masters, bus Bus) fn.Module {
	e := event{masters, bus}
	return fn.Module{Name: "event", Doc: `Fire events.`, Funcs: []fn.Func{
		fn.Of("send", e.send, `Fire an event on the masters.
			Keywords are added to the data. A minion without master fires it on its own bus.`,
			fn.Example("salt-call event.send myco/build/done '{result: true}' with_grains=true")),
		fn.Of("fire", e.fire, `Fire an event on the minion's own bus.`, fn.Example("salt '*' event.fire '{data: my data}' tag")),
		fn.Of("fire_master", e.fireMaster, `Fire an event on the masters.`, fn.Example("salt '*' event.fire_master '{data: my data}' tag")),
	}}
}

type sendArgs struct {
	Tag         string      `salt:"tag" doc:"tag of the event"`
	Data        any         `salt:"data" doc:"map with the data of the event" default:"null"`
	Preload     *value.Dict `salt:"preload" doc:"map that is laid over the message to the master" default:"null"`
	WithEnv     any         `salt:"with_env" doc:"add the environment, or the variables of a list" default:"false"`
	WithGrains  any         `salt:"with_grains" doc:"add the grains, or those of a list" default:"false"`
	WithPillar  any         `salt:"with_pillar" doc:"add the pillar, or the keys of a list" default:"false"`
	WithEnvOpts bool        `salt:"with_env_opts" doc:"add saltenv and pillarenv" default:"false"`
	Kwargs      fn.Kwargs   `salt:"kwargs"`
}

func (e event) send(ctx context.Context, c *fn.Call, a sendArgs) (bool, error) {
	data := value.NewDict(8)
	if value.Truth(a.WithEnv) {
		data.Set("environ", subset(environ(), a.WithEnv))
	}
	if value.Truth(a.WithGrains) {
		data.Set("grains", subset(c.Grains.All(), a.WithGrains))
	}
	if value.Truth(a.WithPillar) {
		data.Set("pillar", subset(c.Pillar.All(), a.WithPillar))
	}
	if a.WithEnvOpts {
		saltenv := c.Config.Get("saltenv")
		if saltenv == nil {
			saltenv = "base"
		}
		data.Set("saltenv", saltenv)
		data.Set("pillarenv", c.Config.Get("pillarenv"))
	}
	data.Update(a.Kwargs.Dict)
	if more, ok := a.Data.(*value.Dict); ok {
		data.Update(more)
	}
	if local(c) || c.Config.Get("master_type") == "disable" && !useMaster(c) {
		return e.toBus(ctx, c, a.Tag, data)
	}
	return e.toMasters(ctx, c, a.Tag, data, a.Preload)
}

// local reports whether the minion works without a master.
func local(c *fn.Call) bool {
	return (value.Truth(c.Config.Get("local")) || c.Config.Get("file_client") == "local") && !useMaster(c)
}

func useMaster(c *fn.Call) bool { return value.Truth(c.Config.Get("use_master_when_local")) }

func environ() *value.Dict {
	d := value.NewDict(32)
	for _, e := range os.Environ() {
		if name, v, ok := strings.Cut(e, "="); ok {
			d.Set(name, v)
		}
	}
	return d
}

// subset returns the keys that which lists, or all if which is not a list.
func subset(d *value.Dict, which any) *value.Dict {
	l, ok := which.(*value.List)
	if !ok {
		return d.Clone()
	}
	out := value.NewDict(l.Len())
	for _, k := range l.Items {
		if !value.Hashable(k) {
			continue
		}
		if v, ok := d.Get(k); ok {
			out.Set(k, v)
		}
	}
	return out
}

type fireArgs struct {
	Data any    `salt:"data" doc:"map with the data of the event"`
	Tag  string `salt:"tag" doc:"tag of the event"`
}

func (e event) fire(ctx context.Context, c *fn.Call, a fireArgs) (bool, error) {
	data, ok := a.Data.(*value.Dict)
	if !ok {
		return false, nil
	}
	return e.toBus(ctx, c, a.Tag, data)
}

type fireMasterArgs struct {
	Data    any         `salt:"data" doc:"data of the event"`
	Tag     string      `salt:"tag" doc:"tag of the event"`
	Preload *value.Dict `salt:"preload" doc:"map that is laid over the message to the master" default:"null"`
}

func (e event) fireMaster(ctx context.Context, c *fn.Call, a fireMasterArgs) (bool, error) {
	if local(c) {
		c.Log.Warn("event not sent: the minion runs without a master", "tag", a.Tag)
		return false, nil
	}
	return e.toMasters(ctx, c, a.Tag, a.Data, a.Preload)
}

// A failure to fire returns false, as in Salt, and is logged.
func (e event) toBus(ctx context.Context, c *fn.Call, tag string, data *value.Dict) (bool, error) {
	if err := e.bus.Fire(ctx, tag, data); err != nil {
		c.Log.Error("cannot fire event", "tag", tag, "err", err)
		return false, nil
	}
	return true, nil
}

func (e event) toMasters(ctx context.Context, c *fn.Call, tag string, data any, preload *value.Dict) (bool, error) {
	load := value.DictOf("id", c.ID, "tag", tag, "data", data, "cmd", "_minion_event")
	load.Update(preload)
	if err := e.masters.Send(ctx, load); err != nil {
		c.Log.Error("cannot send event to master", "tag", tag, "err", err)
		return false, nil
	}
	return true, nil
}
