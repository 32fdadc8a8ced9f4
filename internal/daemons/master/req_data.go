package master

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/acl"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/sls/pillar"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
)

// minionData stores and returns the data of minions: grains, pillar and mine data.
type minionData struct {
	ctx      func() context.Context
	settings *settings
	targets  *targets
	cache    *cache.Cache
	refuses  func() error // returns why no pillar is compiled, or nil
	bus      *event.Bus
	keys     keyBook
	// forget drops the channel's state of a minion whose key is deleted.
	forget func(id string)
	// answerBytes bounds the mine data of one answer; 0 is maxMineAnswer.
	answerBytes int
	log         *slog.Logger

	rateLimitedLog *ratelimit.Log // limits log messages about mine data that is too large
}

// maxCompile bounds the compilation of a pillar: a template must not occupy a
// master for ever.
const maxCompile = 2 * time.Minute

// pillar compiles the pillar of the minion, answers with it and caches it with the grains, for
// targeting. The channel authenticates the minion; the id in the request is ignored.
func (d *minionData) pillar(c *channel.Call) {
	ctx, cancel := context.WithTimeout(d.ctx(), maxCompile)
	defer cancel()
	var in wire.Pillar
	wire.View(c.Load, &in)
	q := pillarRequest(c.ID, &in)
	err := d.refuses()
	var p *value.Dict
	if err == nil {
		p, err = d.settings.current().pillar.Compile(ctx, q)
	}
	if err != nil {
		d.log.Error("cannot compile pillar", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	// A pillar with overrides is not cached, nor is one for a program that collected no grains
	// (salt-call --skip-grains): Salt then loses all cached grains, and no target by grains
	// matches the minion.
	if q.Override.Len() == 0 && q.External == nil && !without(q.Grains) {
		if err := d.cache.StoreMinion(c.ID, cache.Minion{Grains: q.Grains, Pillar: p}); err != nil {
			d.log.Error("cannot cache a minion's grains and pillar", "minion", c.ID, "err", err)
		}
	}
	if d.settings.options().MinionDataEvents {
		d.bus.Fire("minion/refresh/"+c.ID, value.DictOf("Minion data cache refresh", c.ID))
	}
	// The old form is encrypted with the session key alone, the new one for the
	// minion's own key.
	if in.Ver != "2" && d.settings.options().PillarVersion == 1 {
		c.Reply(p)
		return
	}
	if err := c.ReplyPrivate(p); err != nil {
		d.log.Error("cannot return pillar", "minion", c.ID, "err", err)
		c.Reply("")
	}
}

// without reports whether the grains are empty except for the id, which the
// master adds.
func without(grains *value.Dict) bool { return grains.Len() == 1 && grains.Has("id") }

func pillarRequest(id string, in *wire.Pillar) pillar.Request {
	grains := in.Grains
	if grains == nil {
		grains = value.NewDict(1)
	}
	grains.Set("id", id)
	first := func(values ...any) string {
		for _, v := range values {
			if value.Truth(v) {
				return value.Str(v)
			}
		}
		return ""
	}
	return pillar.Request{
		ID: id, Grains: grains, Saltenv: first(in.Saltenv, in.Env), Pillarenv: first(in.Pillarenv), Override: in.Override,
		Extra: in.Extra, External: in.External, CleanCache: in.CleanCache,
	}
}

// Limits of mine data. Each minion can request that of all at once.
const (
	maxMine          = 16 << 20 // bytes of one minion's data
	maxMineAnswer    = 64 << 20 // bytes of one answer
	maxMineFunctions = 1000     // of one request
)

// mine stores the mine data that a minion publishes.
func (d *minionData) mine(c *channel.Call) {
	var in wire.Mine
	wire.View(c.Load, &in)
	data, _ := in.Data.(*value.Dict)
	if data == nil {
		c.Reply(false)
		return
	}
	bank := "minions/" + c.ID
	if !in.Clear {
		if old := d.mineOf(c.ID); old != nil {
			merged := old.Clone()
			merged.Update(data)
			data = merged
		}
	}
	if value.Weight(data, maxMine) > maxMine {
		d.rateLimitedLog.Log(slog.LevelError, "refused mine data of a minion: too large; remove functions with mine.delete", "minion", c.ID,
			"limit_mb", maxMine>>20)
		c.Reply(false)
		return
	}
	if err := d.cache.Store(bank, "mine", data); err != nil {
		d.log.Error("cannot store a minion's mine data", "minion", c.ID, "err", err)
		c.Reply("")
		return
	}
	c.Reply(true)
}

// mineGet returns the mine data of other minions, as far as their owners allow.
func (d *minionData) mineGet(c *channel.Call) { c.Reply(d.mineFor(c.ID, c.Load)) }

// mineFor returns the mine data that a request of asker selects.
func (d *minionData) mineFor(asker string, load *value.Dict) *value.Dict {
	var in wire.MineGet
	wire.View(load, &in)
	typ := cmp.Or(in.TgtType, in.ExprForm)
	switch typ {
	case "":
		typ = "glob"
	case "pillar", "pillar_pcre":
		typ = "pillar_exact" // with patterns a minion could guess another minion's pillar
	case "compound":
		typ = "compound_pillar_exact"
	}
	funs, single := mineFunctions(in.Fun)
	funs = d.mineGranted(asker, funs)
	ids, err := d.targets.matchingWithin(target.NewBudget(minionTargetTime), typ, in.Tgt, in.Delimiter)
	if err != nil || len(funs) == 0 {
		return value.NewDict(0)
	}
	if len(funs) > maxMineFunctions {
		d.rateLimitedLog.Log(slog.LevelWarn, "refused request for mine data: it names too many functions", "minion", asker, "limit", maxMineFunctions)
		return value.NewDict(0)
	}
	found := make([]*value.Dict, len(funs))
	for i := range found {
		found[i] = value.NewDict(0)
	}
	limit := d.answerBytes
	if limit == 0 {
		limit = maxMineAnswer
	}
	who := d.targets.subject(asker)
	for _, id := range ids {
		mine := d.mineOf(id)
		budget := target.NewBudget(minionTargetTime) // for each owner, so that none can exhaust another's
		for i, f := range funs {
			entry, ok := mine.Get(f)
			if !ok {
				continue
			}
			v, ok := unwrap(entry, who, budget)
			if !ok {
				continue
			}
			if limit -= value.Weight(v, limit) + len(id); limit < 0 {
				d.rateLimitedLog.Log(slog.LevelError, "not answering request for mine data: too much data; select fewer minions or functions",
					"minion", asker, "functions", len(funs))
				return value.NewDict(0)
			}
			found[i].Set(id, v)
		}
	}
	if single {
		return found[0]
	}
	out := value.NewDict(len(funs))
	for i, f := range funs {
		if found[i].Len() > 0 {
			out.Set(f, found[i])
		}
	}
	return out
}

// mineGranted returns the functions whose data mine_get lets a minion read. Without that option
// it returns all of them.
func (d *minionData) mineGranted(asker string, funs []string) []string {
	option := d.settings.options().MineGet
	if option == nil {
		return funs
	}
	granted, _ := option.(*value.Dict)
	list := acl.Lists(granted, asker)
	return slices.DeleteFunc(funs, func(f string) bool { return !acl.Matches(list, f) })
}

// mineFunctions returns the functions in a request, without duplicates, and at
// most one more than is allowed.
func mineFunctions(v any) (funs []string, single bool) {
	seen := map[string]bool{}
	add := func(f string) {
		if f != "" && !seen[f] && len(funs) <= maxMineFunctions {
			seen[f] = true
			funs = append(funs, f)
		}
	}
	switch x := v.(type) {
	case string:
		for f := range strings.SplitSeq(x, ",") {
			add(strings.TrimSpace(f))
		}
		return funs, len(funs) == 1
	case *value.List:
		for _, it := range x.Items {
			if s, ok := it.(string); ok {
				add(s)
			}
		}
	}
	return funs, false
}

// unwrap returns the value of a mine entry if the requesting minion may see it.
func unwrap(entry any, who target.Subject, budget *target.Budget) (any, bool) {
	d, ok := entry.(*value.Dict)
	var e wire.MineEntry
	if !ok || wire.Decode(d, &e) != nil {
		return entry, true
	}
	if e.AllowTgt == nil || e.AllowTgt == "" {
		return e.Data, true
	}
	typ, _ := e.AllowTgtType.(string)
	t, err := target.Nodegroups(nil).ParseWithin(budget, cmp.Or(typ, "glob"), e.AllowTgt, "")
	if err != nil || !t.Match(who) {
		return nil, false
	}
	return e.Data, true
}

// mineOf returns the stored mine data of a minion, or nil.
func (d *minionData) mineOf(id string) *value.Dict {
	v, ok, err := d.cache.Fetch("minions/"+id, "mine")
	if err != nil {
		d.log.Warn("cannot read a minion's mine data", "minion", id, "err", err)
	}
	mine, isDict := v.(*value.Dict)
	if !ok || !isDict {
		return nil
	}
	return mine
}

func (d *minionData) mineDelete(c *channel.Call) {
	var in wire.MineDelete
	wire.View(c.Load, &in)
	mine := d.mineOf(c.ID).Clone()
	if !mine.Delete(in.Fun) {
		c.Reply(true)
		return
	}
	c.Reply(d.cache.Store("minions/"+c.ID, "mine", mine) == nil)
}

func (d *minionData) mineFlush(c *channel.Call) {
	_, err := d.cache.Flush("minions/"+c.ID, "mine")
	c.Reply(err == nil)
}

// revoke deletes the key of the requesting minion.
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
