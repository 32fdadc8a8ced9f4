package grains

import (
	"context"
	"errors"
	"testing"

	"brine/internal/daemons/minion/background"
	"brine/internal/py/value"
)

func newStore(t *testing.T, late bool, grain any) (s *Store, collected *int) {
	collected = new(int)
	return New(Config{
		ID: "w1", Late: late, Background: background.New(t.Context()), Master: value.ListOf("a:1", "b"),
		First: func(name string) (string, error) {
			if name != "a:1" {
				return "", errors.New("another name")
			}
			return "a", nil
		},
		Collect: func(context.Context) *value.Dict {
			*collected++
			return value.DictOf("n", int64(*collected), "master", grain)
		},
	}), collected
}

func TestLateGrains(t *testing.T) {
	s, collected := newStore(t, true, nil)
	r := s.Reader(nil)
	if s.Collected() || *collected != 0 {
		t.Error("collected before a function asks")
	}
	if r.Get("n") != int64(1) || r.All().Str("id") != "w1" || *collected != 1 {
		t.Errorf("%s, collected %d times", value.Repr(r.All()), *collected)
	}
	s.Collect(t.Context())
	if r.Get("n") != int64(2) {
		t.Errorf("after a refresh a function still sees %v", r.Get("n"))
	}
}

func TestReaderSeesTheGrainsOfItsTime(t *testing.T) {
	s, _ := newStore(t, false, nil)
	s.Collect(t.Context())
	r := s.Reader(nil)
	s.Collect(t.Context())
	if r.Get("n") != int64(1) || s.Grains().At("n") != int64(2) {
		t.Error("a job's grains change while it runs")
	}
}

func TestChange(t *testing.T) {
	s, _ := newStore(t, false, nil)
	s.Collect(t.Context())
	old := s.Grains()
	s.Change(value.DictOf("role", "web"), []string{"n", "none"})
	if g := s.Grains(); g.Str("role") != "web" || g.Has("n") || !old.Has("n") {
		t.Errorf("%s, before %s", value.Repr(g), value.Repr(old))
	}
}

// TestNameOfOneMaster: the grain master is the first name of the option, unless the
// operator set another value.
func TestNameOfOneMaster(t *testing.T) {
	for _, c := range []struct {
		grain, want any
		names       bool
	}{
		{value.ListOf("a:1", "b"), "a", true}, {value.ListOf("x"), value.ListOf("x"), false}, {"own", "own", false},
	} {
		s, _ := newStore(t, false, c.grain)
		s.Collect(t.Context())
		if got := s.Grains().At("master"); !value.Equal(got, c.want) || s.NamesMaster() != c.names {
			t.Errorf("%v: %v, %v", c.grain, got, s.NamesMaster())
		}
	}
}
