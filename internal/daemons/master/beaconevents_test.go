package master

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/catalogue/runners"
)

// TestBeaconEvents: events of beacons are counted by minion and name, within bounds; other events are not.
func TestBeaconEvents(t *testing.T) {
	b := openBeaconEvents(t.TempDir(), 0, time.Now(), slog.New(slog.DiscardHandler))
	for _, tag := range []string{"salt/beacon/web1/load/", "salt/beacon/web1/load/x/y", "salt/beacon/web1/disk", "salt/beacon/web2/load/", "salt/beacon/web1/",
		"salt/beacon//load/", "salt/beacon", "salt/job/web1/load", "salt/beacon/web1/" + strings.Repeat("x", maxBeaconName+1) + "/"} {
		b.note(tag)
	}
	got := b.of("web1")
	if len(got) != 2 || got["load"].Count != 2 || got["disk"].Count != 1 || got["load"].Last.IsZero() || len(b.of("web3")) != 0 || len(b.today) != 2 {
		t.Errorf("%v", b.today)
	}
	for i := range 2 * maxBeaconsOfOne {
		b.note(fmt.Sprintf("salt/beacon/web1/b%d/", i))
	}
	if n := len(b.of("web1")); n != maxBeaconsOfOne {
		t.Errorf("%d beacons of one minion", n)
	}
	(*beaconEvents)(nil).note("salt/beacon/web1/load/")
}

// TestMovesKept: a repeated report adds no change of the master, and the number is bounded.
func TestMovesKept(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var all []runners.StandingChange
	for i := range 2 * maxMoves {
		c := &runners.StandingChange{From: "a", To: fmt.Sprint(i), At: at.Add(time.Duration(i) * time.Second)}
		all = movesWith(movesWith(all, c), c)
		if len(all) != min(i+1, maxMoves) || all[0].To != c.To {
			t.Fatalf("after %d changes: %v", i+1, all)
		}
	}
	if got := movesWith(all, nil); len(got) != maxMoves {
		t.Errorf("without a change: %v", got)
	}
}

// TestBeaconsKept: counts of beacons are there after a restart, by days, and go with their days.
func TestBeaconsKept(t *testing.T) {
	own, log := t.TempDir(), slog.New(slog.DiscardHandler)
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const keep = 48 * time.Hour
	open := func(day int) *beaconEvents { return openBeaconEvents(own, keep, at.AddDate(0, 0, day), log) }
	count := func(b *beaconEvents, want int64) {
		t.Helper()
		if got := b.of("web1")["load"]; got.Count != want || want > 0 && got.Last.IsZero() {
			t.Errorf("%+v, want %d", got, want)
		}
	}
	b := open(0)
	b.note("salt/beacon/web1/load/")
	b.write(at)
	b.note("salt/beacon/web1/load/")
	b.write(at.AddDate(0, 0, 1))
	count(b, 2)
	b.note("salt/beacon/web1/load/")
	b.write(at.AddDate(0, 0, 1))
	b.note("salt/beacon/web1/load/") // lost in a crash
	count(b, 4)
	b = open(1)
	count(b, 3)
	b.clean(at.AddDate(0, 0, 3))
	count(b, 1)
	b.clean(at.AddDate(0, 0, 4))
	count(b, 1) // today's
	b = open(5)
	count(b, 0)
	b.note("salt/beacon/web1/load/")
	b.forget(map[string]bool{"web2": true})
	b.write(at.AddDate(0, 0, 5))
	count(open(5), 0)
	for _, text := range []string{"{", `{"web1": {"load": {"n": -1}}}`, `{"web1": {"` + strings.Repeat("x", 1000) + `": {"n": 1}}}`, `[1]`, `{"web1": null}`} {
		if err := os.WriteFile(filepath.Join(own, minionsDir, "beacons-2026-03-06.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if b := open(5); len(b.of("web1")) != 0 {
			t.Errorf("%s: %v", text, b.of("web1"))
		}
	}
}

// TestMovesAfterRestart: changes of masters are there after a restart, each once, and go with their days.
func TestMovesAfterRestart(t *testing.T) {
	own, log := t.TempDir(), slog.New(slog.DiscardHandler)
	at := time.Now().UTC().Truncate(time.Millisecond)
	open := func() *pastMoves { return openPastMoves(own, 48*time.Hour, log) }
	names := func(all []runners.StandingChange) string {
		var out []string
		for _, c := range all {
			out = append(out, c.From+">"+c.To)
		}
		return strings.Join(out, " ")
	}
	move := func(from, to string, seconds int) *runners.StandingChange {
		return &runners.StandingChange{From: from, To: to, Reason: "closed", Seconds: 1.5, At: at.Add(time.Duration(seconds) * time.Second)}
	}
	p := open()
	p.add("w1", move("", "a", 0), at)
	p.write()
	p.add("w1", move("a", "b", 1), at)
	p.add("w1", move("a", "b", 1), at)
	p.add("w2", move("", "b", 1), at)
	p.add("w3", nil, at)
	p.write()
	f, err := os.OpenFile(p.dir.Path+"/moves-"+at.Format("2006-01-02")+".json", os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"id": "w1", "to":`)
	f.Close()
	p = open()
	if got := p.add("w1", move("a", "b", 1), at); names(got) != "a>b >a" ||
		got[0].Seconds != 1.5 || got[0].Reason != "closed" || !got[0].At.Equal(at.Add(time.Second)) {
		t.Errorf("%+v", got)
	}
	p.add("w1", move("b", "a", 2), at)
	p.write()
	p = open()
	if got := names(p.of("w1")) + ", " + names(p.of("w2")) + ", " + names(p.of("w3")); got != "b>a a>b >a, >b, " {
		t.Error(got)
	}
	// A minion that changes its master all the time keeps the last changes, and fills no disk.
	for i := range 3 * maxMovesOfOne {
		p.add("w4", move("a", "b", i), at)
	}
	p.write()
	if got := p.of("w4"); len(got) != maxMoves || !got[0].At.Equal(move("", "", 3*maxMovesOfOne-1).At) {
		t.Errorf("%+v", got)
	}
	p = open()
	if n := p.today["w4"]; n != maxMovesOfOne || len(p.of("w4")) != maxMoves {
		t.Errorf("%d lines", n)
	}
	p.forget(map[string]bool{"w2": true})
	if len(p.of("w1")) != 0 || len(p.of("w2")) != 1 {
		t.Error("forget")
	}
	if _, err := p.dir.Clean(p.keep, at.Add(4*24*time.Hour)); err != nil {
		t.Error(err)
	}
	if p = open(); len(p.byID) != 0 {
		t.Errorf("%v", p.byID)
	}
}
