package master

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/steady"
	"brine/internal/catalogue/runners"
	"brine/internal/store/daily"
)

// pastMoves keeps the changes of masters that minions report, in files by days. A nil *pastMoves keeps none.
type pastMoves struct {
	dir  daily.Dir
	keep time.Duration // 0: for ever
	log  *ratelimit.Log

	mu      sync.Mutex
	byID    map[string][]runners.StandingChange // the newest first
	waiting map[string]*bytes.Buffer            // lines by day
	// today counts the lines of a day: a minion that changes its master all the time does not displace others.
	day   string
	today map[string]int
}

const (
	// minionsDir has what is kept of minions by days, below the master's own directory.
	minionsDir = "minions"
	// Bounds of bytes of the changes of masters, of a day and of all; lines of one minion and day; lines that wait in bytes.
	maxMovesDay, maxMovesAll           = 16 << 20, 64 << 20
	maxMovesOfOne, maxMovesWait        = 200, 1 << 20
	maxMoveLine                        = 10 << 10
	dailyWritten, dailyCleaned         = time.Second, time.Hour
	beaconsWritten                     = time.Minute
	maxBeaconsDay, maxBeaconsAll int64 = 16 << 20, 64 << 20
)

// moveLine is a change of masters in a file.
type moveLine struct {
	ID      string    `json:"id"`
	From    string    `json:"from,omitempty"`
	To      string    `json:"to"`
	Reason  string    `json:"reason,omitempty"`
	Seconds float64   `json:"seconds,omitempty"`
	At      time.Time `json:"at"` // by the minion's clock
}

// maxMoves bounds the changes of masters that are kept of one minion.
const maxMoves = 20

// movesWith returns the changes of masters of a minion, the newest first, after a report whose last change is last: minions repeat it.
func movesWith(old []runners.StandingChange, last *runners.StandingChange) []runners.StandingChange {
	if last == nil || len(old) > 0 && old[0].At.Equal(last.At) && old[0].To == last.To {
		return old
	}
	return append([]runners.StandingChange{*last}, old[:min(len(old), maxMoves-1)]...)
}

// openPastMoves reads the changes that are kept.
func openPastMoves(own string, keep time.Duration, log *slog.Logger) *pastMoves {
	p := &pastMoves{dir: daily.Dir{Path: filepath.Join(own, minionsDir), Name: "moves", MaxDay: maxMovesDay, MaxAll: maxMovesAll}, keep: keep,
		log: ratelimit.NewLog(log, 1, time.Minute), byID: map[string][]runners.StandingChange{}, waiting: map[string]*bytes.Buffer{}, today: map[string]int{}}
	err := p.dir.Each(func(day string, text []byte) {
		for line := range bytes.Lines(text) {
			var m moveLine
			if json.Unmarshal(line, &m) != nil || m.ID == "" || len(line) > maxMoveLine {
				continue // a crash cut it off
			}
			p.note(m.ID, &runners.StandingChange{From: m.From, To: m.To, Reason: m.Reason, Seconds: m.Seconds, At: m.At}, day)
		}
	})
	if err != nil {
		log.Warn("cannot read earlier changes of masters of minions", "err", err)
	}
	return p
}

// note adds a change to those in memory, and reports whether it is new and to be written. p.mu is held.
func (p *pastMoves) note(id string, c *runners.StandingChange, day string) (moves []runners.StandingChange, write bool) {
	old := p.byID[id]
	moves = movesWith(old, c)
	if len(moves) == 0 || len(old) > 0 && &moves[0] == &old[0] {
		return moves, false
	}
	p.byID[id] = moves
	if p.day != day {
		p.day, p.today = day, map[string]int{}
	}
	p.today[id]++
	return moves, p.today[id] <= maxMovesOfOne
}

// add returns the changes of a minion, the newest first, after a report whose last change is last.
func (p *pastMoves) add(id string, last *runners.StandingChange, now time.Time) []runners.StandingChange {
	if p == nil {
		return movesWith(nil, last)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	day := daily.Day(now)
	moves, write := p.note(id, last, day)
	if !write {
		return moves
	}
	b := p.waiting[day]
	if b == nil {
		b = &bytes.Buffer{}
		p.waiting[day] = b
	}
	line, err := json.Marshal(moveLine{id, last.From, last.To, last.Reason, last.Seconds, last.At})
	if err == nil && b.Len()+len(line) < maxMovesWait {
		b.Write(append(line, '\n'))
	}
	return moves
}

// of returns the changes of a minion, the newest first.
func (p *pastMoves) of(id string) []runners.StandingChange {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.byID[id])
}

// forget drops minions without an accepted key. Their lines go with their days.
func (p *pastMoves) forget(accepted map[string]bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id := range p.byID {
		if !accepted[id] {
			delete(p.byID, id)
		}
	}
}

// write writes what waits.
func (p *pastMoves) write() {
	p.mu.Lock()
	waiting := p.waiting
	p.waiting = map[string]*bytes.Buffer{}
	p.mu.Unlock()
	for day, b := range waiting {
		err := p.dir.Append(day, b.Bytes())
		if err == nil {
			continue
		}
		p.log.Log(slog.LevelWarn, "cannot keep changes of masters of minions", "err", err)
		if errors.Is(err, daily.ErrFull) {
			continue
		}
		p.mu.Lock()
		if later := p.waiting[day]; later != nil {
			b.Write(later.Bytes())
		}
		if b.Len() < 2*maxMovesWait {
			p.waiting[day] = b
		}
		p.mu.Unlock()
	}
}

// run writes and cleans until ctx ends.
func (p *pastMoves) run(ctx context.Context) error {
	tick, clean := time.NewTicker(dailyWritten), time.NewTicker(dailyCleaned)
	defer tick.Stop()
	defer clean.Stop()
	for {
		select {
		case <-ctx.Done():
			p.write()
			return nil
		case <-tick.C:
			p.write()
		case <-clean.C:
			if _, err := p.dir.Clean(p.keep, steady.Removal()); err != nil {
				p.log.Log(slog.LevelWarn, "cannot remove old changes of masters of minions; retrying", "err", err)
			}
		}
	}
}
