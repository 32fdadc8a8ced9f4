package copies

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"brine/internal/base/wait"
	"brine/internal/store/job"
)

// Store is the part of job.Stream that a Keeper uses.
type Store interface {
	Place(h job.Holds)
	Wanted(from job.Cursor, limit int) (places []job.Place, next job.Cursor, done bool, err error)
	Shorts(from job.Cursor, limit int, keep func(p job.Place) bool) (places []job.Place, next job.Cursor, done bool, err error)
	WantedOf(news []job.Taken) ([]job.Place, error)
	Full(names []string, size int) (out map[string][]byte, done int, err error)
	Fill(contents map[string][]byte) (n int, err error)
}

// Keeper makes this master have the content of each return that the rule assigns to it. It looks at all
// returns at its start, when the rule has changed, and each hour, and at each one that arrives without its
// content.
type Keeper struct {
	Store Store
	// Members returns the members, this master included. Members that are unreachable count until DownTime has passed.
	Members func() []Member
	// Ask asks a member for the contents of returns by job.Place.Name. done is the number of names that the answer covers.
	Ask func(ctx context.Context, peer string, names []string) (contents map[string][]byte, done int, err error)
	// Self is the id of this master.
	Self string
	Log  *slog.Logger

	once sync.Once
	wake wait.Wakeup

	mu     sync.Mutex
	rule   *Rule
	peers  []string             // reachable
	down   map[string]time.Time // unreachable members, and those of full, by since when
	full   []string             // reachable, and cannot store returns
	leaves map[string]time.Time // until when members are assumed to be leaving
	queue  []job.Place
	// scan means that the whole store must be looked at, from due on.
	scan  bool
	due   time.Time
	pause time.Duration
	left  int      // returns that the last scan could not get
	lost  string   // the oldest job among them
	all   []Member // at the last look
	// count means that the returns with too few reachable copies must be counted, counted when that was done last, with the result few
	// and the oldest job among them.
	count   bool
	counted time.Time
	few     int
	oldest  string
	warned  string // what was logged about the configured numbers
	// looked is the rule with which a scan runs, and done that of the last one during which all members answered.
	looked, done *Rule
	began        time.Time // when that scan began
	started      time.Time
	busy         int // returns of the queue that it gets now
}

// Times and bounds.
const (
	lookTime = time.Second
	// settleTime is how long the rule must be unchanged before this master gets what it lacks, unsureTime if it lacks
	// the settings of a member.
	settleTime = 3 * time.Second
	unsureTime = time.Minute
	// stepPause is the pause between two parts of a scan.
	stepPause = 20 * time.Millisecond
	// firstRetry and lastRetry are pauses after a scan that could not get everything.
	firstRetry = 5 * time.Second
	lastRetry  = 10 * time.Minute
	// scanTime is the longest time between two scans.
	scanTime  = time.Hour
	leaveTime = 10 * time.Second
	askTime   = 5 * time.Second
	readTime  = 15 * time.Second
	maxQueue  = 16 << 10
	// connectTime is how long after its start a master waits for connections before it shows that it cannot get a return.
	connectTime  = 5 * time.Second
	connectPause = 100 * time.Millisecond
	// MaxNames bounds the names of a question, answerBytes roughly the contents of an answer.
	MaxNames    = 256
	answerBytes = 1 << 20
)

func (k *Keeper) init() {
	k.once.Do(func() {
		k.wake, k.down, k.leaves = wait.NewWakeup(), map[string]time.Time{}, map[string]time.Time{}
		k.scan, k.pause, k.began = true, firstRetry, time.Now()
		k.started = k.began
	})
}

// Run keeps the copies until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	k.init()
	var at job.Cursor
	running, failed, missing, lost := false, false, 0, ""
	var counter *counter
	for ctx.Err() == nil {
		k.Look(time.Now())
		if places := k.take(); len(places) > 0 {
			lacks, failed, err := k.get(ctx, places)
			k.got(len(lacks) > 0 || failed, err)
			continue
		}
		if !running && k.begin(time.Now()) {
			running, at, missing, lost, failed = true, job.Cursor{}, 0, "", false
		}
		if counter == nil {
			counter = k.beginCount(time.Now())
		}
		if counter != nil && counter.step(k.Store) {
			k.endCount(counter)
			counter = nil
		}
		if !running && counter != nil {
			wait.Sleep(ctx, stepPause)
			continue
		}
		if !running {
			wait.Until(ctx, k.wake.C(), lookTime)
			continue
		}
		places, next, done, err := k.Store.Wanted(at, MaxNames)
		if err == nil {
			var lacks []job.Place
			var silent bool
			lacks, silent, err = k.get(ctx, places)
			missing, lost, failed = missing+len(lacks), oldestOf(lost, lacks), failed || silent
		}
		at = next
		if err != nil || done {
			running = false
			k.end(missing, lost, failed, err)
			continue
		}
		wait.Sleep(ctx, stepPause)
	}
}

// Look computes the rule, and uses it for returns that are sent from now on.
func (k *Keeper) Look(now time.Time) {
	k.init()
	members := k.Members()
	k.mu.Lock()
	defer k.mu.Unlock()
	var up, full []string
	for i, m := range members {
		switch {
		case m.ID == k.Self:
		case m.Up && !m.Full:
			delete(k.down, m.ID)
		case k.down[m.ID].IsZero():
			k.down[m.ID] = now
		}
		if m.ID != k.Self && m.Up {
			if up = append(up, m.ID); m.Full {
				full = append(full, m.ID)
			}
		}
		members[i].down, members[i].leaves = k.down[m.ID], k.leaves[m.ID].After(now)
	}
	slices.Sort(up)
	if slices.ContainsFunc(up, func(id string) bool { return !slices.Contains(k.peers, id) }) && k.left > 0 {
		k.due, k.pause = now, firstRetry // it may have what is missing
	}
	slices.Sort(full)
	k.count = k.count || !slices.Equal(k.peers, up) || !slices.Equal(k.full, full)
	k.peers, k.full, k.all = up, full, members
	r := Agree(members, now)
	k.warn(r, members)
	if r.Equal(k.rule) {
		if k.rule.unsure && !r.unsure && k.due.After(now.Add(settleTime)) {
			k.due = now.Add(settleTime)
		}
		k.rule.Why, k.rule.unsure = r.Why, r.unsure
		return
	}
	k.Store.Place(r.Holds)
	switch {
	case r.N > 0 && (k.rule == nil || r.N != k.rule.N):
		k.Log.Info("each return is stored on some masters", "copies", r.N, "masters", len(r.Members))
	case r.N == 0 && k.rule != nil && k.rule.N > 0:
		k.Log.Info("each return is stored on all masters", "reason", cmp.Or(r.Why, "there are few masters"))
	}
	settle := settleTime
	if r.unsure {
		settle = unsureTime
	}
	if slices.ContainsFunc(members, func(m Member) bool { return m.leaves }) {
		settle = 0
	}
	k.rule, k.scan, k.due, k.pause, k.count = r, true, now.Add(settle), firstRetry, true
}

// begin starts a scan if one is due.
func (k *Keeper) begin(now time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (!k.scan || now.Before(k.due)) && now.Sub(k.began) < scanTime {
		return false
	}
	k.scan, k.looked, k.began = false, k.rule, now
	return true
}

// end records the end of a scan. failed means that a member did not answer.
func (k *Keeper) end(missing int, lost string, failed bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && !failed {
		k.done = k.looked
	}
	k.looked = nil
	if missing > 0 && missing != k.left {
		k.Log.Warn("this master lacks returns that it has to store, and no reachable master has them; retrying", "returns", missing, "oldest", lost)
	}
	k.lost = lost
	if k.left = missing; err == nil && missing == 0 && !failed {
		k.pause = firstRetry
		return
	}
	k.retry(err)
}

// got ends the work on a part of the queue. What is missing is found by a scan.
func (k *Keeper) got(missing bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.busy = 0
	if missing || err != nil {
		k.done = nil
		k.retry(err)
	}
}

// retry makes a scan due after a pause; k.mu is held.
func (k *Keeper) retry(err error) {
	if err != nil {
		k.Log.Debug("cannot store copies of returns", "err", err)
	}
	if !k.scan {
		k.scan, k.due = true, time.Now().Add(k.pause)
		k.pause = min(2*k.pause, lastRetry)
	}
}

// Took gets the contents of those returns among some changes that this master has to store.
func (k *Keeper) Took(news []job.Taken) {
	k.init()
	places, err := k.Store.WantedOf(news)
	if err != nil {
		k.got(true, err)
	}
	if len(places) == 0 {
		return
	}
	k.mu.Lock()
	if len(k.queue)+len(places) > maxQueue {
		k.scan, k.due, k.done = true, time.Now(), nil
	} else {
		k.queue = append(k.queue, places...)
	}
	k.mu.Unlock()
	k.wake.Wake()
}

func (k *Keeper) take() (places []job.Place) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := min(len(k.queue), MaxNames)
	places, k.queue, k.busy = k.queue[:n:n], k.queue[n:], n
	if len(k.queue) == 0 {
		k.queue = nil
	}
	return places
}

// get gets and stores contents, and returns those that it did not get. failed means that a member did not answer.
func (k *Keeper) get(ctx context.Context, places []job.Place) (lacks []job.Place, failed bool, err error) {
	if len(places) == 0 {
		return nil, false, nil
	}
	contents, failed := k.fetch(ctx, places)
	if _, err := k.Store.Fill(contents); err != nil {
		return nil, failed, err
	}
	return slices.DeleteFunc(slices.Clone(places), func(p job.Place) bool { return contents[p.Name()] != nil }), failed, nil
}

// Contents implements job.Contents.
func (k *Keeper) Contents(places []job.Place) map[string][]byte {
	k.init()
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	for {
		contents, _ := k.fetch(ctx, places)
		if len(contents) == len(places) || !k.connecting() || ctx.Err() != nil {
			return contents
		}
		wait.Sleep(ctx, connectPause)
	}
}

// connecting reports whether this master has just started and is not connected to all others yet.
func (k *Keeper) connecting() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.started) < connectTime && (k.rule == nil || len(k.down) > 0)
}

// fetch gets contents from the reachable members. It asks for each return the most probable one first. A content with another checksum
// than expected counts only if no member has a better one. failed means that a member did not answer.
func (k *Keeper) fetch(ctx context.Context, places []job.Place) (out map[string][]byte, failed bool) {
	k.mu.Lock()
	rule, peers := k.rule, slices.Clone(k.peers)
	k.mu.Unlock()
	out = map[string][]byte{}
	if rule == nil {
		return out, true
	}
	others := map[string][]byte{}         // with another checksum
	asked := map[string]map[string]bool{} // by name and member
	byName := map[string]job.Place{}
	for _, p := range places {
		byName[p.Name()] = p
	}
	rest := places
	for len(rest) > 0 && ctx.Err() == nil {
		questions := map[string][]string{}
		for _, p := range rest {
			name := p.Name()
			for _, peer := range rule.order(p, peers) {
				if !asked[name][peer] {
					if len(questions[peer]) < MaxNames {
						questions[peer] = append(questions[peer], name)
					}
					break
				}
			}
		}
		if len(questions) == 0 {
			break
		}
		var mu sync.Mutex
		var wg sync.WaitGroup
		for peer, names := range questions {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, askTime)
				defer cancel()
				contents, done, err := k.Ask(ctx, peer, names)
				mu.Lock()
				defer mu.Unlock()
				if err != nil || done < 1 {
					k.Log.Debug("cannot get returns of another master", "peer", peer, "err", err)
					failed = true
					peers = slices.DeleteFunc(peers, func(id string) bool { return id == peer })
					return
				}
				for name, raw := range contents {
					if readable, fits := byName[name].Fits(raw); fits {
						out[name] = raw
					} else if readable && others[name] == nil {
						others[name] = raw
					}
				}
				for _, name := range names[:min(done, len(names))] {
					if asked[name] == nil {
						asked[name] = map[string]bool{}
					}
					asked[name][peer] = true
				}
			})
		}
		wg.Wait()
		rest = slices.DeleteFunc(slices.Clone(rest), func(p job.Place) bool { return out[p.Name()] != nil })
	}
	for name, raw := range others {
		if out[name] == nil {
			out[name] = raw
		}
	}
	return out, failed || ctx.Err() != nil
}

// Answer answers a question of another member.
func (k *Keeper) Answer(names []string) (contents map[string][]byte, done int, err error) {
	return k.Store.Full(names[:min(len(names), MaxNames)], answerBytes)
}

// Status is the state of the copies on this master.
type Status struct {
	// Copies is the number of copies, 0 for one on each member.
	Copies int
	// Masters is the number of members that count.
	Masters int
	// Why is the reason if all members store all returns although fewer copies are configured.
	Why string
	// Missing is the number of returns that this master has to store and lacks, -1 if it is not known yet. Lost is the oldest job
	// among those that no reachable member has.
	Missing int
	Lost    string
	// Few is the number of returns of which too few copies are on reachable members, and Oldest the oldest job among them. Each is
	// counted by one member.
	Few    int
	Oldest string
	// Senseless is what is wrong with the configured numbers of copies, or "".
	Senseless string
}

// Status returns the state of the copies on this master.
func (k *Keeper) Status() Status {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	s := Status{Missing: -1, Few: k.few, Oldest: k.oldest, Lost: k.lost, Senseless: k.warned}
	if k.rule != nil {
		s.Copies, s.Masters, s.Why = k.rule.N, len(k.rule.Members), k.rule.Why
	}
	if k.left > 0 || k.done != nil && k.done == k.rule && !k.scan {
		s.Missing = k.left + k.busy + len(k.queue)
	}
	return s
}

// Release makes this master do without a member that is about to leave the cluster, and reports whether it has got everything that the
// member has and this one must have from now on. The member repeats the question until then.
func (k *Keeper) Release(member string) (done bool) {
	k.init()
	now := time.Now()
	k.mu.Lock()
	k.leaves[member] = now.Add(leaveTime)
	k.mu.Unlock()
	k.Look(now)
	k.wake.Wake()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.done != nil && k.done == k.rule && len(k.queue) == 0 && k.busy == 0
}
