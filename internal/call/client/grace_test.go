package client

import (
	"log/slog"
	"testing"
	"time"

	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// When all missing minions have answered that they do not run the job, only returns in transit can still
// arrive.
func TestRoundEndsEarlyWhenAllHaveAnswered(t *testing.T) {
	no := func(id string) *wire.Return { return &wire.Return{ID: id, Return: value.NewDict(0)} }
	yes := func(id string) *wire.Return { return &wire.Return{ID: id, Return: value.DictOf("jid", testJID)} }
	for _, c := range []struct {
		name    string
		grace   time.Duration
		answers []*wire.Return
		over    time.Duration // after the question
	}{
		{"all say no", time.Second, []*wire.Return{no("a"), no("b")}, time.Second},
		{"as Salt", 0, []*wire.Return{no("a"), no("b")}, 10 * time.Second},
		{"one is silent", time.Second, []*wire.Return{no("a")}, 10 * time.Second},
		{"one runs it", time.Second, []*wire.Return{no("a"), yes("b")}, -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Options{Timeout: 5 * time.Second, GatherJobTimeout: 10 * time.Second, GatherJobGrace: c.grace}
			now := time.Unix(1e9, 0)
			w := New(o, "", nil, nil, slog.New(slog.DiscardHandler)).newWait(Published{JID: testJID, Minions: []string{"a", "b"}}, &Job{}, now)
			now = now.Add(5 * time.Second)
			if _, due := w.due(now); !due {
				t.Fatal("no question is due")
			}
			w.asked("probe", now)
			for _, a := range c.answers {
				w.answered(a, now)
			}
			if c.over < 0 {
				if w.over(now.Add(9 * time.Second)) {
					t.Error("gave up a running job")
				}
				return
			}
			if w.over(now.Add(c.over - time.Millisecond)) {
				t.Errorf("over before %v", c.over)
			}
			if !w.over(now.Add(c.over)) {
				t.Errorf("not over after %v", c.over)
			}
		})
	}
}
