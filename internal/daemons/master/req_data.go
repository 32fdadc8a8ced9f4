package master

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
)

// minionData takes and gives what the master keeps about minions: grains,
// pillar and mine.
type minionData struct {
	ctx      func() context.Context
	settings *settings
	targets  *targets
	cache    *cache.Cache
	refuses  func() error // why no pillar is made, or nil
	bus      *event.Bus
	keys     keyBook
	// forget drops what the channel remembers of a minion whose key is deleted.
	forget func(id string)
	log    *slog.Logger
}

// maxCompile bounds the making of one pillar: a template must not hold a
// master for ever.
const maxCompile = 2 * time.Minute

// pillar makes the minion's pillar, answers with it and remembers it with the
// grains, by which the minion is found as a target. Whose pillar it is says
// the channel, not the request.
func (d *minionData) pillar(c *channel.Call) {
	ctx, cancel := context.WithTimeout(d.ctx(), maxCompile)
	defer cancel()
	q := pillarRequest(c)
	err := d.refuses()
	var p *value.Dict
	if err == nil {
		p, err = d.settings.current().pillar.Compile(ctx, q)
	}
	if err != nil {
		d.log.Error("cannot make a pillar", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	// What the minion laid over it for once is not its pillar to others, nor is
	// what a program on it got that gathered no grains (salt-call --skip-grains):
	// Salt forgets all grains then, and finds the minion by none.
	if q.Override.Len() == 0 && q.External == nil && !without(q.Grains) {
		if err := d.cache.StoreMinion(c.ID, cache.Minion{Grains: q.Grains, Pillar: p}); err != nil {
			d.log.Error("cannot keep a minion's grains and pillar", "minion", c.ID, "err", err)
		}
	}
	if d.settings.options().MinionDataEvents {
		d.bus.Fire("minion/refresh/"+c.ID, value.DictOf("Minion data cache refresh", c.ID))
	}
	// The old form is encrypted with the session key alone, the other one for the
	// minion's own key.
	if c.Load.Str("ver") != "2" && d.settings.options().PillarVersion == 1 {
		c.Reply(p)
		return
	}
	if err := c.ReplyPrivate(p); err != nil {
		d.log.Error("cannot answer with the pillar", "minion", c.ID, "err", err)
		c.Reply("")
	}
}

// without reports whether grains are none but the id, which is the master's word.
func without(grains *value.Dict) bool { return grains.Len() == 1 && grains.Has("id") }

func pillarRequest(c *channel.Call) pillar.Request {
	grains := c.Load.Dict("grains")
	if grains == nil {
		grains = value.NewDict(1)
	}
	grains.Set("id", c.ID)
	text := func(names ...string) string {
		for _, n := range names {
			if v := c.Load.At(n); value.Truth(v) {
				return value.Str(v)
			}
		}
		return ""
	}
	return pillar.Request{
		ID: c.ID, Grains: grains, Saltenv: text("saltenv", "env"), Pillarenv: text("pillarenv"), Override: c.Load.Dict("pillar_override"),
		Extra: c.Load.Dict("extra_minion_data"), External: c.Load.At("ext"), CleanCache: c.Load.Bool("clean_cache"),
	}
}

const (
	mineData = "__data__"
	mineACL  = "__saltmine_acl__"
)

// mine stores what a minion publishes about itself.
func (d *minionData) mine(c *channel.Call) {
	data := c.Load.Dict("data")
	if data == nil {
		c.Reply(false)
		return
	}
	bank := "minions/" + c.ID
	if !c.Load.Bool("clear") {
		if old := d.mineOf(c.ID); old != nil {
			merged := old.Clone()
			merged.Update(data)
			data = merged
		}
	}
	if err := d.cache.Store(bank, "mine", data); err != nil {
		d.log.Error("cannot keep a minion's mine", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	c.Reply(true)
}

// mineGet gives the mine data of other minions, as far as their owners allow.
func (d *minionData) mineGet(c *channel.Call) { c.Reply(d.mineFor(c.ID, c.Load)) }

// mineFor returns the mine data that a request of asker means.
func (d *minionData) mineFor(asker string, load *value.Dict) *value.Dict {
	typ := load.Str("tgt_type")
	if typ == "" {
		typ = load.Str("expr_form")
	}
	switch typ {
	case "":
		typ = "glob"
	case "pillar", "pillar_pcre":
		typ = "pillar_exact" // patterns could be used to guess another minion's pillar
	case "compound":
		typ = "compound_pillar_exact"
	}
	funs, single := mineFunctions(load.At("fun"))
	ids, err := d.targets.matchingWithin(target.NewBudget(minionTargetTime), typ, load.At("tgt"), load.Str("delimiter"))
	if err != nil || len(funs) == 0 {
		return value.NewDict(0)
	}
	out := value.NewDict(len(funs))
	for _, f := range funs {
		out.Set(f, value.NewDict(len(ids)))
	}
	for _, id := range ids {
		mine := d.mineOf(id)
		for _, f := range funs {
			if entry, ok := mine.Get(f); ok {
				if v, ok := d.unwrap(entry, asker); ok {
					out.Dict(f).Set(id, v)
				}
			}
		}
	}
	if single {
		return out.Dict(funs[0])
	}
	for _, f := range funs {
		if out.Dict(f).Len() == 0 {
			out.Delete(f)
		}
	}
	return out
}

func mineFunctions(v any) (funs []string, single bool) {
	switch x := v.(type) {
	case string:
		for _, f := range strings.Split(x, ",") {
			if f = strings.TrimSpace(f); f != "" {
				funs = append(funs, f)
			}
		}
		return funs, len(funs) == 1
	case *value.List:
		for _, it := range x.Items {
			if s, ok := it.(string); ok {
				funs = append(funs, s)
			}
		}
	}
	return funs, false
}

// unwrap returns the value of a mine entry if asker may see it.
func (d *minionData) unwrap(entry any, asker string) (any, bool) {
	e, ok := entry.(*value.Dict)
	if !ok || !e.Has(mineACL) {
		return entry, true
	}
	tgt := e.At("allow_tgt")
	if tgt == nil || tgt == "" {
		return e.At(mineData), true
	}
	typ := e.Str("allow_tgt_type")
	if typ == "" {
		typ = "glob"
	}
	t, err := target.Parse(typ, tgt, "")
	if err != nil || !t.Match(d.targets.subject(asker)) {
		return nil, false
	}
	return e.At(mineData), true
}

// mineOf returns what is kept of a minion's mine, nil if nothing.
func (d *minionData) mineOf(id string) *value.Dict {
	v, ok, err := d.cache.Fetch("minions/"+id, "mine")
	if err != nil {
		d.log.Warn("cannot read a minion's mine", "minion", id, "err", err)
	}
	mine, isDict := v.(*value.Dict)
	if !ok || !isDict {
		return nil
	}
	return mine
}

func (d *minionData) mineDelete(c *channel.Call) {
	mine := d.mineOf(c.ID).Clone()
	if !mine.Delete(c.Load.Str("fun")) {
		c.Reply(true)
		return
	}
	c.Reply(d.cache.Store("minions/"+c.ID, "mine", mine) == nil)
}

func (d *minionData) mineFlush(c *channel.Call) {
	_, err := d.cache.Flush("minions/"+c.ID, "mine")
	c.Reply(err == nil)
}

// revoke deletes the key of the minion that asks.
func (d *minionData) revoke(c *channel.Call) {
	if !d.settings.options().AllowKeyRevoke {
		c.Reply(c.Load)
		return
	}
	if err := d.keys.as(byMinion, "revoke_auth").Delete(keystore.Accepted, c.ID); err != nil {
		d.log.Error("cannot delete minion key (requested by the minion)", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	d.log.Info("deleted minion key (requested by the minion)", "minion", c.ID)
	d.bus.Fire(salt.Tag("key"), value.DictOf("result", true, "act", "delete", "id", c.ID))
	c.Reply(true)
	d.forget(c.ID)
}
