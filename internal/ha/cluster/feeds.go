package cluster

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"brine/internal/ha/cluster/feed"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/record"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// feeds are the replicated streams of changes, and the state of the other masters.
type feeds struct {
	rateLimitedLog *limitlog.Log
	peers          *peerSet
	store          *record.Store // nil if there is no store of record

	mu      sync.Mutex
	streams map[string]oplog.Stream
	// unstored is why this master could not store the last changes that it got, by stream.
	unstored map[string]string
}

// setStored records whether this master could store changes of another one.
func (fs *feeds) setStored(stream string, err error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if err == nil {
		delete(fs.unstored, stream)
		return
	}
	if fs.unstored == nil {
		fs.unstored = map[string]string{}
	}
	fs.unstored[stream] = fmt.Sprintf("%.500s", err.Error())
}

// Unstored returns why this master could not store the last changes that it got from others, by stream.
func (fs *feeds) Unstored() map[string]string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return maps.Clone(fs.unstored)
}

// vectors returns the version vector of each stream of this master.
func (fs *feeds) vectors() *value.Dict {
	d := value.NewDict(len(fs.streams))
	for name, s := range fs.streams {
		v, err := s.Vector()
		if err != nil {
			fs.rateLimitedLog.Error("vector "+name, "cannot read the version vector of a stream", "stream", name, "err", err)
			continue
		}
		d.Set(name, feed.VectorDict(v))
	}
	return d
}

// KnownToAll returns which changes of a stream all members have (all), and which at least one of them has (any), as far as they have
// reported it. ok is false if a member is unreachable.
func (fs *feeds) KnownToAll(stream string) (all, any oplog.Vector, ok bool) {
	s := fs.streams[stream]
	if s == nil {
		return nil, nil, false
	}
	mine, err := s.Vector()
	if err != nil {
		return nil, nil, false
	}
	all, any = mine.Clone(), mine
	for _, p := range fs.peers.all() {
		p.mu.Lock()
		f, gone := p.fed[stream], p.gone
		p.mu.Unlock()
		if gone {
			continue
		}
		if f == nil {
			return nil, nil, false
		}
		have := f.Have()
		for origin, n := range all {
			all[origin] = min(n, have[origin])
		}
		any.Merge(have)
	}
	if fs.store != nil {
		have, ok := fs.store.Known(stream)
		if !ok {
			return nil, nil, false
		}
		for origin, n := range all {
			all[origin] = min(n, have[origin])
		}
		any.Merge(have)
	}
	return all, any, true
}

// HandedOver reports the number of reachable peers, and whether all of them have all changes of this master. A reachable store of record
// counts as a peer.
func (fs *feeds) HandedOver() (peers int, all bool, err error) {
	all = true
	for name, stream := range fs.streams {
		mine, err := stream.Vector()
		if err != nil {
			return 0, false, err
		}
		peers = 0
		for _, p := range fs.peers.all() {
			p.mu.Lock()
			f := p.fed[name]
			p.mu.Unlock()
			if f == nil {
				continue
			}
			peers++
			have := f.Have()
			for origin, n := range mine {
				all = all && have[origin] >= n
			}
		}
		if fs.store == nil {
			continue
		}
		if have, ok := fs.store.Known(name); ok {
			peers++
			for origin, n := range mine {
				all = all && have[origin] >= n
			}
		}
	}
	return peers, all, nil
}

// HadAll reports whether a master had all changes of this one when the connection to it ended, or there is no other master.
func (fs *feeds) HadAll() bool {
	others := false
	for _, p := range fs.peers.all() {
		p.mu.Lock()
		had, gone := p.had, p.gone
		p.mu.Unlock()
		if gone {
			continue
		}
		others = true
		all := true
		for name, stream := range fs.streams {
			mine, err := stream.Vector()
			all = all && err == nil
			for origin, n := range mine {
				all = all && (!stream.Own(origin) || had[name][origin] >= n)
			}
		}
		if all {
			return true
		}
	}
	return !others
}

// Alone reports whether no other master can be reached: an attempt to connect to each, that began after a moment, has failed.
func (fs *feeds) Alone(since time.Time) bool {
	for _, p := range fs.peers.all() {
		p.mu.Lock()
		unknown := !p.gone && (p.up || !p.failed.After(since))
		p.mu.Unlock()
		if unknown {
			return false
		}
	}
	return true
}

// Share replicates changes of a store to the other masters. It must be called before Run, with the same names on all masters.
func (fs *feeds) Share(name string, s oplog.Stream) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.streams[name] = s
}

// CaughtUp reports whether this master has all changes of a stream that the reachable masters have, and has tried to reach each master. It
// waits for a peer whose first connection attempt is still in progress.
func (fs *feeds) CaughtUp(stream string) bool {
	fs.mu.Lock()
	s := fs.streams[stream]
	fs.mu.Unlock()
	if s == nil || !fs.peers.begun() {
		return false
	}
	mine, err := s.Vector()
	if err != nil {
		return false
	}
	for _, p := range fs.peers.all() {
		p.mu.Lock()
		f, tried := p.fed[stream], p.tried || p.gone
		p.mu.Unlock()
		if f == nil && !tried {
			return false
		}
		if f == nil {
			continue
		}
		behind := false
		for origin, n := range f.Have() {
			behind = behind || mine[origin] < n
		}
		if behind {
			return false
		}
	}
	return true
}
