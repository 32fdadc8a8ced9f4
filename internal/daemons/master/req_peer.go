package master

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/base/trace"
	"brine/internal/call/acl"
	"brine/internal/call/fn"
	"brine/internal/net/channel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// peers lets minions command each other and run runners, as far as the options
// peer and peer_run grant it. The channel authenticates the minion; the id in
// the load is ignored.
type peers struct {
	ctx        func() context.Context
	cacheDir   string
	user       string // configured account of the master process
	opts       *value.Dict
	settings   *settings
	targets    *targets
	publisher  *publisher
	runners    *runnerCalls
	jobs       jobStore
	bus        *event.Bus
	background *sync.WaitGroup
	log        *slog.Logger

	rateLimitedLog *ratelimit.Log // limits log messages about requests that are not granted
	// slots bound the requests that wait for runners or returns, so that they leave
	// room for other slow requests.
	slots *slots
}

const (
	// peerSlots is how many requests may wait for runners or returns at once.
	peerSlots = 32
	// peerShare is how many of them may belong to one minion.
	peerShare = 8
	// maxPeerArgs bounds the arguments of one request. Each string among them
	// is parsed as YAML.
	maxPeerArgs = 1000
	// maxPeerWait bounds how long a request waits for returns.
	maxPeerWait = 5 * time.Minute
	// publishAuth is the cache directory with a file for every job of a minion that
	// contains the minion's id, as in Salt.
	publishAuth = "publish_auth"
)

// long handles a request that may wait for long. Waiting for a slot delays only
// the requesting peer.
func (p *peers) long(do func(*channel.Call)) func(*channel.Call) {
	return func(c *channel.Call) {
		leave := p.slots.enter(c.ID)
		p.background.Go(func() {
			defer leave()
			do(c)
		})
	}
}

// peerJob is a parsed request to publish.
type peerJob struct {
	load  *value.Dict // for publisher.publish
	typ   string
	tgt   any
	calls []acl.Call
}

// parse reads {fun, arg, tgt, tgt_type, ret, no_parse}. Several functions are
// one string with commas, each with a string of arguments. Parsing is
// expensive, so the caller first checks that the minion may publish at all.
func (p *peers) parse(load *value.Dict) (*peerJob, bool) {
	var in wire.PeerPublish
	if wire.Decode(load, &in) != nil || tooManyArgs(&in) {
		return nil, false
	}
	for _, k := range []string{"fun", "arg", "tgt", "ret"} {
		if !load.Has(k) {
			return nil, false
		}
	}
	fun, given := in.Fun, value.Items(in.Arg)
	if fun == "" {
		return nil, false
	}
	typ, tgt, err := p.plainTarget(cmp.Or(in.TgtType, "glob"), in.Tgt)
	if err != nil {
		return nil, false
	}
	ret, _ := in.Ret.(string)
	j := &peerJob{typ: typ, tgt: tgt, load: value.DictOf("tgt", tgt, "tgt_type", typ, "ret", ret, "user", p.user)}
	if !strings.Contains(fun, ",") {
		args := parseInput(given, value.Items(in.NoParse))
		j.load.Set("fun", fun)
		j.load.Set("arg", &value.List{Items: args})
		j.calls = []acl.Call{call(fun, args)}
		return j, true
	}
	funs := strings.Split(fun, ",")
	lists := &value.List{}
	for i, f := range funs {
		words := &value.List{}
		if i < len(given) {
			for _, w := range strings.Fields(value.Str(given[i])) {
				words.Append(w)
			}
		}
		lists.Append(words)
		j.calls = append(j.calls, call(f, parseInput(words.Items, nil)))
	}
	j.load.Set("fun", value.Strings(funs))
	j.load.Set("arg", lists)
	return j, true
}

// tooManyArgs reports whether a request has more arguments or functions than any legitimate
// one: parsing it would occupy the master.
func tooManyArgs(in *wire.PeerPublish) bool {
	return len(value.Items(in.Arg)) > maxPeerArgs || len(value.Items(in.NoParse)) > maxPeerArgs || strings.Count(in.Fun, ",") > maxPeerArgs
}

// plainTarget expands nodegroups, which minions do not know.
func (p *peers) plainTarget(typ string, tgt any) (string, any, error) {
	groups := p.settings.nodegroups()
	if typ == "nodegroup" {
		words, err := groups.Expand(value.Str(tgt))
		return "compound", strings.Join(words, " "), err
	}
	text, ok := tgt.(string)
	if typ != "compound" || !ok || !strings.Contains(text, "N@") {
		return typ, tgt, nil
	}
	var out []string
	for _, w := range strings.Fields(text) {
		words := []string{w}
		if name, ok := strings.CutPrefix(w, "N@"); ok {
			var err error
			if words, err = groups.Expand(name); err != nil {
				return "", nil, err
			}
		}
		out = append(out, words...)
	}
	return typ, strings.Join(out, " "), nil
}

// call separates keywords from the arguments of a job.
func call(fun string, args []any) acl.Call {
	c := acl.Call{Fun: fun, Args: args}
	if n := len(args); n > 0 {
		if kw := fn.Keywords(args[n-1]); kw != nil {
			c.Args, c.Kwargs = args[:n-1], kw
		}
	}
	return c
}

// parseInput parses strings like words of a command line, except the keywords
// in noParse, and moves all keywords into one map at the end.
func parseInput(given, noParse []any) []any {
	raw := map[string]bool{}
	for _, k := range noParse {
		raw[value.Str(k)] = true
	}
	out, kwargs := []any{}, value.NewDict(0)
	for _, a := range given {
		switch x := a.(type) {
		case string:
			args, kw := fn.ParseWords([]string{x}, raw)
			out = append(out, args...)
			kwargs.Update(kw)
		case *value.Dict:
			if fn.Keywords(x) != nil {
				kwargs.Update(x)
			} else {
				out = append(out, x)
			}
		default:
			out = append(out, a)
		}
	}
	fn.Unmark(kwargs)
	if kwargs.Len() > 0 {
		fn.Mark(kwargs)
		out = append(out, kwargs)
	}
	return out
}

// lists returns the grants of the option peer for a minion. Requests of minions
// without grants are not parsed.
func (p *peers) lists(id string) []any {
	peer, _ := p.settings.options().Peer.(*value.Dict)
	return acl.Lists(peer, id)
}

// granted decides whether a minion with the grants in list may publish a job.
// It refuses jobs that would publish again, because they could do so endlessly.
func (p *peers) granted(list []any, j *peerJob) bool {
	for _, c := range j.calls {
		if strings.HasPrefix(strings.TrimSpace(c.Fun), "publish.") {
			return false
		}
	}
	minions, ok := p.exactly(j)
	return ok && acl.Allowed(list, j.calls, func(tgt string) bool {
		return p.targets.within(minions, tgt) // a target in the operator's configuration
	})
}

// exactly returns the minions of a job, unless its target matches pillars by
// patterns: these would let a minion guess another minion's secrets.
func (p *peers) exactly(j *peerJob) (minions []string, ok bool) {
	budget := target.NewBudget(minionTargetTime)
	minions, _, err := p.targets.resolveWithin(budget, j.typ, j.tgt, "")
	if err != nil {
		return nil, false
	}
	exact := map[string]string{"pillar": "pillar_exact", "pillar_pcre": "pillar_exact", "compound": "compound_pillar_exact"}[strings.ToLower(j.typ)]
	if exact == "" {
		return minions, true
	}
	valid, _, err := p.targets.resolveWithin(budget, exact, j.tgt, "")
	return minions, err == nil && subset(minions, valid)
}

// permitted returns the job that a minion requests, if the option peer grants it.
// Requests of minions without grants are not parsed.
func (p *peers) permitted(id string, load *value.Dict) (j *peerJob, ok bool) {
	list := p.lists(id)
	if len(list) > 0 {
		j, ok = p.parse(load)
	}
	return j, ok && p.granted(list, j)
}

// start publishes a job for an authorized minion, and returns its id and the
// minions that should return. It first records that the minion may request the
// returns.
func (p *peers) start(c *channel.Call) (jid string, minions *value.List, ok bool) {
	j, ok := p.permitted(c.ID, c.Load)
	if !ok {
		p.rateLimitedLog.Log(slog.LevelWarn, "minion may not publish this: the option peer does not grant it", "minion", c.ID,
			"fun", fmt.Sprintf("%.80s", readOrder(c.Load).fun()))
		return "", nil, false
	}
	jid = p.publisher.newJID()
	j.load.Set("jid", jid)
	j.load.Set("id", c.ID)
	if err := p.note(jid, c.ID); err != nil {
		p.log.Error("cannot record which minion published the job; not publishing it", "minion", c.ID, "err", err)
		return "", nil, false
	}
	did := outcomeOfReply(p.publisher.publish(j.load))
	if did.jid == "" {
		return "", nil, false
	}
	return jid, &value.List{Items: value.Items(did.minions)}, true
}

func (p *peers) note(jid, id string) error {
	dir := filepath.Join(p.cacheDir, publishAuth)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, jid), []byte(id), 0o600)
}

// publish starts a job and returns its id: {jid, minions}.
func (p *peers) publish(c *channel.Call) {
	jid, minions, ok := p.start(c)
	if !ok {
		c.Reply(value.NewDict(0))
		return
	}
	c.Reply(value.DictOf("jid", jid, "minions", minions))
}

// publishAndWait starts a job and returns what minions return within the time
// of the field timeout or tmo, in seconds.
func (p *peers) publishAndWait(c *channel.Call) {
	wait := p.settings.options().Timeout
	var in wire.PeerPublish
	wire.View(c.Load, &in)
	for _, v := range []any{in.Tmo, in.Timeout} {
		if v == nil {
			continue
		}
		n, isInt := yaml.LoadArg(value.Str(v)).(int64)
		if !isInt || n < 0 {
			c.Reply(value.NewDict(0))
			return
		}
		wait = min(time.Duration(n), maxPeerWait/time.Second) * time.Second
	}
	heard := p.bus.Subscribe(1<<10, "salt/job/")
	defer heard.Close()
	jid, minions, ok := p.start(c)
	if !ok {
		c.Reply(value.NewDict(0))
		return
	}
	left := map[string]bool{}
	for _, id := range minions.Items {
		left[value.Str(id)] = true
	}
	over := time.After(wait)
	for len(left) > 0 {
		select {
		case ev, open := <-heard.C:
			if id, ok := strings.CutPrefix(ev.Tag, salt.Tag("job", jid, "ret")+"/"); open && ok {
				delete(left, id)
			}
			if open {
				continue
			}
		case <-over:
		case <-p.ctx().Done():
		}
		break
	}
	p.replyReturns(c, jid, in.Form == "full")
}

func (p *peers) replyReturns(c *channel.Call, jid string, full bool) {
	rets, err := p.returns(jid)
	if err != nil {
		p.log.Error("cannot read the returns of a job", "jid", jid, "err", err)
		c.Reply("")
		return
	}
	if full {
		rets.Set("__jid__", jid)
	} else {
		for id, d := range rets.Clone().All() {
			v, _ := d.(*value.Dict).Get("ret")
			rets.Set(id, v)
		}
	}
	c.Reply(rets)
}

// returns collects {id: {ret, [out]}} of a job.
func (p *peers) returns(jid string) (*value.Dict, error) {
	out := value.NewDict(0)
	stored, err := p.jobs.Returns(jid)
	if err != nil {
		return nil, err
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		var ret wire.Return
		wire.View(stored[id], &ret)
		d := value.DictOf("ret", ret.Return)
		if ret.Out != nil {
			d.Set("out", ret.Out)
		}
		out.Set(id, d)
	}
	return out, nil
}

// collect returns the stored returns of a job to the minion that published it.
func (p *peers) collect(c *channel.Call) {
	var in wire.PeerReturns
	wire.View(c.Load, &in)
	jid := in.JID
	if !salt.ValidJID(jid) {
		c.Reply(value.NewDict(0))
		return
	}
	owner, err := os.ReadFile(filepath.Join(p.cacheDir, publishAuth, jid))
	if err != nil {
		c.Reply("")
		return
	}
	if string(owner) != c.ID {
		p.rateLimitedLog.Log(slog.LevelWarn, "minion asked for the returns of a job of another minion", "minion", c.ID, "jid", jid)
		c.Reply(value.NewDict(0))
		return
	}
	rets, err := p.returns(jid)
	if err != nil {
		p.log.Error("cannot read the returns of a job", "jid", jid, "err", err)
		c.Reply("")
		return
	}
	c.Reply(rets)
}

// runner runs a runner that peer_run grants, and returns its result.
func (p *peers) runner(c *channel.Call) {
	fun := readOrder(c.Load).fun()
	args, ok := p.runnerArgs(c.ID, c.Load)
	if !ok {
		p.rateLimitedLog.Log(slog.LevelWarn, "minion may not call this runner: the option peer_run does not grant it", "minion", c.ID, "fun",
			fmt.Sprintf("%.80s", fun))
		c.Reply(value.NewDict(0))
		return
	}
	jid := salt.NewJID(time.Now())
	o := p.runners.run(trace.Link{}, salt.Tag("run", jid), jid, fun, c.ID, args, p.opts)
	c.Reply(o.Return)
}

// runnerArgs returns the arguments of a runner if the option peer_run grants it
// to the minion. Only then are they parsed.
func (p *peers) runnerArgs(id string, load *value.Dict) (args []any, ok bool) {
	granted, _ := p.settings.options().PeerRun.(*value.Dict)
	var in wire.PeerPublish
	if wire.Decode(load, &in) != nil || in.Arg == nil || tooManyArgs(&in) || !acl.Allowed(functions(acl.Lists(granted, id)), []acl.Call{{Fun: in.Fun}}, nil) {
		return nil, false
	}
	return parseInput(value.Items(in.Arg), value.Items(in.NoParse)), true
}

// functions drops the entries for certain targets, which runners do not have.
func functions(list []any) []any {
	return slices.DeleteFunc(slices.Clone(list), func(e any) bool {
		_, ok := e.(string)
		return !ok
	})
}

// forget removes the records of which minion published which job, once they are
// older than jobs are kept.
func (p *peers) forget(now time.Time, keep time.Duration) {
	dir := filepath.Join(p.cacheDir, publishAuth)
	entries, err := os.ReadDir(dir)
	if err != nil || keep <= 0 {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && fi.Mode().IsRegular() && now.Sub(fi.ModTime()) > keep {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				p.log.Warn("cannot remove old file", "path", e.Name(), "err", err)
			}
		}
	}
}
