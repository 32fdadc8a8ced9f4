package master

import (
	"context"
	"maps"
	"os"
	"sync"
	"syscall"
	"time"

	"brine/internal/base/metrics"
	"brine/internal/base/salt"
	"brine/internal/catalogue/runners"
	"brine/internal/ha/cluster"
	"brine/internal/host"
	"brine/internal/host/counters"
	"brine/internal/host/process"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// askLoad is the query among masters of a cluster for how busy they are.
const askLoad = "load"

const (
	// loadEvery is the interval over which loads are measured, and in which other masters are asked while a console is open. loadOpen is how long one
	// counts as open after its last request.
	loadEvery, loadOpen = 5 * time.Second, 15 * time.Second
	// loadTime bounds the wait for another master.
	loadTime = 3 * time.Second
)

// loads measures how busy this master is, and asks the other members of the cluster while a console is open.
type loads struct {
	id       string
	began    time.Time
	requests func() metrics.Counts
	revision func() string
	cluster  *cluster.Cluster // nil without a cluster

	mu     sync.Mutex
	wanted time.Time
	wants  chan struct{}
	own    runners.MasterLoad
	others map[string]runners.MasterLoad
	last   loadSample
}

// loadSample has counters at one time.
type loadSample struct {
	at          time.Time
	cpu         time.Duration
	busy, total int64
	requests    metrics.Counts
}

func newLoads(l *loads) *loads {
	l.wants, l.others = make(chan struct{}, 1), map[string]runners.MasterLoad{}
	return l
}

// sample reads the counters of this process and the machine.
func (l *loads) sample(now time.Time) {
	s := loadSample{at: now, requests: l.requests()}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		s.cpu = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	m := &host.Machine{}
	s.busy, s.total, _ = counters.Busy(m)
	w := wire.MasterLoad{Version: salt.BrineVersion, Since: secondsOf(l.began), Cores: int64(counters.Processors(m)), RAM: counters.Memory(m)["MemTotal"]}
	if p, ok := process.Read(m, os.Getpid()); ok {
		w.Memory = p.RSS
	}
	if l.revision != nil {
		w.Revision = l.revision()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed := now.Sub(l.last.at); !l.last.at.IsZero() && passed > 0 {
		w.CPU = int64(100 * float64(s.cpu-l.last.cpu) / float64(passed))
		if total := s.total - l.last.total; total > 0 {
			w.Machine = 100 * (s.busy - l.last.busy) / total
		}
		news := s.requests.Minus(l.last.requests)
		w.Requests = int64(1000 * float64(news.N()) / passed.Seconds())
		w.Mean, w.Most = news.Mean().Microseconds(), news.Most(0.95).Microseconds()
	}
	l.own, l.last = runners.MasterLoad{MasterLoad: w, Began: l.began, Seen: now}, s
}

// here returns how busy this master is.
func (l *loads) here() runners.MasterLoad {
	l.mu.Lock()
	own := l.own
	l.mu.Unlock()
	own.Leads = l.cluster != nil && l.cluster.Leads()
	return own
}

// answer answers another member of the cluster.
func (l *loads) answer(*value.Dict) *value.Dict {
	own := l.here()
	return wire.Encode(&own.MasterLoad)
}

// all returns how busy the masters are, and has the others asked.
func (l *loads) all() map[string]runners.MasterLoad {
	own := l.here()
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.wanted) > loadOpen {
		select {
		case l.wants <- struct{}{}:
		default:
		}
	}
	l.wanted = time.Now()
	out := maps.Clone(l.others)
	out[l.id] = own
	return out
}

// run measures and asks until ctx ends.
func (l *loads) run(ctx context.Context) error {
	tick := time.NewTicker(loadEvery)
	defer tick.Stop()
	for {
		l.sample(time.Now())
		l.ask(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-l.wants:
			l.ask(ctx)
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}
}

// ask asks the other members of the cluster, without waiting for them.
func (l *loads) ask(ctx context.Context) {
	l.mu.Lock()
	open := time.Since(l.wanted) < loadOpen
	l.mu.Unlock()
	if l.cluster == nil || !open {
		return
	}
	for _, m := range l.cluster.Members() {
		if m.Gone || !m.Up {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(ctx, loadTime)
			defer cancel()
			d, err := l.cluster.Queries.AskOne(ctx, m.ID, askLoad, nil)
			if err == nil {
				l.take(m.ID, d)
			}
		}()
	}
}

// take keeps the answer of another member.
func (l *loads) take(id string, d *value.Dict) {
	load := readLoad(d, time.Now())
	if load == nil {
		return // of an older version
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.others[id] = *load
}

// readLoad reads what another master tells of its load; nil if it does not.
func readLoad(d *value.Dict, now time.Time) *runners.MasterLoad {
	var w wire.MasterLoad
	if d.Len() == 0 || wire.Decode(d, &w) != nil || w.Version == "" {
		return nil
	}
	w.Rest = nil
	return &runners.MasterLoad{MasterLoad: w, Began: timeOf(w.Since), Seen: now}
}
