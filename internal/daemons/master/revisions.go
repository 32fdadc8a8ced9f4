package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/ratelimit"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/catalogue/runners"
	"brine/internal/files/fileserver"
	"brine/internal/files/revision"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// revisions stores the state of file_roots and pillar_roots that the masters of a cluster
// without a shared directory agreed on, with the contents of the remembered states. The
// proposing master distributes the contents first, then records the choice (kindRevision). The
// latest choice counts. A nil *revisions is a master without a cluster, which serves its own
// directories.
type revisions struct {
	id       string // id of this master
	records  *replica.Store
	cluster  *cluster.Cluster
	settings *settings
	jobs     jobStore
	bus      *event.Bus
	ctx      func() context.Context
	log      *slog.Logger

	rateLimitedLog *ratelimit.Log

	store *revision.Store
	wake  wait.Wakeup
	// asking is held while this master proposes a state.
	asking sync.Mutex

	mu      sync.Mutex
	serving string            // id of the served revision; "" for the master's own directories
	wanted  map[string]*stage // revisions that other masters asked this one to fetch in advance, by id
	late    error             // why no file is served, or nil
}

// stage is a revision that is being fetched.
type stage struct {
	at      time.Time
	failure string // error of the last attempt
}

// kindRevision is the kind of the records of choices, kindTree the section of
// the comparison between masters that covers the directories.
const (
	kindRevision = "revision"
	kindTree     = "tree"
)

// revisionKey is the field of a job with the revision that was agreed when it
// was published.
const revisionKey = "revision"

// Queries to other masters.
const (
	askStage    = "revision"
	askContents = "contents"
)

// Limits and times of revisions.
const (
	// keptChoices is how many choices are remembered, with their contents.
	keptChoices = 20
	// stageTime is how long a revision that no master chose is kept.
	stageTime = time.Hour
	// catchUpTime is how long a starting master waits for the current choice, and
	// again for its contents.
	catchUpTime = 5 * time.Second
	// switchTime is how long the proposing master waits for the others to switch.
	switchTime  = 10 * time.Second
	contentTime = 30 * time.Second // for one answer with contents
)

// choice is one recorded choice of a revision.
type choice struct {
	ID    string // id of the revision
	How   string // sync or rollback
	Files int64
	Bytes int64
	At    time.Time
	By    string // the master
	name  string
}

// openRevisions opens the revisions in the directory own.
func openRevisions(r *revisions, own string) (*revisions, error) {
	store, err := revision.Open(filepath.Join(own, "revisions"))
	if err != nil {
		return nil, err
	}
	r.store, r.wake, r.wanted = store, wait.NewWakeup(), map[string]*stage{}
	all, err := r.choices()
	if err != nil {
		return nil, err
	}
	for _, c := range all { // the latest one whose contents are stored here
		if store.Has(c.ID) {
			r.serving = c.ID
			break
		}
	}
	r.records.OnChange(func(kind, _ string) {
		if kind == kindRevision {
			r.poke()
		}
	})
	return r, nil
}

func (r *revisions) poke() {
	r.wake.Wake()
}

// choices returns the choices, latest first.
func (r *revisions) choices() (out []choice, err error) {
	type dated struct {
		choice
		at int64
	}
	var all []dated
	err = r.records.Each(kindRevision, func(rec *replica.Record) {
		if rec.Value == nil {
			return
		}
		v, err := msgpack.Limits{Items: 64, Depth: 4}.UnmarshalTyped(rec.Value)
		d, _ := v.(*value.Dict)
		if err != nil || d == nil {
			r.log.Warn("ignoring an invalid choice of files by another master", "err", err)
			return
		}
		var chosen wire.ChosenRevision
		wire.View(d, &chosen)
		all = append(all, dated{choice{
			ID: chosen.ID, How: chosen.How, Files: chosen.Files, Bytes: chosen.Bytes, At: rec.Made(), By: rec.By, name: rec.Name,
		}, rec.At})
	})
	slices.SortFunc(all, func(a, b dated) int {
		if a.at != b.at {
			return int(max(-1, min(1, b.at-a.at)))
		}
		return strings.Compare(b.name, a.name)
	})
	for _, c := range all {
		out = append(out, c.choice)
	}
	return out, err
}

// agreed returns the current choice; its ID is "" if there is none.
func (r *revisions) agreed() (choice, error) {
	all, err := r.choices()
	if err != nil || len(all) == 0 {
		return choice{}, err
	}
	return all[0], nil
}

// current returns the id of the served revision, "" for the master's own directories.
func (r *revisions) current() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving
}

// refuses returns why no file or pillar is served, or nil.
func (r *revisions) refuses() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// apply replaces the directories in a configuration by those of the served revision.
func (r *revisions) apply(cfg Config) Config {
	id := r.current()
	if id == "" {
		return cfg
	}
	files, err := r.store.Roots(id, "file_roots")
	pillars, perr := r.store.Roots(id, "pillar_roots")
	if err = errors.Join(err, perr); err != nil {
		r.log.Error("cannot read the agreed state of the files; serving no files", "revision", id, "err", err)
		files, pillars = value.NewDict(0), value.NewDict(0)
		r.mu.Lock()
		r.late = err
		r.mu.Unlock()
	}
	cfg.Files.FileRoots, cfg.Pillar.Roots = files, pillars
	return cfg
}

// serve switches to a revision whose contents are stored here.
func (r *revisions) serve(c choice) {
	var old string
	r.settings.setRoots(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		old = r.serving
		r.serving, r.late = c.ID, nil
	})
	r.log.Info("serving the agreed state of the files", "revision", c.ID, "chosen_by", c.By, "how", c.How)
	r.bus.Fire("salt/cluster/revision", value.DictOf("revision", c.ID, "previous", orNil(old), "by", c.By, "how", c.How))
}

// shortID is a prefix of a revision's id, for messages.
func shortID(id string) string { return id[:min(len(id), 12)] }

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// run follows the choices, and fetches the revisions that other masters ask for, until ctx
// ends.
func (r *revisions) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.getWanted(ctx)
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			r.rateLimitedLog.Log(slog.LevelWarn, "cannot get the agreed state of the files; retrying", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-r.wake.C():
		case <-tick.C:
		}
	}
}

// follow serves the current choice, and fetches it first if necessary.
func (r *revisions) follow(ctx context.Context) error {
	c, err := r.agreed()
	if err != nil || c.ID == "" || c.ID == r.current() {
		return err
	}
	if !r.store.Has(c.ID) {
		if err := r.fetch(ctx, c.ID); err != nil {
			return err
		}
	}
	r.serve(c)
	return r.tidy()
}

// tidy removes revisions that are no longer needed.
func (r *revisions) tidy() error {
	all, err := r.choices()
	if err != nil {
		return err
	}
	keep := map[string]bool{r.current(): true}
	for _, c := range all[:min(len(all), keptChoices)] {
		keep[c.ID] = true
	}
	r.mu.Lock()
	for id, st := range r.wanted {
		if time.Since(st.at) < stageTime {
			keep[id] = true
		} else {
			delete(r.wanted, id)
		}
	}
	r.mu.Unlock()
	return r.store.Keep(keep)
}

// getWanted fetches the revisions that other masters asked for.
func (r *revisions) getWanted(ctx context.Context) {
	r.mu.Lock()
	var ids []string
	for id := range r.wanted {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		if r.store.Has(id) {
			continue
		}
		err := r.fetch(ctx, id)
		r.mu.Lock()
		if st := r.wanted[id]; st != nil {
			st.failure = ""
			if err != nil {
				st.failure = err.Error()
			}
		}
		r.mu.Unlock()
	}
}

// fetch fetches a revision from any master that has it.
func (r *revisions) fetch(ctx context.Context, id string) error {
	good := "" // the master that had the last part
	return r.store.Fetch(ctx, id, func(ctx context.Context, wants []revision.Want) ([][]byte, error) {
		l := &value.List{}
		for _, w := range wants {
			l.Append(value.ListOf(w.Sum, w.Offset))
		}
		peers := []string{good}
		for _, p := range r.cluster.Members() {
			if p.Up && p.ID != good {
				peers = append(peers, p.ID)
			}
		}
		var errs []error
		for _, peer := range peers {
			if peer == "" {
				continue
			}
			got, err := r.contents(ctx, peer, l)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if len(got) > 0 {
				good = peer
				return got, nil
			}
		}
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		return nil, salt.Errorf(salt.Unavailable, "no other master that can be reached has all of revision %s", id)
	})
}

// contents requests contents from one master, and returns them up to the first that it lacks.
func (r *revisions) contents(ctx context.Context, peer string, wants *value.List) (out [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, contentTime)
	defer cancel()
	d, err := r.cluster.Queries.AskOne(ctx, peer, askContents, wire.Encode(&wire.ContentsQuestion{Wants: wants}))
	if err != nil {
		return nil, err
	}
	var in wire.ContentsAnswer
	wire.View(d, &in)
	for _, it := range value.Items(in.Parts) {
		b, ok := it.([]byte)
		if !ok {
			break
		}
		out = append(out, b)
	}
	return out, nil
}

// answerContents sends contents to another master.
func (r *revisions) answerContents(arg *value.Dict) *value.Dict {
	var in wire.ContentsQuestion
	wire.View(arg, &in)
	var wants []revision.Want
	for _, it := range value.Items(in.Wants) {
		l, _ := it.(*value.List)
		if l.Len() != 2 {
			break
		}
		sum, _ := l.Items[0].(string)
		at, _ := l.Items[1].(int64)
		wants = append(wants, revision.Want{Sum: sum, Offset: at})
	}
	parts := &value.List{}
	for _, b := range r.store.Read(wants) {
		if b == nil {
			parts.Append(nil)
		} else {
			parts.Append(b)
		}
	}
	return wire.Encode(&wire.ContentsAnswer{Parts: parts})
}

// answerStage reports whether a wanted revision is stored here, and which one is served.
func (r *revisions) answerStage(arg *value.Dict) *value.Dict {
	var in wire.StageQuestion
	wire.View(arg, &in)
	out := &wire.StageAnswer{Serves: r.current(), Has: r.store.Has(in.ID)}
	if in.ID == "" || out.Has {
		return wire.Encode(out)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.wanted[in.ID]
	if st == nil && len(r.wanted) < keptChoices {
		st = &stage{}
		r.wanted[in.ID] = st
		r.poke()
	}
	if st != nil {
		st.at = time.Now()
		out.Failure = st.failure
	}
	return wire.Encode(out)
}

// catchUp makes a starting master learn and fetch the current choice before it
// serves. It does not wait for unreachable masters; if the contents do not
// arrive in time, everything but files is served.
func (r *revisions) catchUp(ctx context.Context) {
	if r == nil {
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	wait := func(until func() bool) {
		end := time.After(catchUpTime)
		for !until() {
			select {
			case <-ctx.Done():
				return
			case <-end:
				return
			case <-tick.C:
			}
		}
	}
	heard := func() bool { return r.cluster.Feeds.CaughtUp(streamRecords) }
	if wait(heard); !heard() && ctx.Err() == nil {
		r.log.Warn("some masters did not answer in time; serving this master's own files or those that other masters announced",
			"after", catchUpTime)
	}
	there := func() bool {
		c, err := r.agreed()
		return err == nil && c.ID == r.current()
	}
	wait(there)
	if there() {
		return
	}
	r.mu.Lock()
	r.late = salt.Errorf(salt.Unavailable, "this master has not got the files yet that the masters have agreed on while it was away")
	r.mu.Unlock()
	r.log.Error("the state of the files that the other masters agreed on has not arrived yet; serving no files or pillars until then")
	r.poke()
	if there() { // it arrived meanwhile
		r.mu.Lock()
		r.late = nil
		r.mu.Unlock()
	}
}

// ownTrees returns the directories of this master's configuration.
func (r *revisions) ownTrees() ([]revision.Tree, error) {
	cfg := r.settings.configured()
	var out []revision.Tree
	for _, k := range []struct {
		kind, usual string
		option      any
	}{{"file_roots", "/srv/salt", cfg.Files.FileRoots}, {"pillar_roots", "/srv/pillar", cfg.Pillar.Roots}} {
		for _, root := range fileserver.Roots(k.option, k.usual) {
			for _, dir := range root.Dirs {
				if root.Env == "__env__" && strings.Contains(dir, "__env__") {
					return nil, salt.Errorf(salt.Invalid,
						"%s has the directory %s for any environment: which there are cannot be told; name the environments", k.kind, dir)
				}
			}
			out = append(out, revision.Tree{Kind: k.kind, Env: root.Env, Dirs: root.Dirs})
		}
	}
	return out, nil
}

// trees identifies what this master serves, for the comparison.
func (r *revisions) trees() *value.Dict {
	if id := r.current(); id != "" {
		return value.DictOf("roots", "revision "+id)
	}
	trees, err := r.ownTrees()
	if err == nil {
		var sum string
		if sum, err = revision.Sum(r.ctx(), trees); err == nil {
			return value.DictOf("roots", "own folders "+sum[:16])
		}
	}
	return value.DictOf("roots", "own directories, which cannot be compared: "+err.Error())
}

// Sync makes all masters serve the contents of this one's directories.
func (r *revisions) Sync(ctx context.Context, o runners.ClusterSyncOptions) (*value.Dict, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	trees, err := r.ownTrees()
	if err != nil {
		return nil, err
	}
	info, err := r.store.Take(ctx, trees)
	if err != nil {
		return nil, err
	}
	return r.choose(ctx, info, "sync", o)
}

// Rollback makes all masters serve an earlier state.
func (r *revisions) Rollback(ctx context.Context, id string, o runners.ClusterSyncOptions) (*value.Dict, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	all, err := r.choices()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, c := range all[:min(len(all), keptChoices)] {
		if (id == "" && c.ID != all[0].ID || id != "" && strings.HasPrefix(c.ID, id)) && !slices.Contains(found, c.ID) {
			found = append(found, c.ID)
		}
	}
	switch {
	case len(found) == 0 && id == "":
		return nil, salt.Errorf(salt.NotFound, "there is no earlier state: salt-run cluster.revision shows which there are")
	case len(found) == 0:
		return nil, salt.Errorf(salt.NotFound, "there is no state %.80q: salt-run cluster.revision shows which there are", id)
	case len(found) > 1 && id != "":
		return nil, salt.Errorf(salt.Invalid, "%d states begin with %s: write more of it", len(found), id)
	}
	if !r.store.Has(found[0]) {
		if err := r.fetch(ctx, found[0]); err != nil {
			return nil, err
		}
	}
	info, err := r.store.Info(found[0])
	if err != nil {
		return nil, err
	}
	return r.choose(ctx, info, "rollback", o)
}

// choose makes all masters switch to a revision that is stored here.
func (r *revisions) choose(ctx context.Context, info revision.Info, how string, o runners.ClusterSyncOptions) (*value.Dict, error) {
	before, err := r.agreed()
	if err != nil {
		return nil, err
	}
	d, err := r.store.Diff(before.ID, info.ID)
	if err != nil {
		return nil, err
	}
	out := value.DictOf("revision", info.ID, "previous", orNil(before.ID), "files", info.Files, "bytes", info.Bytes,
		"added", d.Added, "changed", d.Changed, "removed", d.Removed)
	if o.Test {
		out.Set("test", true)
		return out, nil
	}
	r.mu.Lock()
	r.wanted[info.ID] = &stage{at: time.Now()} // keeps tidy from removing it
	r.mu.Unlock()
	if err := r.handOut(ctx, info.ID, o); err != nil {
		return nil, err
	}
	if before.ID != info.ID {
		b, err := msgpack.Marshal(wire.Encode(&wire.ChosenRevision{ID: info.ID, How: how, Files: int64(info.Files), Bytes: info.Bytes}), msgpack.NewSpec)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s %s", salt.NewJID(time.Now()), r.id)
		if err := r.records.Put(kindRevision, name, b); err != nil {
			return nil, err
		}
		if err := r.forget(); err != nil {
			r.log.Warn("cannot remove old states of files", "err", err)
		}
	}
	r.poke()
	members, err := r.switched(ctx, info.ID)
	if err != nil {
		return nil, err
	}
	out.Set("members", members)
	return out, nil
}

// forget removes the records of the oldest choices.
func (r *revisions) forget() error {
	all, err := r.choices()
	if err != nil {
		return err
	}
	for _, c := range all[min(len(all), keptChoices):] {
		if err := r.records.Put(kindRevision, c.name, nil); err != nil {
			return err
		}
	}
	return nil
}

// handOut waits until all reachable masters have a revision.
func (r *revisions) handOut(ctx context.Context, id string, o runners.ClusterSyncOptions) error {
	if o.Force {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var waits []string
		for _, p := range r.cluster.Members() {
			if !p.Up || p.Gone {
				continue
			}
			answer, err := r.ask(ctx, p.ID, &wire.StageQuestion{ID: id})
			switch {
			case salt.KindOf(err) == salt.Unavailable: // it has just become unreachable
			case err != nil:
				waits = append(waits, p.ID)
			case !answer.Has:
				why := p.ID
				if answer.Failure != "" {
					why += " (" + answer.Failure + ")"
				}
				waits = append(waits, why)
			}
		}
		if len(waits) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return salt.Errorf(salt.Unavailable,
				"nothing was changed: these masters have not got all of revision %s after %v: %s. Find out what is the matter with them, or say force=True",
				id, o.Timeout, strings.Join(waits, ", "))
		case <-tick.C:
		}
	}
}

// switched waits at most switchTime for all masters to serve a revision, and returns what each
// serves.
func (r *revisions) switched(ctx context.Context, id string) (*value.Dict, error) {
	end := time.Now().Add(switchTime)
	for {
		members, all := r.members(ctx, id)
		if all || time.Now().After(end) {
			return members, nil
		}
		if c, err := r.agreed(); err != nil || c.ID != id {
			return nil, errors.Join(err, salt.Errorf(salt.Exists, "%s has chosen revision %s at the same time, and that counts", c.By, c.ID))
		}
		if !wait.Sleep(ctx, 50*time.Millisecond) {
			return members, nil
		}
	}
}

// members returns for each master what it serves. all is true if all reachable
// ones serve a revision.
func (r *revisions) members(ctx context.Context, id string) (out *value.Dict, all bool) {
	say := func(serves string) string {
		switch serves {
		case id:
			return "serves it"
		case "":
			return "serves its own directories"
		}
		return "serves " + serves
	}
	mine := r.current()
	out, all = value.DictOf(r.id, say(mine)), mine == id
	for _, p := range r.cluster.Members() {
		if p.Gone {
			continue
		}
		answer, err := r.ask(ctx, p.ID, &wire.StageQuestion{})
		if err != nil {
			out.Set(p.ID, "cannot be reached; it gets what is agreed before it serves again")
			continue
		}
		out.Set(p.ID, say(answer.Serves))
		all = all && answer.Serves == id
	}
	return out, all
}

// askTime bounds the wait for a master's answer.
const askTime = 2 * time.Second

func (r *revisions) ask(ctx context.Context, peer string, about *wire.StageQuestion) (answer wire.StageAnswer, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	d, err := r.cluster.Queries.AskOne(ctx, peer, askStage, wire.Encode(about))
	wire.View(d, &answer)
	return answer, err
}

// Revision returns the current choice and earlier ones, or the revision of a
// job.
func (r *revisions) Revision(ctx context.Context, jid string) (*value.Dict, error) {
	if jid != "" {
		return r.ofJob(jid)
	}
	all, err := r.choices()
	if err != nil {
		return nil, err
	}
	out := value.DictOf("agreed", nil)
	id := ""
	if len(all) > 0 {
		id = all[0].ID
		out.Set("agreed", id)
	} else {
		out.Set("note", "the masters have agreed on nothing, and each serves its own directories: salt-run cluster.sync_roots, where these are "+
			"right, has all serve the same; brine cluster check tells whether they differ")
	}
	members, _ := r.members(ctx, id)
	history := &value.List{}
	for _, c := range all[:min(len(all), keptChoices)] {
		history.Append(value.DictOf("revision", c.ID, "at", c.At.UTC().Format("2006-01-02T15:04:05.000000"), "by", c.By, "how", c.How, "files", c.Files,
			"bytes", c.Bytes, "here", r.store.Has(c.ID)))
	}
	out.Set("members", members)
	out.Set("history", history)
	return out, nil
}

func (r *revisions) ofJob(jid string) (*value.Dict, error) {
	if !salt.ValidJID(jid) {
		return nil, salt.Errorf(salt.Invalid, "%.80q is no job id", jid)
	}
	load, err := r.jobs.Load(jid)
	if err != nil {
		return nil, err
	}
	if load == nil {
		return nil, salt.Errorf(salt.NotFound, "there is no job %s", jid)
	}
	out := value.DictOf("jid", jid, "revision", orNil(load.Str(revisionKey)))
	if load.Str(revisionKey) == "" {
		out.Set("note", "the master that this job was given to served its own directories then")
	}
	return out, nil
}
