package master

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/net/channel"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// TestMine: mine data is merged or replaced, deleted and flushed, and returned
// to the minions that its owner allows.
func TestMine(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "db1"}, nil)
	p.data("web1", value.DictOf("os", "Debian"), value.DictOf("role", "front"))
	p.data("db1", value.DictOf("os", "Alpine"), value.DictOf("role", "back"))
	d := p.Master.data
	put := func(id string, clear bool, data *value.Dict) {
		t.Helper()
		if v := ask(t, d.mine, id, "_mine", value.DictOf("data", data, "clear", clear)); v != true {
			t.Errorf("the mine of %s: %s", id, value.Repr(v))
		}
	}
	put("web1", false, value.DictOf("ip", "192.0.2.1", "old", int64(1)))
	put("web1", false, value.DictOf("disk", value.DictOf("__saltmine_acl__", int64(1), "__data__", int64(5), "allow_tgt", "db*")))
	put("web2", false, value.DictOf("ip", "192.0.2.2", "tmp", int64(1)))
	put("web2", true, value.DictOf("ip", "192.0.2.22"))
	for _, c := range []struct {
		asker, typ, tgt string
		fun             any
		want            *value.Dict
	}{
		{"db1", "", "*", "ip", value.DictOf("web1", "192.0.2.1", "web2", "192.0.2.22")},
		{"db1", "glob", "web1", "ip,old", value.DictOf("ip", value.DictOf("web1", "192.0.2.1"), "old", value.DictOf("web1", int64(1)))},
		{"db1", "grain", "os:Debian", value.ListOf("ip", "nosuch"), value.DictOf("ip", value.DictOf("web1", "192.0.2.1"))},
		{"db1", "glob", "*", "disk", value.DictOf("web1", int64(5))},
		{"web2", "glob", "*", "disk", value.NewDict(0)},
		{"db1", "pillar", "role:front", "ip", value.DictOf("web1", "192.0.2.1")},
		{"db1", "pillar", "role:f*", "ip", value.NewDict(0)}, // a pattern could guess a secret
		{"db1", "compound", "I@role:f*", "ip", value.NewDict(0)},
		{"db1", "glob", "*", "", value.NewDict(0)},
	} {
		load := value.DictOf("tgt", c.tgt, "tgt_type", c.typ, "fun", c.fun)
		if got := answer(t, d.mineGet, c.asker, "_mine_get", load); !value.Equal(got, c.want) {
			t.Errorf("%s asks %s %s for %v: %s", c.asker, c.typ, c.tgt, value.Repr(c.fun), value.Repr(got))
		}
	}
	for _, fun := range []string{"old", "old"} {
		if v := ask(t, d.mineDelete, "web1", "_mine_delete", value.DictOf("fun", fun)); v != true {
			t.Errorf("delete: %s", value.Repr(v))
		}
	}
	if d.mineOf("web1").Has("old") {
		t.Error("what was deleted is there")
	}
	if v := ask(t, d.mineFlush, "web1", "_mine_flush", value.NewDict(0)); v != true || d.mineOf("web1") != nil {
		t.Errorf("flush: %s", value.Repr(v))
	}
	if v := ask(t, d.mine, "web1", "_mine", value.NewDict(0)); v != false {
		t.Errorf("no data: %s", value.Repr(v))
	}
}

// TestMineGet: with the option mine_get, a minion gets the data of only those functions that a
// pattern for its id grants, and other minions get nothing.
func TestMineGet(t *testing.T) {
	ip := value.DictOf("web1", "192.0.2.1")
	for _, c := range []struct {
		option any
		asker  string
		fun    any
		want   *value.Dict
	}{
		{nil, "db1", "ip", ip},
		{value.DictOf("db.*", value.ListOf("i")), "db1", "ip", ip}, // patterns match at the beginning, as Salt's do
		{value.DictOf("db.*", value.ListOf("ip")), "db1", "ip,token", value.DictOf("ip", ip)},
		{value.DictOf("db.*", value.ListOf("ip")), "db1", value.ListOf("ip", "token"), value.DictOf("ip", ip)},
		{value.DictOf("db.*", value.ListOf("p")), "db1", "ip", value.NewDict(0)},
		{value.DictOf("web.*", value.ListOf(".*")), "db1", "ip", value.NewDict(0)},
		{value.DictOf("db.*", ".*"), "db1", "ip", value.NewDict(0)},
		{value.NewDict(0), "db1", "ip", value.NewDict(0)},
		{"db.*", "db1", "ip", value.NewDict(0)},
	} {
		p := newParts(t, []string{"web1", "db1"}, func(cfg *Config) { cfg.Options.MineGet = c.option })
		d := p.Master.data
		ask(t, d.mine, "web1", "_mine", value.DictOf("data", value.DictOf("ip", "192.0.2.1", "token", "secret"), "clear", false))
		got := answer(t, d.mineGet, c.asker, "_mine_get", value.DictOf("tgt", "web1", "fun", c.fun))
		if !value.Equal(got, c.want) {
			t.Errorf("%s: %s asks for %s: %s", value.Repr(c.option), c.asker, value.Repr(c.fun), value.Repr(got))
		}
	}
}

// TestMineIsBounded: the mine data of a minion is bounded, even if it arrives in parts, and so
// are the functions and the size of an answer. Only the request that is too large fails.
func TestMineIsBounded(t *testing.T) {
	p := newParts(t, []string{"web1", "web2", "web3"}, nil)
	d := p.Master.data
	d.answerBytes = maxMine * 3 / 2
	large := strings.Repeat("x", maxMine*2/3)
	put := func(id, fun, text string) any {
		t.Helper()
		return ask(t, d.mine, id, "_mine", value.DictOf("data", value.DictOf(fun, text), "clear", false))
	}
	if v := put("web1", "a", large); v != true {
		t.Errorf("the answer is %s", value.Repr(v))
	}
	if v := put("web1", "b", large); v != false {
		t.Errorf("too much in two parts: %s", value.Repr(v))
	}
	if v := put("web1", "b", "small"); v != true {
		t.Errorf("afterwards: %s", value.Repr(v))
	}
	get := func(tgt string, fun any) *value.Dict {
		t.Helper()
		return answer(t, d.mineGet, "web3", "_mine_get", value.DictOf("tgt", tgt, "fun", fun))
	}
	put("web2", "a", large)
	put("web3", "a", large)
	if got := get("*", "a"); got.Len() != 0 {
		t.Errorf("an answer that is too large has %d entries", got.Len())
	}
	if got := get("web[12]", "a"); got.Len() != 2 {
		t.Errorf("a large answer has %d entries", got.Len())
	}
	if got := get("*", "b,b,c,b"); got.Len() != 1 || got.Dict("b").Str("web1") != "small" {
		t.Errorf("a function named twice: %s", value.Repr(got))
	}
	many := &value.List{}
	for i := range 1 << 20 {
		many.Append(fmt.Sprint(i))
	}
	many.Append("b")
	if got := get("*", many); got.Len() != 0 {
		t.Errorf("of too many functions: %d", got.Len())
	}
	// All rules of an owner share one budget, however many entries it has.
	rules := value.NewDict(0)
	for i := range 200 {
		rules.Set(fmt.Sprint("f", i), value.DictOf("__saltmine_acl__", int64(1), "__data__", int64(1), "allow_tgt", `^(?=(w|we|web|e|b|3)+\d*!)`,
			"allow_tgt_type", "pcre"))
	}
	if v := ask(t, d.mine, "web2", "_mine", value.DictOf("data", rules, "clear", true)); v != true {
		t.Fatal(v)
	}
	funs := &value.List{}
	for i := range 200 {
		funs.Append(fmt.Sprint("f", i))
	}
	if got := get("*", funs); got.Len() != 0 {
		t.Errorf("entries for others: %s", value.Repr(got))
	}
}

// TestPillars: the pillar is that of the authenticated minion, and is cached with
// its grains unless the request has overrides.
func TestPillars(t *testing.T) {
	dir := t.TempDir()
	p := newParts(t, []string{"web1"}, func(c *Config) {
		c.Pillar.Roots = value.DictOf("base", value.ListOf(dir))
		c.Options.PillarVersion = 1
		c.Opts.Set("renderer", "jinja|yaml")
	})
	for name, text := range map[string]string{"top.sls": "base:\n  '*':\n    - x\n", "x.sls": "who: {{ grains.id }}\nos: {{ grains.os }}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	p.templates, err = newTemplates(templates{
		id: "boss", cacheDir: p.cfg.CacheDir, opts: p.cfg.Opts, ctx: context.Background, settings: p.settings, log: discard,
		runners: func() *fn.Registry { return nil },
	}, &p.cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.settings.compiler = p.templates.compiler
	p.settings.set(p.cfg)
	load := value.DictOf("grains", value.DictOf("id", "forged", "os", "Debian"), "saltenv", "base")
	got := answer(t, p.Master.data.pillar, "web1", "_pillar", load)
	if got.Str("who") != "web1" || got.Str("os") != "Debian" {
		t.Errorf("the pillar is %s", value.Repr(got))
	}
	if grains, pillar := p.targets.minionData("web1"); grains.Str("os") != "Debian" || pillar.Str("who") != "web1" {
		t.Errorf("kept: %s %s", value.Repr(grains), value.Repr(pillar))
	}
	if tags := p.tags(); !slices.Equal(tags, []string{"minion/refresh/web1"}) {
		t.Errorf("events %v", tags)
	}
	// A pillar with overrides is not cached, nor is one that was requested without grains.
	load.Set("pillar_override", value.DictOf("who", "me"))
	if got := answer(t, p.Master.data.pillar, "web1", "_pillar", load); got.Str("who") != "me" {
		t.Errorf("with an override: %s", value.Repr(got))
	}
	if _, pillar := p.targets.minionData("web1"); pillar.Str("who") != "web1" {
		t.Errorf("the override is kept: %s", value.Repr(pillar))
	}
	p.Master.data.refuses = func() error { return salt.Errorf(salt.Unavailable, "later") }
	if v := ask(t, p.Master.data.pillar, "web1", "_pillar", load); v != "" {
		t.Errorf("while no files are served: %s", value.Repr(v))
	}
}

// TestRevokedKeys: a minion may delete its own key if the options allow it.
func TestRevokedKeys(t *testing.T) {
	p := newParts(t, []string{"web1"}, nil)
	forgotten := ""
	p.Master.data.forget = func(id string) { forgotten = id }
	if v := ask(t, p.Master.data.revoke, "web1", "revoke_auth", value.NewDict(0)); v != true || forgotten != "web1" {
		t.Errorf("%s, forgotten: %q", value.Repr(v), forgotten)
	}
	if st, _, err := p.keys.Lookup("web1"); err != nil || st != keystore.None {
		t.Errorf("the key is %v, %v", st, err)
	}
	if v := ask(t, p.Master.data.revoke, "web1", "revoke_auth", value.NewDict(0)); v != "" {
		t.Errorf("a key that is not there: %s", value.Repr(v))
	}
	p = newParts(t, []string{"web1"}, func(c *Config) { c.Options.AllowKeyRevoke = false })
	ask(t, p.Master.data.revoke, "web1", "revoke_auth", value.NewDict(0))
	if st, _, _ := p.keys.Lookup("web1"); st != keystore.Accepted {
		t.Errorf("the key is %v although that is not allowed", st)
	}
}

// TestElsewhere: the report of a minion that another master commands counts only
// while it is recent: a minion that is switched off reports nothing.
func TestElsewhere(t *testing.T) {
	p := newParts(t, nil, nil)
	answer(t, p.reports.take, "web1", "_brine_standing", value.DictOf("mode", "failover", "masters", value.ListOf(
		value.DictOf("master", "a", "state", "standby", "you", true), value.DictOf("master", "b", "state", "connected"))))
	ids := []string{"web1", "web2"}
	if d := p.reports.elsewhere(ids); d.Len() != 1 || d.Str("web1") != "b" {
		t.Errorf("commanded elsewhere: %s", value.Repr(d))
	}
	st := p.reports.byID["web1"]
	st.At = st.At.Add(-reportAge)
	p.reports.byID["web1"] = st
	if d := p.reports.elsewhere(ids); d.Len() != 0 {
		t.Errorf("by an old report: %s", value.Repr(d))
	}
}

// TestConnectionReports: reports are bounded, survive encoding, and the newest
// one counts.
func TestConnectionReports(t *testing.T) {
	p := newParts(t, nil, nil)
	long := make([]byte, 1000)
	masters := &value.List{}
	for range 100 {
		masters.Append(value.DictOf("master", string(long), "state", "commands", "since", 1.7e9, "you", true))
	}
	report := value.DictOf("mode", "failover", "masters", masters, "last", value.DictOf("from", "a", "to", "b", "reason", "r", "seconds", int64(3), "at", 1.7e9))
	if d := answer(t, p.reports.take, "web1", "_brine_standing", report); d.Str("key") != channel.KeyTag(p.publish.AES()) {
		t.Errorf("the answer is %s", value.Repr(d))
	}
	st, ok := p.reports.of("web1")
	if !ok || len(st.Masters) != maxStandingMasters || len(st.Masters[0].Master) != maxStandingText || st.Last.Seconds != 3 || st.Last.At.Unix() != 1.7e9 {
		t.Errorf("kept: %+v", st)
	}
	again := parseStanding(encodeStanding(st))
	again.At = st.At
	if len(again.Masters) != len(st.Masters) || again.Masters[0] != st.Masters[0] || *again.Last != *st.Last {
		t.Errorf("%+v became %+v", st.Last, again.Last)
	}
	if got := p.reports.collect(t.Context(), []string{"web1", "web2"}); len(got) != 1 {
		t.Errorf("%d reports", len(got))
	}
	if d := p.reports.answer(value.DictOf("ids", value.ListOf("web1", "web2", int64(1)))); d.Len() != 1 {
		t.Errorf("the answer to another master: %s", value.Repr(d))
	}
	if d := answer(t, p.reports.members, "web1", "_brine_members", value.NewDict(0)); d.Len() != 0 {
		t.Errorf("members without a cluster: %s", value.Repr(d))
	}
	for _, bad := range []any{nil, "x", -1.0, 1e12} {
		if !timeOf(bad).IsZero() {
			t.Errorf("%v is a time", bad)
		}
	}
}
