package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/acl"
	"brine/internal/py/value"
)

// v1 serves the paths below /v1: what the console shows, for programs. Unlike the paths of
// the console, they do not change. Responses are the data itself, as JSON or YAML. The
// permissions are those of the runners and wheel functions that the paths call.
type v1 struct {
	log      *slog.Logger
	master   Master
	sessions *sessions
	lookups  *lookups
	low      *lowData
	approval *approvals
	batches  atomic.Int64 // running
}

// reading is a path that returns the result of a runner.
type reading struct {
	about string
	// runners are called for the path itself, with one further segment, and so on. The values of the
	// segments are the arguments segments.
	runners, segments []string
	// allows are the arguments that the first runner reads from the query.
	allows []string
	// below are those that the runner for one segment reads.
	below []string
	// switched are runners that are called for a path with one segment if the query has their parameter.
	switched map[string]string
}

// readings are the paths that return the result of a runner.
var readings = map[string]reading{
	"/v1/topology": {about: "The masters, and which of them command each minion.", runners: []string{"fleet.topology"}, allows: []string{"since"}},
	"/v1/minions": {about: "The accepted minions with their states and masters, and counts; or one with its grains.",
		runners: []string{"fleet.minions", "fleet.minion"}, segments: []string{"id"},
		allows: []string{"search", "state", "master", "version", "severity", "tgt", "tgt_type", "offset", "limit"}},
	"/v1/states": {about: "The states that failed, drifted or changed something in the last runs; or one change with its minions.",
		runners: []string{"fleet.states", "fleet.change"}, segments: []string{"change"},
		allows: []string{"outcome", "search", "minion", "tgt", "tgt_type", "offset", "limit"}},
	"/v1/history": {about: "The number of runs of states on each day by outcome; the runs of one day; or those of one minion.",
		runners: []string{"fleet.history", "fleet.runs"}, segments: []string{"id"}, allows: []string{"days", "day", "outcome", "after", "limit"},
		below: []string{"outcome", "after", "limit"}},
	"/v1/mine": {about: "The mine data of a minion.", runners: []string{"", "fleet.mine"}, segments: []string{"id"}},
	"/v1/moves": {about: "The last change of its master of each minion, the newest first.", runners: []string{"fleet.moves"},
		allows: []string{"all", "offset", "limit"}},
	"/v1/preview": {about: "The minions that a target selects.", runners: []string{"fleet.preview"}, allows: []string{"tgt", "tgt_type"}},
	"/v1/functions": {about: "The functions of minions; or one with its documentation.",
		runners: []string{"fleet.functions", "fleet.functions"}, segments: []string{"name"}, allows: []string{"kind"}, below: []string{"kind"}},
	"/v1/jobs": {about: "The newest jobs; one with its results, groups of equal returns and counts per state; or one return.",
		runners: []string{"fleet.jobs", "fleet.job", "fleet.result"}, segments: []string{"jid", "id"},
		allows: []string{"fun", "user", "minion", "before", "limit", "all"}, switched: map[string]string{"against": "fleet.compare"}},
	"/v1/files": {about: "The files that the master serves: environments, paths and hashes, or the content of one.", runners: []string{"fleet.files"},
		allows: []string{"saltenv", "path", "search", "offset", "limit"}},
	"/v1/schedules": {about: "Schedules of minions as far as the master knows them; and running an entry now.", runners: []string{"fleet.schedules"},
		allows: []string{"minion", "search", "offset", "limit"}},
	"/v1/store": {about: "What stores history on the master: driver, size, number of jobs, days kept, errors.", runners: []string{"fleet.store"}},
	"/v1/saved": {about: "Targets, jobs and views that users saved; and saving and removing one.", runners: []string{"saved.list"}, allows: []string{"kind"}},
	"/v1/can": {about: "Whether a user may call a function, and which entries allow it.", runners: []string{"auth.can"},
		allows: []string{"user", "fun", "tgt", "tgt_type", "form", "eauth", "groups", "arg"}},
	"/v1/permissions": {about: "The permissions that external_auth and publisher_acl give, by user and group.", runners: []string{"auth.permissions"}},
	"/v1/roles":       {about: "The roles of permission_roles, who has them and what they do not include.", runners: []string{"auth.roles"}},
	"/v1/audit": {about: "The newest requests of users to this master, or to all masters of its cluster or of hot_masters.", runners: []string{"audit.list"},
		allows: []string{"user", "fun", "result", "limit", "here"}},
	"/v1/chain": {about: "Whether audit records were changed, removed or inserted, by master.", runners: []string{"audit.verify"}, allows: []string{"here"}},
}

// resources returns the rows of the table of resources.
func (v *v1) resources(events handler) map[string]*resource {
	const get, post, remove = http.MethodGet, http.MethodPost, http.MethodDelete
	t := map[string]*resource{
		"/v1/keys": {about: "The keys of minions by state; and accepting, rejecting and deleting them.", allow: getPost,
			do: map[string]handler{get: v.keys, post: v.decide}},
		"/v1/sessions": {about: "Sessions of this server; and ending one.", below: 1, allow: []string{"GET", "HEAD", "DELETE"},
			do: map[string]handler{get: v.listSessions, remove: v.endSession}},
		"/v1/approvals": {about: "Jobs that wait for a second user; and approving and rejecting one.", below: 1, allow: []string{"GET", "HEAD", "POST", "DELETE"},
			do: map[string]handler{get: v.approval.show, post: v.approval.approve, remove: v.approval.reject}},
		"/v1/events": {about: "The event bus as server-sent events, with ids to resume from.", allow: getOnly, raw: true, stream: true,
			do: map[string]handler{get: events}},
	}
	for path, r := range readings {
		t[path] = &resource{about: r.about, allow: getOnly, below: len(r.segments), do: map[string]handler{get: v.read(r)}}
	}
	t["/v1/jobs"].allow, t["/v1/jobs"].do[post] = getPost, v.startJob
	t["/v1/schedules"].allow = getPost
	t["/v1/schedules"].do[post] = v.runScheduled
	t["/v1/saved"].below, t["/v1/saved"].allow = 1, []string{"GET", "HEAD", "POST", "DELETE"}
	t["/v1/saved"].do[post], t["/v1/saved"].do[remove] = v.save, v.removeSaved
	t["/v1/pillar"] = &resource{about: "The compiled pillar of a minion.", allow: getOnly, below: 1, do: map[string]handler{get: v.pillar}}
	for _, r := range t {
		r.session, r.auth, r.addresses, r.plainErrors = true, true, true, true
		for method, do := range r.do {
			r.do[method] = v.forbidding(do)
		}
	}
	return t
}

// forbidding returns a handler that answers 403 instead of 401 if the session is valid: another
// login would not help.
func (v *v1) forbidding(do handler) handler {
	return func(c *call) (any, error) {
		out, err := do(c)
		if err == nil || salt.KindOf(err) != salt.Denied {
			return out, err
		}
		if t, e := v.master.Token(c.r.Context(), c.of.Token); e == nil && t != nil {
			return nil, &failure{http.StatusForbidden, err.Error()}
		}
		return nil, err
	}
}

// read returns the handler of a reading.
func (v *v1) read(r reading) handler {
	return func(c *call) (any, error) {
		args := value.NewDict(4)
		if len(c.rest) >= len(r.runners) {
			return nil, &failure{http.StatusMethodNotAllowed, "this can be deleted; the list is at the path above"}
		}
		for i, segment := range c.rest {
			args.Set(r.segments[i], segment)
		}
		var allowed []string
		runner := r.runners[len(c.rest)]
		if runner == "" {
			return nil, &failure{http.StatusNotFound, "this path needs the " + r.segments[0] + " of a minion behind it"}
		}
		switch len(c.rest) {
		case 0:
			allowed = r.allows
		case 1:
			allowed = slices.Clone(r.below)
			for name, fun := range r.switched {
				if allowed = append(allowed, name); c.r.URL.Query().Has(name) {
					runner = fun
				}
			}
		}
		for name, values := range c.r.URL.Query() {
			if !slices.Contains(allowed, name) {
				known := "has no parameters"
				if len(allowed) > 0 {
					known = "has " + strings.Join(allowed, ", ")
				}
				return nil, &failure{http.StatusBadRequest, fmt.Sprintf("unknown parameter %.40q: this path %s", name, known)}
			}
			if name == "arg" {
				args.Set(name, value.Strings(values))
				continue
			}
			args.Set(name, values[len(values)-1])
		}
		return v.lookups.look(c, runner, args)
	}
}

const (
	// batchWait is how long the start of a batch waits for an error.
	batchWait = 2 * time.Second
	// maxBatches bounds the running batches.
	maxBatches = 64
)

// startJob starts a job, also in batches, which continue after the response: {"tgt", "tgt_type", "fun", "arg", "kwarg", "batch",
// "timeout"}. The response has the job id, or the approval that the job waits for.
func (v *v1) startJob(c *call) (any, error) {
	in, ok := c.body.data.(*value.Dict)
	if !ok || len(c.rest) > 0 {
		return nil, &failure{http.StatusBadRequest, "the body must be a map with tgt and fun"}
	}
	chunk := value.DictOf("client", "local_async", "token", c.of.Token)
	for k, x := range in.All() {
		name := value.Str(k)
		if !slices.Contains([]string{"tgt", "tgt_type", "fun", "arg", "kwarg", "batch", "timeout"}, name) {
			return nil, &failure{http.StatusBadRequest, fmt.Sprintf("unknown key %.40q: a job has tgt, tgt_type, fun, arg, kwarg, batch and timeout", name)}
		}
		chunk.Set(name, x)
	}
	if !in.Has("batch") {
		out, err := v.low.one(c, chunk)
		if err != nil {
			return nil, err
		}
		d, _ := firstOf(out).(*value.Dict)
		if d.Str("jid") == "" && !d.Has("approval") {
			return nil, &failure{http.StatusNotFound, "no minion matches the target"}
		}
		return d, nil
	}
	if !c.allows("local_batch") {
		return nil, salt.Errorf(salt.Invalid, "Client disabled: 'local_batch'. Add to 'netapi_enable_clients' master config option to enable.")
	}
	jid := salt.NewJID(time.Now())
	chunk.Set("client", "local_batch")
	chunk.Set("jid", jid)
	if v.batches.Add(1) > maxBatches {
		v.batches.Add(-1)
		return nil, &failure{http.StatusTooManyRequests, "too many batches run: try again when one has ended"}
	}
	done := make(chan error, 1)
	ctx := context.WithoutCancel(c.r.Context()) // a batch lasts as long as its minions need
	go func() {
		defer v.batches.Add(-1)
		_, err := v.master.Low(ctx, chunk)
		done <- err
	}()
	select {
	case err := <-done:
		v.low.audit(c, chunk, err)
		if needs(err) {
			return v.approval.add(c, chunk, err)
		}
		return value.DictOf("jid", jid), err
	case <-time.After(batchWait):
		v.low.audit(c, chunk, nil)
		return value.DictOf("jid", jid), nil
	}
}

// pillar returns the compiled pillar of a minion. The master records the request in its audit log.
func (v *v1) pillar(c *call) (any, error) {
	if len(c.r.URL.Query()) > 0 {
		return nil, &failure{http.StatusBadRequest, "this path has no parameters"}
	}
	id := c.part()
	if salt.CheckID(id) != nil {
		return nil, &failure{http.StatusNotFound, "the path is /v1/pillar/MINION, with the id of an accepted minion"}
	}
	// An unknown minion would get a pillar made without its grains.
	if _, err := v.lookups.look(c, "fleet.minion", value.DictOf("id", id)); err != nil {
		return nil, err
	}
	pillar, err := v.lookups.look(c, "pillar.show_pillar", value.DictOf("minion", id))
	if err != nil {
		return nil, err
	}
	return value.DictOf("id", id, "pillar", pillar), nil
}

// runScheduled runs an entry of a minion's schedule now: {"minion", "name"}. It is a job of schedule.run_job, whose
// permission it needs.
func (v *v1) runScheduled(c *call) (any, error) {
	in, _ := c.body.data.(*value.Dict)
	id, name := in.Str("minion"), in.Str("name")
	if salt.CheckID(id) != nil || name == "" {
		return nil, &failure{http.StatusBadRequest, `the body must be a map with "minion", the id of a minion, and "name", an entry of its schedule`}
	}
	out, err := v.low.all(c, bySession(c, []*value.Dict{value.DictOf("client", "local_async", "tgt", value.ListOf(id), "tgt_type", "list",
		"fun", "schedule.run_job", "kwarg", value.DictOf("name", name))}, ""))
	if err != nil {
		return nil, err
	}
	d, _ := out[0].(*value.Dict)
	if d.Str("jid") == "" {
		return nil, &failure{http.StatusNotFound, "there is no accepted minion " + id}
	}
	c.status = http.StatusAccepted
	return value.DictOf("jid", d.Str("jid"), "minion", id, "name", name), nil
}

// wheel calls a wheel function with the session's token.
func (v *v1) wheel(c *call, fun string, kwargs *value.Dict) (*value.Dict, error) {
	out, err := v.low.all(c, bySession(c, []*value.Dict{value.DictOf("client", acl.Wheel, "fun", fun, "kwarg", kwargs)}, ""))
	if err != nil {
		return nil, err
	}
	ret, err := wheelReturn(out)
	d, ok := ret.(*value.Dict)
	if err == nil && !ok {
		err = salt.Errorf(salt.Internal, "%s returned %.100s", fun, value.Repr(ret))
	}
	return d, err
}

// keyStates are the states of keys by the names of Salt's lists.
var keyStates = map[string]string{"minions": "accepted", "minions_pre": "pending", "minions_rejected": "rejected", "minions_denied": "denied"}

// keyLists are the names of these lists, in the order in which Salt shows them.
var keyLists = []string{"minions", "minions_pre", "minions_rejected", "minions_denied"}

// keys returns the ids of keys by state, and their fingerprints with the parameter fingerprints=true.
func (v *v1) keys(c *call) (any, error) {
	q := c.r.URL.Query()
	for name := range q {
		if name != "fingerprints" {
			return nil, &failure{http.StatusBadRequest, fmt.Sprintf("unknown parameter %.40q: this path has fingerprints", name)}
		}
	}
	all, err := v.wheel(c, "key.list_all", value.NewDict(0))
	if err != nil {
		return nil, err
	}
	var fingers *value.Dict
	if q.Get("fingerprints") == "true" {
		if fingers, err = v.wheel(c, "key.finger", value.DictOf("match", "*")); err != nil {
			return nil, err
		}
	}
	others, err := v.keysElsewhere(c)
	if err != nil {
		return nil, err
	}
	if len(others.masters) > 0 && fingers == nil {
		if fingers, err = v.wheel(c, "key.finger", value.DictOf("match", "*")); err != nil {
			return nil, err
		}
	}
	rows, counts := &value.List{}, value.NewDict(len(keyLists))
	here := map[string]bool{}
	for _, list := range keyLists {
		ids := all.List(list)
		counts.Set(keyStates[list], int64(len(ids)))
		for _, id := range ids {
			d := value.DictOf("id", id, "state", keyStates[list])
			if f := fingers.Dict(list).At(id); f != nil {
				d.Set("fingerprint", f)
			}
			others.compare(d, value.Str(id), keyStates[list], fingers.Dict(list).Str(value.Str(id)))
			here[value.Str(id)] = true
			rows.Append(d)
		}
	}
	for _, id := range others.ids() {
		if !here[id] {
			d := value.DictOf("id", id, "state", nil)
			others.compare(d, id, "", "")
			rows.Append(d)
		}
	}
	out := value.DictOf("keys", rows, "counts", counts)
	if problems := others.problems(); problems.Len() > 0 {
		out.Set("problems", problems)
	}
	return out, nil
}

// keyActions are the wheel functions of the actions on keys, the lists to which they apply, and
// further arguments.
var keyActions = map[string]struct {
	fun   string
	lists []string
	more  string
	after string // the state of a key afterwards; "" if it is deleted
}{
	"accept": {"key.accept_dict", []string{"minions_pre", "minions_rejected"}, "include_rejected", "accepted"},
	"reject": {"key.reject_dict", []string{"minions_pre", "minions"}, "include_accepted", "rejected"},
	"delete": {"key.delete_dict", keyLists, "", ""},
}

// maxDecided bounds the keys of one request.
const maxDecided = 10000

// decide accepts, rejects or deletes keys: {"action", "ids", "fingerprints": {ID: FINGERPRINT}}. A key with another
// fingerprint is left as it is. The response has the state of each key afterwards, and the reason if nothing was done.
func (v *v1) decide(c *call) (any, error) {
	in, _ := c.body.data.(*value.Dict)
	action, ok := keyActions[in.Str("action")]
	if !ok {
		return nil, &failure{http.StatusBadRequest, `the body must be a map with "action": accept, reject or delete`}
	}
	ids, isList := in.At("ids").(*value.List)
	if !isList || ids.Len() == 0 || ids.Len() > maxDecided {
		return nil, &failure{http.StatusBadRequest, fmt.Sprintf(`"ids" must be a list of 1 to %d ids of minions`, maxDecided)}
	}
	expected, isDict := in.At("fingerprints").(*value.Dict)
	if in.Has("fingerprints") && !isDict {
		return nil, &failure{http.StatusBadRequest, `"fingerprints" must be a map of ids to fingerprints`}
	}
	before, err := v.wheel(c, "key.list_all", value.NewDict(0))
	if err != nil {
		return nil, err
	}
	others, err := v.keysElsewhere(c)
	if err != nil {
		return nil, err
	}
	var fingers *value.Dict
	if expected.Len() > 0 || len(others.masters) > 0 {
		if fingers, err = v.wheel(c, "key.finger", value.DictOf("match", "*")); err != nil {
			return nil, err
		}
	}
	states := stateOfKeys(before)
	reasons, match := map[string]string{}, value.NewDict(len(action.lists))
	for _, x := range ids.Items {
		id, isText := x.(string)
		if !isText || salt.CheckID(id) != nil {
			return nil, &failure{http.StatusBadRequest, fmt.Sprintf("%.80s is not the id of a minion", value.Repr(x))}
		}
		if len(states[id]) == 0 {
			reasons[id] = "there is no key of this minion"
			continue
		}
		applies := false
		for _, list := range states[id] {
			if !slices.Contains(action.lists, list) {
				continue
			}
			if want := expected.Str(id); want != "" && fingers.Dict(list).Str(id) != want {
				reasons[id] = otherFingerprint
				continue
			}
			applies = true
			match.Set(list, value.ListOf(append(match.List(list), id)...))
		}
		if !applies && reasons[id] == "" {
			reasons[id] = "the key is " + keyStates[states[id][0]]
		}
	}
	if match.Len() > 0 {
		kwargs := value.DictOf("match", match)
		if action.more != "" {
			kwargs.Set(action.more, true)
		}
		if _, err := v.wheel(c, action.fun, kwargs); err != nil {
			return nil, err
		}
	}
	after, err := v.wheel(c, "key.list_all", value.NewDict(0))
	if err != nil {
		return nil, err
	}
	elsewhere, err := v.decideElsewhere(c, others, in.Str("action"), ids, func(id string) (string, bool) {
		finger := expected.Str(id)
		for _, list := range states[id] {
			finger = cmp.Or(finger, fingers.Dict(list).Str(id))
		}
		return finger, reasons[id] != otherFingerprint
	})
	if err != nil {
		return nil, err
	}
	now := stateOfKeys(after)
	rows, done := &value.List{}, int64(0)
	for _, x := range ids.Items {
		id := x.(string)
		state := ""
		if len(now[id]) > 0 {
			state = keyStates[now[id][0]]
		}
		d := value.DictOf("id", id, "state", orNone(state))
		why := reasons[id]
		if why == "" && state != action.after {
			why = "another decision came first"
		}
		d.Set("done", why == "")
		if why != "" {
			d.Set("reason", why)
		} else {
			done++
		}
		if len(others.masters) > 0 {
			d.Set("masters", elsewhere.of(id))
		}
		rows.Append(d)
	}
	return value.DictOf("keys", rows, "done", done), nil
}

// otherFingerprint is the reason for a key that is not the expected one.
const otherFingerprint = "the key has another fingerprint"

// stateOfKeys returns the lists that have each id.
func stateOfKeys(all *value.Dict) map[string][]string {
	out := map[string][]string{}
	for _, list := range keyLists {
		for _, id := range all.List(list) {
			out[value.Str(id)] = append(out[value.Str(id)], list)
		}
	}
	return out
}

// orNone returns nil for "".
func orNone(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// endsOthers is the runner whose permission a user needs to see and end the sessions of others: it
// can end their tokens as well.
const endsOthers = "auth.del_token"

// mayEndOthers reports whether a session's user may see and end sessions of others.
func (v *v1) mayEndOthers(c *call) (bool, error) {
	t, err := v.master.Token(c.r.Context(), c.of.Token)
	if err == nil && t == nil {
		err = &failure{http.StatusUnauthorized, textNoPermission}
	}
	return err == nil && acl.OnMaster(t.List("perms"), acl.Runner, acl.Call{Fun: endsOthers}), err
}

// listSessions returns the sessions of this server that the user may see. An id there names a
// session and does not authenticate.
func (v *v1) listSessions(c *call) (any, error) {
	if len(c.rest) > 0 {
		return nil, &failure{http.StatusMethodNotAllowed, "a session can be deleted; the list is at /v1/sessions"}
	}
	others, err := v.mayEndOthers(c)
	if err != nil {
		return nil, err
	}
	all, err := v.sessions.all()
	if err != nil {
		return nil, err
	}
	rows := &value.List{}
	for _, s := range all {
		if others || s.User == c.of.User {
			rows.Append(value.DictOf("id", s.name, "user", s.User, "from", orNone(s.From), "start", s.Start, "used", float64(s.used.Load())/1e9,
				"expire", s.Expire, "console", s.Forgery != "", "current", s.name == hashed(c.id)))
		}
	}
	return value.DictOf("sessions", rows), nil
}

// endSession ends a session and its token. Open streams of the session end at the next check of the token.
func (v *v1) endSession(c *call) (any, error) {
	name := c.part()
	others, err := v.mayEndOthers(c)
	if err != nil {
		return nil, err
	}
	all, err := v.sessions.all()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.name != name || !others && s.User != c.of.User {
			continue
		}
		if err := v.master.DropToken(c.r.Context(), s.Token); err != nil {
			return nil, err
		}
		v.sessions.end(name)
		v.log.Info("audit", "user", fmt.Sprintf("%.80s", c.of.User), "from", c.address(), "session", "ended", "of", fmt.Sprintf("%.80s", s.User))
		return value.DictOf("ended", name, "user", s.User), nil
	}
	return nil, &failure{http.StatusNotFound, "there is no session with this id, or you may not end it (runner " + endsOthers + ")"}
}
