package master

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/transport"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// departures tells which minions are certainly not connected to this master, nor to another one of its
// cluster, and since when. It considers only minions that name themselves when they subscribe, as Brine
// minions do, and that have been connected once. A file keeps them for the next start.
type departures struct {
	publishers []transport.Publisher
	// brine reports whether a minion ran Brine when it started last.
	brine func(id string) bool
	now   func() time.Time
	// others asks the other masters of the cluster; nil without a cluster.
	others departedOthers
	path   string // of the file; "" for none

	mu   sync.Mutex
	here map[string]bool
	left map[string]time.Time
	// restored are those of left that have not connected since this master started, at loaded.
	restored map[string]bool
	loaded   time.Time
	// elsewhere are those that have left other masters, at the last question.
	elsewhere map[string]time.Time
	changed   bool
	saved     time.Time
}

// departedOthers asks the other masters of a cluster about minions. all is false if one of them did not
// answer: it may have each minion.
type departedOthers interface {
	ask(ctx context.Context, ids []string) (left map[string]time.Time, here map[string]bool, all bool)
}

const (
	// lookEvery is the interval of checks, and so the accuracy of the times.
	lookEvery = 5 * time.Second
	// awayAfter is the time after which a minion is not expected to come back at once, as it does
	// after a short cut or a restart.
	awayAfter = 20 * time.Second
	// returnTime is how long minions have to come back to a master that has started.
	returnTime = time.Minute
	// saveEvery is the interval at which the file is written although nothing has changed, so that it
	// has the time at which minions were here last.
	saveEvery = time.Minute
	// maxDepartures bounds the file in bytes.
	maxDepartures = 64 << 20
	// awayTime bounds how long the answer to a publication waits for other masters: one of them may
	// have just lost its power.
	awayTime = 250 * time.Millisecond
	// departedTime bounds a question to other masters.
	departedTime = 2 * time.Second
)

// look records which minions are connected and which have left.
func (d *departures) look() {
	now := d.now()
	here := map[string]bool{}
	for _, p := range d.publishers {
		for _, peer := range p.Peers() {
			if id := peer.ID; id != "" {
				here[id] = true
			} else if peer.Claimed != "" {
				here[peer.Claimed] = true
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left = map[string]time.Time{}
	}
	for id := range d.here {
		if !here[id] && d.brine(id) { // any peer can claim any id
			d.left[id] = now
			delete(d.restored, id)
			d.changed = true
		}
	}
	for id := range d.left {
		if here[id] {
			delete(d.left, id)
			delete(d.restored, id)
			d.changed = true
		}
	}
	d.changed = d.changed || !maps.Equal(d.here, here)
	d.here = here
}

// away returns those of the given minions that are not connected, with the seconds of the Unix time
// at which that was noticed. In a cluster each other master must answer that it does not have them.
func (d *departures) away(ctx context.Context, ids []string) *value.Dict {
	if len(d.since(ids)) == 0 {
		return nil
	}
	d.look() // one may have come back since the last check
	since := d.since(ids)
	if d.others != nil && len(since) > 0 {
		var asked []string
		for id := range since {
			asked = append(asked, id)
		}
		ctx, cancel := context.WithTimeout(ctx, awayTime)
		defer cancel()
		left, here, all := d.others.ask(ctx, asked)
		if !all {
			return nil
		}
		for id, t := range left {
			if known, ok := since[id]; ok && t.After(known) {
				since[id] = t
			}
		}
		maps.DeleteFunc(since, func(id string, t time.Time) bool { return here[id] || d.now().Sub(t) < awayAfter })
	}
	out := value.NewDict(0)
	for _, id := range ids {
		if t, ok := since[id]; ok {
			out.Set(id, secondsOf(t))
		}
	}
	return out
}

// since returns those of the given minions that have left and are not connected to this master.
func (d *departures) since(ids []string) map[string]time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left)+len(d.elsewhere) == 0 {
		return nil
	}
	now := d.now()
	var out map[string]time.Time
	for _, id := range ids {
		t, ok := d.left[id]
		if ok && d.restored[id] && now.Sub(d.loaded) < returnTime {
			continue
		}
		if other, has := d.elsewhere[id]; has && (!ok || other.After(t)) {
			t, ok = other, true
		}
		if ok && !d.here[id] && now.Sub(t) >= awayAfter && d.brine(id) {
			if out == nil {
				out = map[string]time.Time{}
			}
			out[id] = t
		}
	}
	return out
}

// update asks the other masters which minions have left them.
func (d *departures) update(ctx context.Context) {
	left, _, _ := d.others.ask(ctx, nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.elsewhere = left
}

// answer answers a question of another master.
func (d *departures) answer(arg *value.Dict) *value.Dict {
	var in wire.DepartedQuestion
	wire.View(arg, &in)
	d.look()
	d.mu.Lock()
	defer d.mu.Unlock()
	left, here := value.NewDict(0), &value.List{}
	add := func(id string) {
		if t, ok := d.left[id]; ok && d.brine(id) && (!d.restored[id] || d.now().Sub(d.loaded) >= returnTime) {
			left.Set(id, secondsOf(t))
		}
	}
	if in.IDs == nil {
		for id := range d.left {
			add(id)
		}
	}
	for _, id := range value.OnlyTexts(in.IDs) {
		add(id)
		if d.here[id] {
			here.Append(id)
		}
	}
	return wire.Encode(wire.DepartedAnswer{Left: left, Here: here})
}

// clusterDepartures asks the masters of a cluster.
type clusterDepartures struct{ cluster *cluster.Cluster }

// askDeparted is the query about minions that have left.
const askDeparted = "departed"

func (c clusterDepartures) ask(ctx context.Context, ids []string) (left map[string]time.Time, here map[string]bool, all bool) {
	ctx, cancel := context.WithTimeout(ctx, departedTime)
	defer cancel()
	var in wire.DepartedQuestion
	if ids != nil {
		in.IDs = value.Strings(ids)
	}
	answers := c.cluster.Queries.AskAbout(ctx, askDeparted, wire.Encode(in))
	left, here, all = map[string]time.Time{}, map[string]bool{}, true
	for _, m := range c.cluster.Members() {
		if !m.Gone && answers[m.ID] == nil {
			all = false
		}
	}
	for _, d := range answers {
		var answer wire.DepartedAnswer
		if err := wire.Decode(d, &answer); err != nil {
			all = false // a master of an older version
			continue
		}
		for k, v := range answer.Left.All() {
			id, t := value.Str(k), departedAt(v)
			if t.After(left[id]) {
				left[id] = t
			}
		}
		for _, id := range value.OnlyTexts(answer.Here) {
			here[id] = true
		}
	}
	return left, here, all
}

// departedAt converts seconds since 1970.
func departedAt(v any) time.Time {
	if f, ok := v.(float64); ok && f > 0 && f < 1e11 {
		return time.UnixMilli(int64(f * 1000))
	}
	return time.Time{}
}

// departuresFile is the content of the file: At is when those in Here were connected last. Times are
// in seconds since 1970.
type departuresFile struct {
	At   int64            `json:"at"`
	Here []string         `json:"here"`
	Left map[string]int64 `json:"left"`
}

// load reads what the last process has written. Those that were connected then have left unless they
// come back.
func (d *departures) load() error {
	f, err := os.Open(d.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || fi.Size() > maxDepartures {
		return errors.Join(err, salt.Errorf(salt.Invalid, "%s has more than %d bytes; remove it", d.path, maxDepartures))
	}
	var in departuresFile
	if err := json.NewDecoder(f).Decode(&in); err != nil {
		return salt.Errorf(salt.Invalid, "%s is damaged; it is written again: %w", d.path, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.loaded, d.left, d.restored = d.now(), map[string]time.Time{}, map[string]bool{}
	add := func(id string, at int64) {
		if salt.CheckID(id) == nil && at > 0 && time.Unix(at, 0).Before(d.loaded) {
			d.left[id], d.restored[id] = time.Unix(at, 0), true
		}
	}
	for id, at := range in.Left {
		add(id, at)
	}
	for _, id := range in.Here {
		add(id, in.At)
	}
	return nil
}

// save writes the file if something has changed, and every now and then.
func (d *departures) save() error {
	if d.path == "" {
		return nil
	}
	d.mu.Lock()
	now := d.now()
	if !d.changed && now.Sub(d.saved) < saveEvery {
		d.mu.Unlock()
		return nil
	}
	out := departuresFile{At: now.Unix(), Left: map[string]int64{}}
	for id := range d.here {
		if d.brine(id) {
			out.Here = append(out.Here, id)
		}
	}
	for id, t := range d.left {
		if d.brine(id) {
			out.Left[id] = t.Unix()
		}
	}
	d.changed, d.saved = false, now
	d.mu.Unlock()
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	return atomicfile.Write(d.path, b, 0o600, false)
}
