package config

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// TestLogFormatsInOrder: warnings are sorted by option name.
func TestLogFormatsInOrder(t *testing.T) {
	want := []string{"log_datefmt", "log_datefmt_console", "log_datefmt_logfile", "log_fmt_console", "log_fmt_jid", "log_fmt_logfile"}
	for range 20 {
		var out bytes.Buffer
		tree := NewTree(MinionKind, "", slog.New(slog.NewTextHandler(&out, nil)))
		for _, key := range want {
			tree.Values.Set(key, int64(1))
		}
		tree.checkLog()
		var got []string
		for _, w := range strings.Fields(out.String()) {
			if key, ok := strings.CutPrefix(w, "option="); ok {
				got = append(got, key)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q", got)
		}
	}
}
