package master

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/catalogue/wheel"
	"brine/internal/daemons/master/hotlink"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
	"brine/internal/store/shared"
)

// hotMasters exchanges with the masters of the option hot_masters what a console shows: connected minions, keys
// and last runs of states. These masters have the same key and are no cluster.
type hotMasters struct {
	id       string
	boot     string // identifies this process
	began    time.Time
	presence *presence
	reports  *connectionReports
	keys     *keystore.Store
	hashType string
	runs     *lastStates
	saved    *shared.Store
	settings *settings
	wheels   *wheelCalls
	recorder *recorder
	audits   audits // of this master alone
	approval *approvals
	loads    *loads
	log      *ratelimit.Log

	server *hotlink.Server
	peers  []*hotPeer

	mu     sync.Mutex
	wanted time.Time // when a console last asked
	keysAt time.Time
	known  []runners.HotKey
}

// hotPeer is another master.
type hotPeer struct {
	address string
	client  *hotlink.Client
	conn    transport.Requester

	mu      sync.Mutex
	id      string
	about   wire.HotPicture
	minions map[string]bool
	names   []string
	keys    []runners.HotKey
	seen    time.Time // of its last answer
	problem string
	load    *runners.MasterLoad
	boot    string
	runs    uint64
	savedAt string
}

// Questions to hot masters.
const (
	askHotPicture = "picture"
	askHotFiles   = "files"
	askHotKeys    = "keys"
)

const (
	// hotBusy and hotIdle are the intervals of questions while a console is open, and otherwise. hotOpen is how long a
	// console counts as open after its last request.
	hotBusy, hotIdle, hotOpen = 2 * time.Second, 15 * time.Second, time.Minute
	// hotTime bounds a question, hotActs a decision about keys.
	hotTime, hotActs = 5 * time.Second, 30 * time.Second
	// hotKeysAge is how long a list of keys is reused.
	hotKeysAge = 2 * time.Second
	// Bounds for one other master.
	maxHotMinions, maxHotKeys, maxHotNames, maxHotPaths = 200_000, 200_000, 64, 1000
	// hotRuns bounds the minions of one message about last runs.
	hotRuns = 1000
	// maxHotSaved bounds what is taken of another master's saved records.
	maxHotSaved = 5000
	// maxHotPeers bounds the option.
	maxHotPeers = 32
)

// errItself is the error of an entry of hot_masters that names this master.
var errItself = salt.Errorf(salt.Invalid, "this is the master itself, or one with the same id: remove it from hot_masters, or set another id")

// link creates the links to other masters.
func (h *hotMasters) link(addresses []string, dial func(addr string) transport.Requester, shared *crypt.PrivateKey) (err error) {
	if len(addresses) > maxHotPeers {
		return salt.Errorf(salt.Invalid, "hot_masters has %d entries; at most %d are possible", len(addresses), maxHotPeers)
	}
	if h.server, err = hotlink.NewServer(h.id, shared, h.answer); err != nil {
		return err
	}
	for _, addr := range addresses {
		p := &hotPeer{address: addr, conn: dial(addr), problem: "not asked yet"}
		if p.client, err = hotlink.NewClient(h.id, shared, p.conn); err != nil {
			return err
		}
		h.peers = append(h.peers, p)
	}
	return nil
}

// hotAddress adds the default port to an entry of hot_masters.
func hotAddress(entry string, port int) string {
	if _, _, err := net.SplitHostPort(entry); err == nil {
		return entry
	}
	return net.JoinHostPort(entry, strconv.Itoa(port))
}

// take answers a request of another master.
func (h *hotMasters) take(c *channel.Call) {
	if h == nil {
		c.Reply(value.NewDict(0))
		return
	}
	var in wire.HotRequest
	wire.View(c.Load, &in)
	sealed, err := h.server.Answer(in.Data)
	if err != nil {
		h.log.Log(slog.LevelWarn, "refused request as a hot master: it was not made with this master's key", "peer", c.Peer(), "err", err)
		c.Reply(value.NewDict(0))
		return
	}
	c.Reply(value.DictOf("data", sealed))
}

// run asks the other masters until ctx ends.
func (h *hotMasters) run(ctx context.Context) error {
	if h == nil {
		return nil
	}
	var wait sync.WaitGroup
	for _, p := range h.peers {
		wait.Go(func() { h.follow(ctx, p) })
	}
	wait.Wait()
	for _, p := range h.peers {
		p.conn.Close()
	}
	return nil
}

func (h *hotMasters) follow(ctx context.Context, p *hotPeer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var last time.Time
	for {
		every := hotIdle
		if h.isOpen() || !p.up() {
			every = hotBusy
		}
		if time.Since(last) >= every {
			for h.ask(ctx, p) && ctx.Err() == nil {
			}
			last = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// isOpen reports whether a console is open.
func (h *hotMasters) isOpen() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.wanted) < hotOpen
}

// want records that a console asks.
func (h *hotMasters) want() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = time.Now()
}

// ask asks another master for its picture, and reports whether it has more to say.
func (h *hotMasters) ask(ctx context.Context, p *hotPeer) (more bool) {
	p.mu.Lock()
	q := wire.HotPicture{Links: p.about.Links, KeysAt: p.about.KeysAt, Boot: p.boot, Runs: int64(p.runs), SavedAt: p.savedAt}
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, hotTime)
	defer cancel()
	id, data, err := p.client.Ask(ctx, askHotPicture, wire.Encode(&q))
	if err == nil && id == h.id {
		err = errItself
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		text := fmt.Sprintf("%.300s", err.Error())
		if p.problem != text {
			h.log.Log(slog.LevelWarn, "cannot ask hot master; consoles show its last data", "address", p.address, "err", err)
		}
		p.problem = text
		return false
	}
	var a wire.HotPicture
	if err := wire.Decode(data, &a); err != nil {
		p.problem = fmt.Sprintf("its answer is invalid: %.300s", err.Error())
		return false
	}
	p.id, p.problem, p.seen = id, "", time.Now()
	p.learn(a)
	if len(a.States) > 0 {
		if err := h.runs.Learn(a.States); err != nil {
			p.problem = fmt.Sprintf("its last runs of states are invalid: %.300s", err.Error())
			return false
		}
	}
	if saved := texts(a.Saved, maxHotSaved); len(saved) > 0 {
		if err := h.saved.Merge(saved); err != nil {
			p.problem = fmt.Sprintf("cannot store what its users saved: %.300s", err.Error())
			return false
		}
	}
	p.savedAt = a.SavedAt
	if n, ok := a.Runs.(int64); ok && n >= 0 {
		p.runs = uint64(n)
	}
	p.boot = a.Boot
	return a.More
}

// learn stores an answer, bounded. p.mu is held.
func (p *hotPeer) learn(a wire.HotPicture) {
	p.about.Version, p.about.Since = a.Version, a.Since
	p.load = readLoad(a.Load, time.Now())
	if a.Links != p.about.Links {
		p.minions, p.about.Links = map[string]bool{}, a.Links
		for _, it := range value.Items(a.Minions) {
			if id, ok := it.(string); ok && salt.CheckID(id) == nil && len(p.minions) < maxHotMinions {
				p.minions[id] = true
			}
		}
	}
	p.names = nil
	for _, it := range value.Items(a.Names) {
		if name, ok := it.(string); ok && len(p.names) < maxHotNames {
			p.names = append(p.names, cut(name))
		}
	}
	if a.KeysAt == p.about.KeysAt {
		return
	}
	p.keys, p.about.KeysAt = nil, a.KeysAt
	for _, it := range value.Items(a.Keys) {
		l := value.Items(it)
		if len(l) != 3 || len(p.keys) >= maxHotKeys {
			continue
		}
		k := runners.HotKey{ID: value.Str(l[0]), List: value.Str(l[1]), Fingerprint: cut(value.Str(l[2]))}
		if salt.CheckID(k.ID) == nil && slices.Contains(keyDirs, k.List) {
			p.keys = append(p.keys, k)
		}
	}
}

func (p *hotPeer) up() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.problem == ""
}

// answer answers a question of another master.
func (h *hotMasters) answer(from, name string, arg *value.Dict) (*value.Dict, error) {
	switch name {
	case askHotPicture:
		var q wire.HotPicture
		if err := wire.Decode(arg, &q); err != nil {
			return nil, err
		}
		return h.picture(&q)
	case askHotFiles:
		var q wire.HotFiles
		if err := wire.Decode(arg, &q); err != nil {
			return nil, err
		}
		out := value.NewDict(0)
		ctx, cancel := context.WithTimeout(h.wheels.ctx(), hotTime)
		defer cancel()
		hashes := runners.HashesOf(ctx, h.settings.fileServer(), q.Saltenv, texts(q.Paths, maxHotPaths))
		for _, path := range slices.Sorted(maps.Keys(hashes)) {
			out.Set(path, hashes[path])
		}
		return out, nil
	case askHotKeys:
		var q wire.HotDecision
		if err := wire.Decode(arg, &q); err != nil {
			return nil, err
		}
		return h.decide(from, &q)
	case askAudit:
		return h.audits.answer(arg), nil
	case askApproval:
		return h.approval.decideHere(arg), nil
	}
	return nil, salt.Errorf(salt.NotFound, "unknown question %.64q: the masters have different versions", name)
}

// texts returns the strings of a list, at most some.
func texts(list any, most int) (out []string) {
	for _, it := range value.Items(list) {
		if s, ok := it.(string); ok && len(out) < most {
			out = append(out, s)
		}
	}
	return out
}

// picture describes this master, without the parts that the asking one has.
func (h *hotMasters) picture(q *wire.HotPicture) (*value.Dict, error) {
	own := h.loads.here()
	a := wire.HotPicture{Load: wire.Encode(&own.MasterLoad), Version: salt.Version, Since: secondsOf(h.began), Boot: h.boot}
	ids := slices.Sorted(maps.Keys(h.reports.commanded(h.presence.current())))
	ids = ids[:min(len(ids), maxHotMinions)]
	if a.Links = digest(ids); a.Links != q.Links {
		a.Minions = value.Strings(ids)
	}
	a.Names = value.Strings(h.reports.ownNames(maxHotNames))
	keys, err := h.ownKeys()
	if err != nil {
		return nil, err
	}
	list, parts := &value.List{}, make([]string, 0, 3*len(keys))
	for _, k := range keys {
		list.Append(value.ListOf(k.ID, k.List, k.Fingerprint))
		parts = append(parts, k.ID, k.List, k.Fingerprint)
	}
	if a.KeysAt = digest(parts); a.KeysAt != q.KeysAt {
		a.Keys = list
	}
	since, _ := q.Runs.(int64)
	if q.Boot != h.boot {
		since = 0
	}
	states, to, more, err := h.runs.Since(uint64(max(since, 0)), hotRuns)
	if err != nil {
		return nil, err
	}
	at, saved, err := h.saved.Export(q.SavedAt)
	if err != nil {
		return nil, err
	}
	if a.SavedAt = at; saved != nil {
		a.Saved = value.Strings(saved)
	}
	a.States, a.Runs, a.More = states, int64(to), more
	return wire.Encode(&a), nil
}

func digest(parts []string) string {
	sum := sha256.New()
	for _, s := range parts {
		fmt.Fprintf(sum, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// ownKeys returns the keys at this master, by id.
func (h *hotMasters) ownKeys() ([]runners.HotKey, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known != nil && time.Since(h.keysAt) < hotKeysAge {
		return h.known, nil
	}
	all, err := h.keys.List()
	if err != nil {
		return nil, err
	}
	fingers := map[runners.HotKey]string{}
	for _, k := range h.known { // a fingerprint is read again only if the key moved
		fingers[runners.HotKey{ID: k.ID, List: k.List}] = k.Fingerprint
	}
	fresh := time.Since(h.keysAt) < time.Minute
	out := []runners.HotKey{}
	for _, st := range []keystore.State{keystore.Accepted, keystore.Pending, keystore.Rejected, keystore.Denied} {
		for _, id := range all[st] {
			k := runners.HotKey{ID: id, List: st.DirName()}
			if f, ok := fingers[k]; ok && fresh {
				k.Fingerprint = f
			} else if pub, err := h.keys.Read(st, id); err == nil {
				k.Fingerprint = crypt.Fingerprint([]byte(pub), h.hashType)
			}
			if len(out) < maxHotKeys {
				out = append(out, k)
			}
		}
	}
	slices.SortFunc(out, func(a, b runners.HotKey) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.List, b.List)) })
	h.known, h.keysAt = out, time.Now()
	return out, nil
}

// decision is what a user decides about keys: the wheel function, a further argument of it, the lists to which it
// applies, and the list of the key afterwards.
type decision struct {
	fun, more string
	lists     []string
	to        string
}

var decisions = map[string]decision{
	"accept": {"key.accept_dict", "include_rejected", []string{"minions_pre", "minions_rejected"}, "minions"},
	"reject": {"key.reject_dict", "include_accepted", []string{"minions_pre", "minions"}, "minions_rejected"},
	"delete": {"key.delete_dict", "", []string{"minions", "minions_pre", "minions_rejected", "minions_denied"}, ""},
}

// decide does here what a user decided at another master: [id, fingerprint, public key] of keys. A key with another
// fingerprint stays as it is. The answer has for each id why nothing was done, or "" if all is as decided.
func (h *hotMasters) decide(from string, q *wire.HotDecision) (*value.Dict, error) {
	do, ok := decisions[q.Action]
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "%.16q is no decision about keys", q.Action)
	}
	h.forgetKeys()
	defer h.forgetKeys()
	keys, err := h.ownKeys()
	if err != nil {
		return nil, err
	}
	byID := map[string][]runners.HotKey{}
	for _, k := range keys {
		byID[k.ID] = append(byID[k.ID], k)
	}
	user := fmt.Sprintf("%.100s", q.User)
	match, out := value.NewDict(4), value.NewDict(0)
	for _, it := range value.Items(q.Keys) {
		l := value.Items(it)
		if len(l) != 3 || out.Len() >= maxHotKeys || salt.CheckID(value.Str(l[0])) != nil {
			continue
		}
		id, finger, pub := value.Str(l[0]), value.Str(l[1]), value.Str(l[2])
		lists, why := do.choose(byID[id], finger)
		for _, list := range lists {
			match.Set(list, value.ListOf(append(match.List(list), id)...))
		}
		if len(byID[id]) == 0 && pub != "" {
			why = h.acceptEarly(id, finger, pub, user, from)
		}
		out.Set(id, why)
	}
	if match.Len() == 0 {
		return out, nil
	}
	kwarg := value.DictOf("match", match)
	if do.more != "" {
		kwarg.Set(do.more, true)
	}
	load := value.DictOf("cmd", "wheel", "fun", do.fun, "kwarg", kwarg)
	h.record(user, from, load)
	r := h.wheels.begin(do.fun, load, user)
	r.who, r.way = user, "hot master "+from
	var done wire.WheelDone
	if wire.View(r.execute(h.wheels.ctx()), &done); done.Success == false {
		return nil, salt.Errorf(salt.Internal, "%.300s", value.Str(done.Return))
	}
	return out, nil
}

func (h *hotMasters) record(user, from string, load *value.Dict) {
	d := entry(user, "hot master "+from, load)
	d.Set("cmd", "wheel")
	d.Set("result", resultDone)
	h.recorder.keep(d)
}

// choose returns the lists from which a key moves, or why it does not.
func (d decision) choose(keys []runners.HotKey, finger string) (lists []string, why string) {
	if len(keys) == 0 && d.to != "" {
		return nil, "there is no key of this minion"
	}
	for _, k := range keys {
		switch {
		case finger != "" && k.Fingerprint != finger:
			why = "the key has another fingerprint"
		case k.List == d.to:
			return nil, ""
		case slices.Contains(d.lists, k.List):
			lists = append(lists, k.List)
		default:
			why = "the key is in " + k.List
		}
	}
	if len(lists) > 0 {
		why = ""
	}
	return lists, why
}

// acceptEarly accepts a key of a minion that has not signed in here, and returns why not.
func (h *hotMasters) acceptEarly(id, finger, pub, user, from string) string {
	if _, err := crypt.ParsePublic([]byte(pub)); err != nil || crypt.Fingerprint([]byte(pub), h.hashType) != finger {
		return "the key is not valid"
	}
	h.record(user, from, value.DictOf("fun", "key.accept", "tgt", id))
	if err := h.wheels.keys.as(user, "hot master "+from).Put(keystore.Accepted, id, pub); err != nil {
		return fmt.Sprintf("%.200s", err.Error())
	}
	h.wheels.bus.Fire("salt/key", value.DictOf("result", true, "act", "accept", "id", id))
	return ""
}

func (h *hotMasters) forgetKeys() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keysAt = time.Time{}
	h.known = nil
}

// Masters implements runners.HotMasters.
func (h *hotMasters) Masters() (out []runners.HotMaster) {
	if h == nil {
		return nil
	}
	h.want()
	for _, p := range h.peers {
		p.mu.Lock()
		m := runners.HotMaster{ID: cmp.Or(p.id, p.address), Address: p.address, Problem: p.problem, Seen: p.seen, Version: p.about.Version,
			Since: timeOf(p.about.Since), Names: p.names, Keys: p.keys, Load: p.load}
		if m.Problem == "" {
			m.Minions = p.minions
		}
		p.mu.Unlock()
		out = append(out, m)
	}
	return out
}

// addAccepted adds the minions that other masters have accepted.
func (h *hotMasters) addAccepted(ids map[string]bool) {
	if h == nil {
		return
	}
	for _, p := range h.peers {
		p.mu.Lock()
		for _, k := range p.keys {
			if k.List == keystore.Accepted.DirName() {
				ids[k.ID] = true
			}
		}
		p.mu.Unlock()
	}
}

// shown returns h as an interface, nil without the option.
func (h *hotMasters) shown() runners.HotMasters {
	if h == nil {
		return nil
	}
	return h
}

// saving returns the store of what users save, which tells the other masters that a console is open.
func (h *hotMasters) saving(s *shared.Store) runners.Saved {
	if h == nil {
		return s
	}
	return savedOfHot{s, h}
}

// savedOfHot is a store that hot masters share.
type savedOfHot struct {
	*shared.Store
	hot *hotMasters
}

// All implements runners.Saved.
func (s savedOfHot) All() ([]shared.Record, error) {
	s.hot.want()
	return s.Store.All()
}

// wheelKeys returns the functions for keys at other masters.
func (h *hotMasters) wheelKeys() wheel.HotKeys {
	if h == nil {
		return wheel.HotKeys{}
	}
	return wheel.HotKeys{List: h.listKeys, Decide: h.decideElsewhere}
}

// listKeys returns the keys at the other masters.
func (h *hotMasters) listKeys() (*value.Dict, error) {
	masters := value.NewDict(len(h.peers))
	for _, m := range h.Masters() {
		keys := &value.List{}
		for _, k := range m.Keys {
			keys.Append(value.ListOf(k.ID, k.List, k.Fingerprint))
		}
		d := value.DictOf("keys", keys)
		if m.Problem != "" {
			d.Set("problem", m.Problem)
		}
		masters.Set(m.ID, d)
	}
	return value.DictOf("own", h.id, "masters", masters), nil
}

// FileHashes implements runners.HotMasters.
func (h *hotMasters) FileHashes(ctx context.Context, env string, paths []string) map[string]map[string]string {
	out := map[string]map[string]string{}
	h.each(ctx, hotTime, askHotFiles, wire.Encode(&wire.HotFiles{Saltenv: env, Paths: value.Strings(paths)}), func(id string, data *value.Dict, err error) {
		if err != nil {
			return
		}
		hashes := map[string]string{}
		for _, path := range paths {
			hashes[path] = cut(data.Str(path))
		}
		out[id] = hashes
	})
	return out
}

// decideElsewhere decides on keys at all other masters: [[id, fingerprint]].
func (h *hotMasters) decideElsewhere(ctx context.Context, user, action string, keys *value.List) *value.Dict {
	sent := &value.List{}
	for _, it := range keys.Items {
		l := value.Items(it)
		if len(l) != 2 {
			continue
		}
		id, finger := value.Str(l[0]), value.Str(l[1])
		pub := ""
		if action == "accept" && salt.CheckID(id) == nil {
			// A master that the minion has not reached yet accepts the key in advance.
			if text, err := h.keys.Read(keystore.Accepted, id); err == nil && crypt.Fingerprint([]byte(text), h.hashType) == finger {
				pub = text
			}
		}
		sent.Append(value.ListOf(id, finger, pub))
	}
	out := value.NewDict(len(h.peers))
	q := wire.HotDecision{Action: action, User: user, Keys: sent}
	h.each(ctx, hotActs, askHotKeys, wire.Encode(&q), func(id string, data *value.Dict, err error) {
		d := value.DictOf("keys", data)
		if err != nil {
			d.Set("problem", fmt.Sprintf("%.300s", err.Error()))
		}
		out.Set(id, d)
	})
	return out
}

// askApproval asks the master of an id to decide on a job that needs approval.
func (h *hotMasters) askApproval(master string, in wire.ApprovalDecision) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(h.wheels.ctx(), askApprovalTime)
	defer cancel()
	for _, p := range h.peers {
		p.mu.Lock()
		id := p.id
		p.mu.Unlock()
		if id != master {
			continue
		}
		answered, data, err := p.client.Ask(ctx, askApproval, wire.Encode(in))
		if err == nil && answered != master {
			err = salt.Errorf(salt.Unavailable, "%s is another master now", p.address)
		}
		return data, err
	}
	return nil, salt.Errorf(salt.Unavailable, "hot master %.100s has not answered yet", master)
}

// asker returns each, nil without the option.
func (h *hotMasters) asker() askHot {
	if h == nil {
		return nil
	}
	return h.each
}

// each asks all other masters at once, and calls do for each, one at a time.
func (h *hotMasters) each(ctx context.Context, within time.Duration, name string, arg *value.Dict, do func(id string, data *value.Dict, err error)) {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var wait sync.WaitGroup
	var mu sync.Mutex
	for _, p := range h.peers {
		wait.Go(func() {
			answered, data, err := p.client.Ask(ctx, name, arg)
			if data == nil {
				data = value.NewDict(0)
			}
			if err == nil && answered == h.id {
				err = errItself
			}
			p.mu.Lock()
			id := cmp.Or(p.id, p.address)
			if err == nil {
				id = answered // it may have answered no question for its picture yet
			}
			p.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			do(id, data, err)
		})
	}
	wait.Wait()
	if name == askHotKeys { // show the result at once
		for _, p := range h.peers {
			h.ask(context.WithoutCancel(ctx), p)
		}
	}
}

// ownNames returns what minions call this master.
func (s *connectionReports) ownNames(most int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, st := range s.byID {
		for _, m := range st.Masters {
			if m.Here && len(names) < most {
				names[m.Master] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
