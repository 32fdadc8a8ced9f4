package master

import (
	"brine/internal/base/ratelimit"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/catalogue/runners"
	"brine/internal/files/fileserver"
	"brine/internal/files/revision"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// revisions is which state of file_roots and pillar_roots the masters of a
// cluster without a shared directory have agreed on, and the contents of those that
// count. Who has others agree gets the contents to them first, and then makes a
// record of the choice (kindRevision). The latest choice counts. A nil one is
// that of a master of its own, which serves its directories.
type revisions struct {
	id       string // of this master
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
	// asking is held by who has the masters agree.
	asking sync.Mutex

	mu      sync.Mutex
	serving string            // what is served; "" for the own directories
	wanted  map[string]*stage // what others have asked to get beforehand, by id
	late    error             // why no file is served
}

// stage is a revision that is to be here.
type stage struct {
	at      time.Time
	failure string // of the last attempt
}

// kindRevision is the kind of records of choices, kindTree the section of what
// masters compare that is about the directories.
const (
	kindRevision = "revision"
	kindTree     = "tree"
)

// revisionKey is where a job says what was agreed when it was given.
const revisionKey = "revision"

// Questions to other masters.
const (
	askStage    = "revision"
	askContents = "contents"
)

// Bounds and times of revisions.
const (
	// keptChoices is how many choices are remembered, with the contents.
	keptChoices = 20
	// stageTime is how long a revision is kept that no master has chosen.
	stageTime = time.Hour
	// catchUpTime is how long a master that starts waits to hear what was agreed
	// while it was away, and again to get it.
	catchUpTime = 5 * time.Second
	// switchTime is how long the master that has chosen waits to see the others switch.
	switchTime  = 10 * time.Second
	contentTime = 30 * time.Second // for one answer with contents
)

// choice is one record.
type choice struct {
	ID    string // of the revision
	How   string // sync or rollback
	Files int64
	Bytes int64
	At    time.Time
	By    string // the master
	name  string
}

// openRevisions opens those in the directory own.
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
	for _, c := range all { // the latest that is here
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

// choices returns what was chosen, the latest first.
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
		all = append(all, dated{choice{
			ID: d.Str("id"), How: d.Str("how"), Files: d.Int("files"), Bytes: d.Int("bytes"), At: rec.Made(), By: rec.By, name: rec.Name,
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

// agreed returns the choice that counts; its ID is "" if there is none.
func (r *revisions) agreed() (choice, error) {
	all, err := r.choices()
	if err != nil || len(all) == 0 {
		return choice{}, err
	}
	return all[0], nil
}

// current returns what is served, "" for the own directories.
func (r *revisions) current() string {
	if r == nil {
		return ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.serving
}

// refuses says why no file and no pillar is given.
func (r *revisions) refuses() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.late
}

// apply puts what was agreed in the place of the directories of a configuration.
func (r *revisions) apply(cfg Config) Config {
	id := r.current()
	if id == "" {
		return cfg
	}
	files, err := r.store.Roots(id, "file_roots")
	pillars, perr := r.store.Roots(id, "pillar_roots")
	if err = errors.Join(err, perr); err != nil {
		r.log.Error("the files that the masters have agreed on cannot be read; none are served", "revision", id, "err", err)
		files, pillars = value.NewDict(0), value.NewDict(0)
		r.mu.Lock()
		r.late = err
		r.mu.Unlock()
	}
	cfg.Files.FileRoots, cfg.Pillar.Roots = files, pillars
	return cfg
}

// serve switches to a revision that is here.
func (r *revisions) serve(c choice) {
	var old string
	r.settings.setRoots(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		old = r.serving
		r.serving, r.late = c.ID, nil
	})
	r.log.Info("this master serves what the masters have agreed on", "revision", c.ID, "chosen_by", c.By, "how", c.How)
	r.bus.Fire("salt/cluster/revision", value.DictOf("revision", c.ID, "previous", orNil(old), "by", c.By, "how", c.How))
}

// shortID is enough of a revision's id to tell it by.
func shortID(id string) string { return id[:min(len(id), 12)] }

func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// run follows what is agreed, and gets what others ask for, until ctx ends.
func (r *revisions) run(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for ctx.Err() == nil {
		r.getWanted(ctx)
		if err := r.follow(ctx); err != nil && ctx.Err() == nil {
			r.rateLimitedLog.Log(slog.LevelWarn, "this master cannot get the files that the masters have agreed on; it is tried again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-r.wake.C():
		case <-tick.C:
		}
	}
}

// follow serves what is agreed, and gets it first if need be.
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

// tidy removes what does not count any more.
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

// getWanted gets what others have asked for.
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

// fetch gets a revision from any master that has it.
func (r *revisions) fetch(ctx context.Context, id string) error {
	good := "" // who had the last
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

// contents asks one master, and returns what it has, up to the first that it
// does not have.
func (r *revisions) contents(ctx context.Context, peer string, wants *value.List) (out [][]byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, contentTime)
	defer cancel()
	d, err := r.cluster.Queries.AskOne(ctx, peer, askContents, value.DictOf("wants", wants))
	if err != nil {
		return nil, err
	}
	for _, it := range d.List("parts") {
		b, ok := it.([]byte)
		if !ok {
			break
		}
		out = append(out, b)
	}
	return out, nil
}

// answerContents gives another master contents.
func (r *revisions) answerContents(arg *value.Dict) *value.Dict {
	var wants []revision.Want
	for _, it := range arg.List("wants") {
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
	return value.DictOf("parts", parts)
}

// answerStage tells whether a revision is here, which is to be, and what is
// served.
func (r *revisions) answerStage(arg *value.Dict) *value.Dict {
	id := arg.Str("id")
	out := value.DictOf("serves", r.current(), "has", r.store.Has(id), "failure", "")
	if id == "" || out.Bool("has") {
		return out
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	st := r.wanted[id]
	if st == nil && len(r.wanted) < keptChoices {
		st = &stage{}
		r.wanted[id] = st
		r.poke()
	}
	if st != nil {
		st.at = time.Now()
		out.Set("failure", st.failure)
	}
	return out
}

// catchUp has a master that starts hear what was agreed while it was away, and
// get it, before it serves anything. Masters that cannot be reached are not
// waited for; if what was agreed does not come in time, all is served but files.
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
		r.log.Warn("not all masters that seem to be there have answered in time; this one serves the files that it has, or those that others have told it of",
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
	r.log.Error("the files that the masters have agreed on while this one was away are not here yet; until they are, it serves neither files nor pillars")
	r.poke()
	if there() { // it came meanwhile
		r.mu.Lock()
		r.late = nil
		r.mu.Unlock()
	}
}

// ownTrees are the directories of this master's configuration.
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

// trees tells what this master serves, to be compared with others.
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

// sync has all masters serve what this one's directories have.
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

// rollback has all masters serve an earlier state.
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

// choose has all masters switch to a revision that is here.
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
	r.wanted[info.ID] = &stage{at: time.Now()} // tidy leaves it
	r.mu.Unlock()
	if err := r.handOut(ctx, info.ID, o); err != nil {
		return nil, err
	}
	if before.ID != info.ID {
		b, err := msgpack.Marshal(value.DictOf("id", info.ID, "how", how, "files", info.Files, "bytes", info.Bytes), msgpack.NewSpec)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s %s", salt.NewJID(time.Now()), r.id)
		if err := r.records.Put(kindRevision, name, b); err != nil {
			return nil, err
		}
		if err := r.forget(); err != nil {
			r.log.Warn("old states of files cannot be removed", "err", err)
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

// forget removes the records of choices that are too many.
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

// handOut waits until all masters have a revision that can be reached.
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
			d, err := r.ask(ctx, p.ID, value.DictOf("id", id))
			switch {
			case salt.KindOf(err) == salt.Unavailable: // it has gone just now
			case err != nil:
				waits = append(waits, p.ID)
			case !d.Bool("has"):
				why := p.ID
				if f := d.Str("failure"); f != "" {
					why += " (" + f + ")"
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

// switched waits a while for all masters to serve a revision, and returns what
// each does.
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

// members tells of each master what it serves. all is true if those that can be
// reached serve a revision.
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
		d, err := r.ask(ctx, p.ID, nil)
		if err != nil {
			out.Set(p.ID, "cannot be reached; it gets what is agreed before it serves again")
			continue
		}
		out.Set(p.ID, say(d.Str("serves")))
		all = all && d.Str("serves") == id
	}
	return out, all
}

// askTime bounds the wait for a master that is asked what it has.
const askTime = 2 * time.Second

func (r *revisions) ask(ctx context.Context, peer string, about *value.Dict) (*value.Dict, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	return r.cluster.Queries.AskOne(ctx, peer, askStage, about)
}

// show tells what is agreed, and what was; or what a job was given with.
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
