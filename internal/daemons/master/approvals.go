package master

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/wire"
	pyjson "brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/store/consoledb"
	"brine/internal/store/shared"
)

// approvals are the jobs that wait for a second user (approval_above), as all masters and all salt-apis see them. A
// salt-api keeps the job with the token of its user; the record here has no token. A second user may approve it at
// another salt-api or master: then the record says so, and the salt-api with the job starts it.
type approvals struct {
	access *access
	store  *shared.Store
	now    func() time.Time
	// want, unless it is nil, makes hot masters exchange records soon.
	want func()
	// ask asks another master to decide; nil without a cluster and hot masters.
	ask func(master string, in wire.ApprovalDecision) (*value.Dict, error)
	// table has the jobs of all masters with this console_store; nil without one.
	table *approvalTable

	mu sync.Mutex // held while a record is read and changed
	// had is since when this master knows of a record. A clock that is wrong for a moment removes none.
	had map[string]time.Time
}

// approvalsModule begins the names of the functions that consoles call.
const approvalsModule = "approvals."

const (
	kindApproval = "approval"
	// approvalTime is how long a job waits, approvalKept how long its record is kept.
	approvalTime, approvalKept = time.Hour, 2 * time.Hour
	// maxApprovals bounds the records, maxApprovalsOfOne those of one user.
	maxApprovals, maxApprovalsOfOne = 500, 50
)

// States of an approval.
const (
	approvalWaiting = "waiting"
	approvalGranted = "granted" // by the second user; the job has not started
	approvalUsed    = "started"

	approvalRejected = "rejected"
)

// approvalRanks orders the states that masters have set without knowing of each other: the highest counts. A job that was rejected does not
// start, and one that has started does not wait again.
var approvalRanks = map[string]int{approvalWaiting: 0, approvalGranted: 1, "expired": 2, approvalRejected: 3, approvalUsed: 4, "failed": 5, "approved": 5}

// approvalEnds are the states that a salt-api reports.
var approvalEnds = []string{"approved", approvalRejected, "failed", "expired"}

// approvalKeys are the parts of a job that a record has.
var approvalKeys = []string{"client", "tgt", "tgt_type", "fun", "arg", "kwarg", "batch", "timeout"}

// approvalRecord is the data of a record.
type approvalRecord struct {
	// Chunk is the job, as JSON.
	Chunk  json.RawMessage `json:"chunk"`
	Reason string          `json:"reason"`
	From   string          `json:"from,omitempty"`
	Asked  int64           `json:"asked"` // seconds
	// Home is the master that was asked. Its salt-api has the job, and no other master starts it; "" if an older version was asked.
	Home    string `json:"home,omitempty"`
	State   string `json:"state"`
	By      string `json:"by,omitempty"`
	JID     string `json:"jid,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Shared says that the console_store may have the job: a decision counts only if it is recorded there.
	Shared bool `json:"shared,omitempty"`
}

// answer answers a console: fun is the function after the prefix approvalsModule.
func (a *approvals) answer(who *caller, fun string, kwarg *value.Dict) (*value.Dict, error) {
	var in wire.Approval
	wire.View(kwarg, &in)
	switch fun {
	case "approve":
		return a.decide(who, in.ID, approvalGranted)
	case "reject":
		return a.decide(who, in.ID, approvalRejected)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.expire(); err != nil {
		return nil, err
	}
	switch fun {
	case "ask":
		return a.keep(who, &in)
	case "list":
		return a.list(who)
	case "done":
		return a.done(who, &in)
	}
	return nil, salt.Errorf(salt.Invalid, "unknown function approvals.%.40s: there are ask, list, approve, reject and done", fun)
}

// sweep removes old records.
func (a *approvals) sweep() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.expire()
}

// expire removes the records that this master has had for long enough, and that are old by its clock.
func (a *approvals) expire() error {
	all, err := a.store.All()
	if err != nil {
		return err
	}
	now := a.now()
	for id, since := range a.had {
		if now.Sub(since) > 3*approvalKept { // until then another master may have the record, and send it again
			delete(a.had, id)
		}
	}
	for _, r := range all {
		if r.Kind != kindApproval {
			continue
		}
		a.noteHad(r.ID)
		d, ok := readApproval(r)
		if ok && (now.Sub(a.had[r.ID]) <= approvalKept || a.ageWithin(&d, approvalKept)) {
			continue
		}
		if err := a.store.Drop(r.ID); err != nil {
			return err
		}
	}
	return nil
}

func (a *approvals) noteHad(id string) {
	if a.had == nil {
		a.had = map[string]time.Time{}
	}
	if a.had[id].IsZero() {
		a.had[id] = a.now()
	}
}

// ageWithin reports whether a job was asked for at most some time ago. The clock of the master that was asked may be ahead.
func (a *approvals) ageWithin(d *approvalRecord, most time.Duration) bool {
	return a.now().Sub(time.Unix(d.Asked, 0)).Abs() <= most
}

func readApproval(r shared.Record) (d approvalRecord, ok bool) {
	return d, r.Kind == kindApproval && json.Unmarshal(r.Data, &d) == nil
}

// orderOf returns the job of a record; nil if it cannot be read.
func (d *approvalRecord) orderOf() (o *order, chunk *value.Dict) {
	v, err := pyjson.Load(string(d.Chunk))
	chunk, _ = v.(*value.Dict)
	if err != nil || chunk == nil {
		return nil, nil
	}
	var low wire.Low
	wire.View(chunk, &low)
	o = &order{}
	o.Tgt, o.TgtType, o.Fun = low.Tgt, low.TgtType, low.Fun
	args := &value.List{Items: slices.Clone(value.Items(low.Arg))}
	if text, ok := low.Arg.(string); ok {
		args.Append(text)
	}
	if kw, ok := low.Kwarg.(*value.Dict); ok && kw.Len() > 0 {
		kw = kw.Clone()
		kw.Set("__kwarg__", true)
		args.Append(kw)
	}
	o.Arg = args
	return o, chunk
}

// keep keeps a job that needs approval.
func (a *approvals) keep(who *caller, in *wire.Approval) (*value.Dict, error) {
	chunk := value.NewDict(len(approvalKeys))
	for _, k := range approvalKeys {
		if v := in.Chunk.At(k); v != nil {
			chunk.Set(k, v)
		}
	}
	text, err := pyjson.Dump(chunk, pyjson.Format{ASCII: true})
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the job cannot be kept: %w", err)
	}
	d := approvalRecord{Chunk: json.RawMessage(text), From: cut(in.From), Asked: a.now().Unix(), State: approvalWaiting,
		Home: a.store.By()}
	o, _ := d.orderOf()
	minions, _, err := a.access.targets.resolve(o.targetType(), o.Tgt, "")
	if err != nil || !a.access.mayPublish(who, o) {
		return nil, salt.Errorf(salt.Denied, "the user may not start this job")
	}
	d.Reason = fmt.Sprintf("this job is for %d minions", len(minions))
	if !approvalID(in.ID) {
		return nil, salt.Errorf(salt.Invalid, "the id of an approval has 40 hexadecimal digits")
	}
	all, err := a.store.All()
	if err != nil {
		return nil, err
	}
	total, own := 0, 0
	for _, r := range all {
		if r.Kind != kindApproval {
			continue
		}
		if total++; r.Owner == who.name {
			own++
		}
		if r.Name == in.ID {
			return nil, salt.Errorf(salt.Invalid, "the id of the approval is in use")
		}
	}
	if total >= maxApprovals || own >= maxApprovalsOfOne {
		return nil, salt.Errorf(salt.Invalid, "too many jobs wait for approval")
	}
	return a.put(who.name, who.name, in.ID, &d)
}

// approvalID reports whether an id has the form that a salt-api gives it.
func approvalID(id string) bool {
	return len(id) == 40 && strings.Trim(id, "0123456789abcdef") == ""
}

// find returns the record of an approval, nil if there is none.
func (a *approvals) find(id string) (owner string, d *approvalRecord, err error) {
	all, err := a.store.All()
	for _, r := range all {
		if r.Kind == kindApproval && r.Name == id {
			if d, ok := readApproval(r); ok {
				return r.Owner, &d, nil
			}
		}
	}
	return "", nil, err
}

func (a *approvals) put(user, owner, id string, d *approvalRecord) (*value.Dict, error) {
	b, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	r, err := a.store.Put(shared.Record{Kind: kindApproval, Owner: owner, Name: id, Data: b, Rank: approvalRanks[d.State]})
	if err != nil {
		return nil, err
	}
	a.noteHad(r.ID)
	return d.show(user, owner, id), nil
}

// show describes an approval as the API does.
func (d *approvalRecord) show(user, owner, id string) *value.Dict {
	state := d.State
	if state == approvalGranted {
		state = approvalUsed
	}
	out := value.DictOf("id", id, "user", owner, "from", orNil(d.From), "reason", d.Reason, "asked", float64(d.Asked),
		"expire", float64(d.Asked)+approvalTime.Seconds(), "state", state, "own", owner == user, "by", orNil(d.By), "jid", orNil(d.JID),
		"problem", orNil(d.Problem), "granted", d.State == approvalGranted)
	if _, chunk := d.orderOf(); chunk != nil {
		for _, k := range approvalKeys {
			if v, ok := chunk.Get(k); ok {
				out.Set(k, v)
			}
		}
	}
	return out
}

// waits reports whether a job still waits.
func (a *approvals) waits(d *approvalRecord) bool {
	return d.State == approvalWaiting && a.ageWithin(d, approvalTime)
}

// list returns the jobs that a user may see: its own, and those that it may start.
func (a *approvals) list(who *caller) (*value.Dict, error) {
	if a.want != nil {
		a.want()
	}
	all, err := a.store.All()
	if err != nil {
		return nil, err
	}
	rows := &value.List{}
	for _, r := range all {
		d, ok := readApproval(r)
		if !ok {
			continue
		}
		if o, _ := d.orderOf(); o == nil || r.Owner != who.name && !a.access.mayPublish(who, o) {
			continue
		}
		if d.State == approvalWaiting && !a.waits(&d) {
			d.State = "expired"
		}
		rows.Append(d.show(who.name, r.Owner, r.Name))
	}
	for _, f := range a.table.others(all) {
		if a.mayDecide(who, f) {
			if f.d.State == approvalWaiting && !a.waits(f.d) {
				f.d.State = "expired"
			}
			rows.Append(f.d.show(who.name, f.owner, f.id))
		}
	}
	return value.DictOf("approvals", rows), nil
}

// asked is a job that a user asked for.
type asked struct {
	id, owner string
	d         *approvalRecord
	// elsewhere says that only the console_store has the job. minions are its minions, as its home knows them.
	elsewhere bool
	minions   []string
}

// decide approves a job of another user, or rejects it. If the console_store has the job, the decision counts that is first there. Otherwise the
// master whose salt-api has the job decides, if it can be reached. Of an approval and a rejection at the same time one is refused, and a job that
// has started is not rejected.
func (a *approvals) decide(who *caller, id, state string) (*value.Dict, error) {
	a.mu.Lock()
	f, err := a.decidable(who, id, state)
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if a.inTable(f) {
		return a.decideInTable(who.name, f, state)
	}
	if a.ask != nil && f.d.Home != "" && f.d.Home != a.store.By() {
		answer, err := a.ask(f.d.Home, wire.ApprovalDecision{ID: id, State: state, By: who.name})
		var in wire.ApprovalDecided
		wire.View(answer, &in)
		if err == nil && in.Refused != "" {
			return nil, salt.Errorf(salt.Invalid, "%.200s", in.Refused)
		}
		if err == nil && in.Known { // the record comes from there, too
			f.d.State, f.d.By = state, who.name
			return f.d.show(who.name, f.owner, id), a.note(f.owner, id, f.d)
		}
	}
	a.mu.Lock()
	if f, err = a.decidable(who, id, state); err == nil && !a.inTable(f) {
		defer a.mu.Unlock()
		f.d.State, f.d.By = state, who.name
		return a.put(who.name, f.owner, id, f.d)
	}
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return a.decideInTable(who.name, f, state)
}

// mayDecide reports whether a user may see a job, and decide on it: its own, and those that it may start.
func (a *approvals) mayDecide(who *caller, f *asked) bool {
	o, _ := f.d.orderOf()
	switch {
	case o == nil:
		return false
	case f.owner == who.name:
		return true
	case !f.elsewhere:
		return a.access.mayPublish(who, o)
	}
	return a.access.mayPublishTo(who, o, func() ([]string, error) {
		if len(f.minions) == 0 {
			return nil, salt.Errorf(salt.NotFound, "the minions of the job are unknown")
		}
		return f.minions, nil
	})
}

// note records a decision of another master, unless a later state has come from there meanwhile.
func (a *approvals) note(owner, id string, d *approvalRecord) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, now, err := a.find(id)
	if err != nil || now == nil || !a.waits(now) {
		return err
	}
	_, err = a.put("", owner, id, d)
	return err
}

// decidable returns a job on which a user may decide.
func (a *approvals) decidable(who *caller, id, state string) (*asked, error) {
	owner, d, err := a.find(id)
	if err != nil {
		return nil, err
	}
	f := &asked{id: id, owner: owner, d: d}
	if d == nil {
		f = a.table.find(id)
	}
	switch {
	case f == nil || !a.mayDecide(who, f):
		return nil, salt.Errorf(salt.NotFound, "there is no such job, or you may not run its function on its minions")
	case !a.waits(f.d):
		return nil, salt.Errorf(salt.Invalid, "this job no longer waits: it is %.20s", f.d.State)
	case state == approvalGranted && salt.SamePerson(f.owner, who.name):
		return nil, salt.Errorf(salt.Invalid, "a user cannot approve its own job")
	}
	return f, nil
}

// askApproval is the query with which a master asks another one to decide, askApprovalTime how long it waits.
const (
	askApproval     = "approval"
	askApprovalTime = 5 * time.Second
)

// askMember returns how to ask a member of a cluster to decide.
func askMember(ctx func() context.Context, c *cluster.Cluster) func(string, wire.ApprovalDecision) (*value.Dict, error) {
	return func(master string, in wire.ApprovalDecision) (*value.Dict, error) {
		within, cancel := context.WithTimeout(ctx(), askApprovalTime)
		defer cancel()
		return c.Queries.AskOne(within, master, askApproval, wire.Encode(in))
	}
}

// decideHere answers another master, which has checked that its user may decide: it records the decision if the job still waits.
func (a *approvals) decideHere(arg *value.Dict) *value.Dict {
	var in wire.ApprovalDecision
	wire.View(arg, &in)
	a.mu.Lock()
	owner, d, err := a.find(in.ID)
	known := err == nil && d != nil && d.Home == a.store.By() && a.waits(d) && (in.State == approvalGranted || in.State == approvalRejected)
	if f := (&asked{id: in.ID, owner: owner, d: d}); known && a.inTable(f) {
		a.mu.Unlock()
		refused := ""
		if _, err := a.decideInTable(cut(in.By), f, in.State); err != nil {
			refused = err.Error()
		}
		return wire.Encode(wire.ApprovalDecided{Known: true, Refused: refused})
	}
	defer a.mu.Unlock()
	switch {
	case err != nil || d == nil || d.Home != a.store.By() || in.State != approvalGranted && in.State != approvalRejected:
		return wire.Encode(wire.ApprovalDecided{})
	case !a.waits(d):
		return wire.Encode(wire.ApprovalDecided{Known: true, Refused: "this job no longer waits: it is " + d.State})
	}
	d.State, d.By = in.State, cut(in.By)
	if _, err := a.put(in.By, owner, in.ID, d); err != nil {
		return wire.Encode(wire.ApprovalDecided{Known: true, Refused: "the master of the job cannot record the decision: " + err.Error()})
	}
	return wire.Encode(wire.ApprovalDecided{Known: true})
}

// done records what became of a job; only its user's salt-api knows.
func (a *approvals) done(who *caller, in *wire.Approval) (*value.Dict, error) {
	owner, d, err := a.find(in.ID)
	if err != nil {
		return nil, err
	}
	if d == nil || owner != who.name || !slices.Contains(approvalEnds, in.State) {
		return nil, salt.Errorf(salt.NotFound, "there is no such job of yours, or it cannot be %.20s", in.State)
	}
	if in.By != "" && d.By == "" {
		d.By = cut(in.By)
	}
	d.State, d.JID, d.Problem = in.State, cut(in.JID), cut(in.Problem)
	return a.put(who.name, owner, in.ID, d)
}

// use returns who approved a job that a user starts, and marks the approval as used: it is good for one job, of which
// a batch has parts with the same id. Only the master that was asked for the job accepts it, so that it is used once
// although masters learn of each other's changes later.
func (a *approvals) use(who *caller, id string, o *order, minions []string) (by string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	owner, d, err := a.find(id)
	if err != nil {
		return "", err
	}
	unfit := salt.Errorf(salt.Denied, "the approval is not for this job, or was used already")
	if d == nil || owner != who.name || !a.ageWithin(d, approvalKept) {
		return "", unfit
	}
	if d.Home != "" && d.Home != a.store.By() {
		return "", salt.Errorf(salt.Denied, "the approval is for a job that waits at the salt-api of %s, which starts it", d.Home)
	}
	if d.By == "" || salt.SamePerson(d.By, owner) {
		return "", unfit
	}
	first, next := d.State == approvalGranted, d.State == approvalUsed && d.JID != "" && d.JID == o.JID
	asked, chunk := d.orderOf()
	var low wire.Low
	wire.View(chunk, &low)
	if !first && !next || asked == nil || !a.same(asked, o, low.Batch != nil) {
		return "", unfit
	}
	all, _, err := a.access.targets.resolve(asked.targetType(), asked.Tgt, "")
	if err != nil {
		return "", unfit
	}
	within := make(map[string]bool, len(all))
	for _, m := range all {
		within[m] = true
	}
	if slices.ContainsFunc(minions, func(m string) bool { return !within[m] }) {
		return "", unfit
	}
	if d.State, d.JID = approvalUsed, o.JID; first {
		if _, err := a.put(owner, owner, id, d); err != nil {
			return "", err
		}
	}
	return d.By, nil
}

// same reports whether a job calls what was approved. A batch first looks for its minions.
func (a *approvals) same(asked, o *order, batch bool) bool {
	if batch && o.fun() == "test.ping" {
		return true
	}
	want, ok := callsOf(asked)
	got, good := callsOf(o)
	if !ok || !good || len(want) != len(got) {
		return false
	}
	for i, w := range want {
		if w.Fun != got[i].Fun || !value.Equal(value.ListOf(w.Args...), value.ListOf(got[i].Args...)) || !value.Equal(w.Kwargs, got[i].Kwargs) {
			return false
		}
	}
	return true
}

// approvalTable has the jobs that wait for a second user at all masters with one console_store. A job starts at its home alone, the master that was
// asked for it, and the first decision that the server records counts. While the server is unreachable, only jobs can be decided that it
// never had. A nil *approvalTable has none.
type approvalTable struct {
	db      *consoledb.Store
	proofs  approvalProofs
	timeout time.Duration
	log     *ratelimit.Log

	mu       sync.Mutex
	versions map[string]int64 // of the rows
	rows     map[string]consoledb.Approval
}

// approvalTableTime bounds a decision in the table.
const approvalTableTime = 5 * time.Second

// refuse logs that a row is not that of a master.
func (t *approvalTable) refuse(row consoledb.Approval) {
	t.log.Log(slog.LevelWarn, "ignoring a job or a decision in the console_store: no master with the key of this one has written it; "+
		"masters with different keys need the same console_store_secret", "id", cut(row.ID), "home", cut(row.Home), "state", cut(row.State), "by", cut(row.By))
}

// inTable reports whether the decision on a job counts only if the console_store has it.
func (a *approvals) inTable(f *asked) bool { return a.table != nil && (f.elsewhere || f.d.Shared) }

// find returns a job of another master; nil if there is none.
func (t *approvalTable) find(id string) *asked {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	row, ok := t.rows[id]
	t.mu.Unlock()
	if !ok {
		return nil
	}
	return t.read(row)
}

// read reads a row that a master has written; nil for others.
func (t *approvalTable) read(row consoledb.Approval) *asked {
	if !t.proofs.proves(row) {
		t.refuse(row)
		return nil
	}
	return readAsked(row)
}

// readAsked reads a row. The row is not trusted to be well formed.
func readAsked(row consoledb.Approval) *asked {
	f := &asked{id: row.ID, owner: row.Owner, elsewhere: true, d: &approvalRecord{}}
	if !approvalID(row.ID) || row.Owner == "" || json.Unmarshal([]byte(row.Record), f.d) != nil {
		return nil
	}
	if _, ok := approvalRanks[row.State]; !ok || f.d.Home != row.Home {
		return nil
	}
	f.d.State = row.State
	if row.By != "" {
		f.d.By = cut(row.By)
	}
	f.d.Reason, f.d.From, f.d.JID, f.d.Problem = cut(f.d.Reason), cut(f.d.From), cut(f.d.JID), cut(f.d.Problem)
	if row.Minions != "" && json.Unmarshal([]byte(row.Minions), &f.minions) != nil {
		f.minions = nil
	}
	return f
}

// others returns the jobs that are not among the records of this master.
func (t *approvalTable) others(own []shared.Record) (out []*asked) {
	if t == nil {
		return nil
	}
	here := map[string]bool{}
	for _, r := range own {
		if r.Kind == kindApproval {
			here[r.Name] = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, row := range t.rows {
		if here[id] {
			continue
		}
		if f := t.read(row); f != nil {
			out = append(out, f)
		}
	}
	return out
}

// rowOf returns the row of a job at its home. minions are those of the row that is stored; "" if none is.
func (a *approvals) rowOf(f *asked, minions string) (consoledb.Approval, error) {
	if minions == "" {
		minions = a.minionsOf(f)
	}
	text, err := json.Marshal(f.d)
	row := consoledb.Approval{ID: f.id, Home: f.d.Home, Owner: f.owner, State: f.d.State, By: f.d.By, Minions: minions, Record: string(text)}
	row.Proof = a.table.proofs.of(row)
	return row, err
}

// stored returns the row of a job that was last read from the server, if a master has written it.
func (t *approvalTable) stored(id string) (row consoledb.Approval, ok bool) {
	t.mu.Lock()
	row, ok = t.rows[id]
	t.mu.Unlock()
	return row, ok && t.proofs.proves(row)
}

// decideInTable records a decision at the server, and then here. Without an answer of the server the job waits further, or the decision
// arrives with the next exchange.
func (a *approvals) decideInTable(by string, f *asked, state string) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(context.Background(), approvalTableTime)
	defer cancel()
	var err error
	row, known := a.table.stored(f.id)
	if f.d.Home == a.store.By() { // the server may have lost it
		if !known {
			row, err = a.rowOf(f, "")
		}
		if err == nil {
			err = a.table.db.AddApproval(ctx, row)
		}
	} else if !known {
		return nil, salt.Errorf(salt.Unavailable, "the decision is not recorded, and the job waits further: its row in the console_store has changed; try again")
	}
	done := false
	if err == nil {
		before := row.Proof
		row.State, row.By = state, by
		row.Proof = a.table.proofs.of(row)
		done, err = a.table.db.DecideApproval(ctx, row, before)
	}
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "the decision is not recorded, and the job waits further, unless the list soon shows otherwise: the console_store "+
			"does not answer: %w", err)
	}
	if !done {
		return nil, salt.Errorf(salt.Invalid, "this job no longer waits: another decision was recorded first, or its time is over")
	}
	f.d.State, f.d.By = state, by
	if !f.elsewhere {
		if err := a.note(f.owner, f.id, f.d); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "the decision is recorded in the console_store, and this master takes it from there: %w", err)
		}
		return f.d.show(by, f.owner, f.id), nil
	}
	a.table.mu.Lock()
	defer a.table.mu.Unlock()
	if now, ok := a.table.rows[f.id]; ok && now.State == approvalWaiting {
		a.table.rows[f.id] = row
	}
	return f.d.show(by, f.owner, f.id), nil
}
