package master

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
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
	// answerBytes bounds the mine data of one answer; 0 is maxMineAnswer.
	answerBytes int
	log         *slog.Logger

	rateLimitedLog *ratelimit.Log // about mine data that is too large
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
	var in wire.Pillar
	wire.View(c.Load, &in)
	q := pillarRequest(c.ID, &in)
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
	if in.Ver != "2" && d.settings.options().PillarVersion == 1 {
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

// Bounds of the mine. Each minion can ask for the data of all at once.
const (
	maxMine          = 16 << 20 // bytes of one minion's data
	maxMineAnswer    = 64 << 20 // bytes of one answer
	maxMineFunctions = 1000     // of one request
)

// mine stores what a minion publishes about itself.
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
		d.rateLimitedLog.Log(slog.LevelError, "the mine data of a minion is refused: it is too large; remove functions with mine.delete", "minion", c.ID,
			"limit_mb", maxMine>>20)
		c.Reply(false)
		return
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
	var in wire.MineGet
	wire.View(load, &in)
	typ := cmp.Or(in.TgtType, in.ExprForm)
	switch typ {
	case "":
		typ = "glob"
	case "pillar", "pillar_pcre":
		typ = "pillar_exact" // patterns could be used to guess another minion's pillar
	case "compound":
		typ = "compound_pillar_exact"
	}
	funs, single := mineFunctions(in.Fun)
	ids, err := d.targets.matchingWithin(target.NewBudget(minionTargetTime), typ, in.Tgt, in.Delimiter)
	if err != nil || len(funs) == 0 {
		return value.NewDict(0)
	}
	if len(funs) > maxMineFunctions {
		d.rateLimitedLog.Log(slog.LevelWarn, "a request for mine data is refused: it names too many functions", "minion", asker, "limit", maxMineFunctions)
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
		budget := target.NewBudget(minionTargetTime) // of each owner: none can use up that of others
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
				d.rateLimitedLog.Log(slog.LevelError, "a request for mine data is not answered: there is too much; choose fewer minions or functions",
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

// mineFunctions returns the functions that a request names, each once, and at most
// one more than it may.
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

// unwrap returns the value of a mine entry if the minion who asks may see it.
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
