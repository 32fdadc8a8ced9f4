package jinja

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLargeRenderings: a rendering that needs much memory or many steps waits for
// its turn once; a small one does not wait.
func TestLargeRenderings(t *testing.T) {
	for name, c := range map[string]struct {
		src   string
		turns int
	}{
		"small":       {"{% for x in range(1000) %}{% set a = 'x' * 1000 %}{% endfor %}", 0},
		"memory":      {"{% set a = 'x' * 5000000 %}", 1},
		"many pieces": {"{% set l = [] %}{% for x in range(10000) %}{% do l.append('x' * 1000) %}{% endfor %}", 1},
		"steps":       {"{% for x in range(3000) %}{% for y in range(1000) %}{% endfor %}{% endfor %}", 1},
		"both":        {"{% set a = 'x' * 5000000 %}{% for x in range(3000) %}{% for y in range(1000) %}{% endfor %}{% endfor %}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			tpl, err := New(Options{}).Parse("t", c.src)
			if err != nil {
				t.Fatal(err)
			}
			turns, ends := 0, 0
			_, err = tpl.Render(t.Context(), Run{Large: func(ctx context.Context) (context.Context, func(), error) {
				turns++
				return ctx, func() { ends++ }, nil
			}})
			if err != nil || turns != c.turns || ends != turns {
				t.Errorf("%d turns of which %d ended, %v; want %d", turns, ends, err, c.turns)
			}
		})
	}
}

// TestWaitForTurn: a rendering may wait longer for its turn than it may take.
func TestWaitForTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tpl, err := New(Options{MaxTime: time.Minute}).Parse("t", "{% set a = 'x' * 5000000 %}{% for x in range(1000) %}{% endfor %}{{ a | length }}")
		if err != nil {
			t.Fatal(err)
		}
		out, err := tpl.Render(t.Context(), Run{Large: func(ctx context.Context) (context.Context, func(), error) {
			time.Sleep(time.Hour)
			return ctx, func() {}, nil
		}})
		if err != nil || strings.TrimSpace(out) != "5000000" {
			t.Errorf("after a wait: %q, %v", out, err)
		}
	})
}
