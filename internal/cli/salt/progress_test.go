package salt

import (
	"errors"
	"strings"
	"testing"
	"time"

	"brine/internal/call/client"
	"brine/internal/cli/frame"
)

func TestProgressText(t *testing.T) {
	begun := time.Now()
	p := &progress{begun: begun, total: 5, since: map[string]time.Time{}}
	p.start([]string{"e", "d", "c", "b", "a"})
	for id := range p.since {
		p.since[id] = begun
	}
	at := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	for _, step := range []struct {
		id     string // "" for no minion
		absent bool
		after  float64
		want   string
	}{
		{"", false, 1.2, "0/5 returned, 1s, waiting for a, b, c and 2 more"},
		{"b", false, 2.34, "1/5 returned, 2s, slowest b 2.3s, waiting for a, c, d and 1 more"},
		{"e", true, 61.9, "2/5 returned, 1m1s, slowest b 2.3s, waiting for a, c, d"},
		{"a", false, 62, "3/5 returned, 1m2s, slowest a 62.0s, waiting for c, d"},
		{"unexpected", false, 63, "4/5 returned, 1m3s, slowest a 62.0s, waiting for c, d"},
	} {
		if step.id != "" {
			p.count(client.Result{ID: step.id, Absent: step.absent}, at(step.after))
		}
		if got := p.text(at(step.after)); got != step.want {
			t.Errorf("got %q, want %q", got, step.want)
		}
	}
	p.bar = true
	if got, want := p.text(at(64)), "["+strings.Repeat("#", 32)+strings.Repeat(" ", 8)+"] 4/5 returned, 1m4s"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestProgressAside checks that other output never mixes with the progress line, and that errors of
// writing are returned.
func TestProgressAside(t *testing.T) {
	var b strings.Builder
	p := &progress{Line: frame.NewLine(&b, 30), begun: time.Now(), total: 2, since: map[string]time.Time{}}
	p.start([]string{"a", "b"})
	p.Show(p.text(p.begun))
	broken := errors.New("cannot write")
	if err := p.step(client.Result{ID: "a"}, func() error { b.WriteString("a: True\n"); return broken }); err != broken {
		t.Error(err)
	}
	if got, want := b.String(), "\r\x1b[K0/2 returned, 0s, waiting for\r\r\x1b[Ka: True\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
