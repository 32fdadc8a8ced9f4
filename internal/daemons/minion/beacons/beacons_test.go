package beacons

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/call/fn"
	catalogue "brine/internal/catalogue/beacons"
	"brine/internal/daemons/minion/localbus"
	"brine/internal/py/value"
)

// station is a scheduler with one beacon, eye, that a test controls.
type station struct {
	*Scheduler
	wg      sync.WaitGroup
	mu      sync.Mutex // guards looks, closed and fired during checks
	looks   int
	closed  int
	err     error
	running []string
	fired   []string
	pillar  *value.Dict
}

func (s *station) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

// at runs a turn at a second after the start; it returns when the checks are done.
func (s *station) at(sec int) bool {
	there := s.turn(begin.Add(time.Duration(sec) * time.Second))
	s.wg.Wait()
	return there
}

var begin = time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC)

func newStation(t *testing.T, own any) *station {
	t.Helper()
	s := &station{}
	l, err := New(Config{
		Options: Options{Beacons: own}, ID: "w1", Masterless: true, Opts: value.DictOf("conf_file", filepath.Join(t.TempDir(), "minion")),
		Pillar: func() *value.Dict { return s.pillar }, Running: func() []string { return s.running },
		Call: func() (context.Context, *fn.Call) { return t.Context(), &fn.Call{} }, Go: s.wg.Go,
		Fire: func(tag string, data any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.fired = append(s.fired, tag+" "+value.Repr(data))
		},
		Report: func(string, *value.Dict) {},
		Log:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Scheduler = l
	l.kinds = map[string]catalogue.Beacon{"eye": {Name: "eye",
		Validate: func(c catalogue.Config) error {
			if c.Get("bad") != nil {
				return errors.New("bad is not good")
			}
			return nil
		},
		Look: func(_ context.Context, l catalogue.Look) ([]*value.Dict, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.looks++
			*l.Held = io.Closer(s)
			return []*value.Dict{value.DictOf("tag", "seen", "n", s.looks)}, s.err
		}}}
	return s
}

func list(kv ...any) *value.List { return value.ListOf(value.DictOf(kv...)) }

func TestLooksByInterval(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list("interval", int64(5))))
	want := map[int]int{0: 0, 4: 0, 5: 1, 6: 1, 10: 2, 11: 2}
	for _, sec := range []int{0, 4, 5, 6, 10, 11} {
		if !s.at(sec) || s.looks != want[sec] {
			t.Errorf("after %d s: %d looks, want %d", sec, s.looks, want[sec])
		}
	}
	if s.fired[0] != "salt/beacon/w1/eye/seen {'n': 1, 'id': 'w1'}" {
		t.Errorf("fired %q", s.fired[0])
	}
}

func TestNoLookDuringStates(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list("disable_during_state_run", true)))
	s.at(0)
	s.running = []string{"test.ping", "state.apply"}
	s.at(2)
	if s.looks != 1 || s.closed != 1 {
		t.Errorf("%d looks, closed %d times", s.looks, s.closed)
	}
	s.running = nil
	if s.at(4); s.looks != 2 {
		t.Errorf("afterwards %d looks", s.looks)
	}
}

func TestRunOnce(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list("run_once", true)))
	for sec := range 5 {
		s.at(sec)
	}
	if s.looks != 1 {
		t.Errorf("%d looks", s.looks)
	}
}

func TestBrokenBeaconsAreLeftOut(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list("bad", true), "unknown", list(), "napalm_beacon", list(), "x", list("beacon_module", "eye")))
	s.err = errors.New("cannot see all") // the events of a check are sent although it fails
	s.at(0)
	if s.looks != 1 || len(s.fired) != 1 || !strings.HasPrefix(s.fired[0], "salt/beacon/w1/x/seen") {
		t.Errorf("%d looks, fired %v", s.looks, s.fired)
	}
	if _, err := New(Config{Options: Options{Beacons: "x"}}); err == nil {
		t.Error("beacons that are a string are taken")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list()))
	s.at(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.Run(ctx)
	s.wg.Wait()
	if s.closed == 0 || len(s.watches) != 0 {
		t.Errorf("closed %d times, %d are left", s.closed, len(s.watches))
	}
}

func TestManage(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list()))
	s.pillar = value.DictOf("beacons", value.DictOf("shared", list("beacon_module", "eye")))
	s.at(0)
	if s.looks != 2 {
		t.Errorf("%d looks of the option and the pillar", s.looks)
	}
	ask := func(fun, name string, more ...any) *value.Dict {
		d := value.DictOf("func", fun, "name", name)
		d.Update(value.DictOf(more...))
		return s.manage(d)
	}
	for _, c := range []struct{ fun, name, want string }{
		{"add", "new", "Added new beacon item: new"},
		{"add", "new", "Updating settings for beacon item: new"},
		{"modify", "new", "Updating settings for beacon item: new"},
		{"disable_beacon", "new", "Disabling beacon item new"},
		{"enable_beacon", "new", "Enabling beacon item new"},
		{"delete", "new", "Deleting beacon item: new"},
		{"delete", "new", "Beacon item new not found."},
		{"add", "shared", "Cannot update beacon item shared, because it is configured in pillar."},
		{"delete", "shared", "Cannot delete beacon item shared, it is configured in pillar."},
		{"disable_beacon", "shared", "Cannot disable beacon item shared, it is configured in pillar."},
		{"nonsense", "x", "unknown request"},
		{"reset", "", "Beacons have been reset"},
	} {
		d := ask(c.fun, c.name, "beacon_data", list())
		refused := strings.HasPrefix(c.want, "Cannot") || c.fun == "nonsense"
		if d.Str("comment") != c.want || d.Bool("complete") == refused {
			t.Errorf("%s %s: %s", c.fun, c.name, value.Repr(d))
		}
	}
	if d := ask("list", "", "include_pillar", false).Dict("beacons"); d.Len() != 1 || !d.Has("eye") {
		t.Errorf("of the option: %s", value.Repr(d))
	}
	if d := ask("list_available", ""); value.Repr(d.At("beacons")) != "['eye']" {
		t.Errorf("available: %s", value.Repr(d))
	}
	for _, c := range []struct {
		data  any
		valid bool
	}{{list(), true}, {list("bad", true), false}} {
		if d := ask("validate_beacon", "eye", "beacon_data", c.data); d.Bool("valid") != c.valid {
			t.Errorf("%s: %s", value.Repr(c.data), value.Repr(d))
		}
	}
	ask("disable", "")
	before := s.looks
	if s.at(10); s.looks != before {
		t.Error("looked although all are disabled")
	}
}

func TestFunctions(t *testing.T) {
	s := newStation(t, value.DictOf("eye", list()))
	f := Functions{Scheduler: s.Scheduler, Bus: localbus.New(localbus.Config{})}
	if d, err := f.Manage(t.Context(), value.DictOf("func", "list")); err != nil || !d.Dict("beacons").Has("eye") {
		t.Errorf("%v, %v", d, err)
	}
	path, err := f.Save(s.own)
	if err != nil || filepath.Base(path) != "beacons.conf" {
		t.Fatal(path, err)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), "beacons:\n  eye:") {
		t.Errorf("%q, %v", b, err)
	}
	s.cfg.Opts = value.NewDict(0)
	if _, err := f.Save(s.own); err == nil {
		t.Error("saved nowhere")
	}
}
