package log

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"
)

// TestJSONLines: each value is a field of its own, with its type.
func TestJSONLines(t *testing.T) {
	l, b := logTo(t, Options{Lines: FormatJSON, Level: "debug"})
	l.With("component", "salt.master", "minion", "web \"1\"").With("cluster", "c").Warn("odd\n\x1b[0m", "n", 3, "ok", true, "err", errors.New("a\nb"),
		"jid", "20260101000000000000", "took", 1500*time.Millisecond, "share", math.Inf(1), "msg", "mine", "bad", "\xff", "at", time.Unix(0, 0))
	l.WithGroup("g").Debug("in", slog.Group("h", "k", uint64(7)))
	l.Error("long", "v", strings.Repeat("x", 2*maxValue))
	l.Log(t.Context(), LevelTrace, "hidden")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines: %s", len(lines), b)
	}
	var all []map[string]any
	for _, line := range lines {
		var d map[string]any
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, d)
	}
	first := all[0]
	if at, err := time.Parse(time.RFC3339Nano, first["time"].(string)); err != nil || time.Since(at) > time.Hour {
		t.Errorf("time %v: %v", first["time"], err)
	}
	delete(first, "time")
	want := map[string]any{"level": "warning", "logger": "salt.master", "pid": float64(os.Getpid()), "jid": "20260101000000000000", "msg": "odd\n\x1b[0m",
		"minion": "web \"1\"", "cluster": "c", "n": 3.0, "ok": true, "err": "a\nb", "took": 1.5, "share": "+Inf", "attr.msg": "mine", "bad": "\ufffd",
		"at": "1970-01-01T00:00:00Z"}
	for k, v := range want {
		if first[k] != v {
			t.Errorf("%s: %#v, want %#v", k, first[k], v)
		}
	}
	if len(first) != len(want) {
		t.Errorf("%v", first)
	}
	if all[1]["level"] != "debug" || all[1]["g.h.k"] != 7.0 || all[1]["logger"] != "salt" {
		t.Errorf("%v", all[1])
	}
	if s := all[2]["v"].(string); len(s) > maxValue+30 || !strings.Contains(s, "(8192 bytes)") {
		t.Errorf("%d bytes", len(s))
	}
}

// TestJSONOfDerivedLoggers: loggers derived from the same one do not share fields.
func TestJSONOfDerivedLoggers(t *testing.T) {
	l, b := logTo(t, Options{Lines: FormatJSON})
	base := l.With("a", 1)
	one, two := base.With("b", "one"), base.With("b", "two")
	one.Warn("x", "c", 1)
	two.Warn("x", "c", 2)
	one.Warn("x", "c", 3)
	for i, want := range []string{`"a":1,"b":"one","c":1}`, `"a":1,"b":"two","c":2}`, `"a":1,"b":"one","c":3}`} {
		if line := strings.Split(b.String(), "\n")[i]; !strings.HasSuffix(line, want) {
			t.Errorf("%s, want %s", line, want)
		}
	}
}

// TestJSONFile: a log file has the same form, and redacts passwords.
func TestJSONFile(t *testing.T) {
	path := t.TempDir() + "/log"
	l, _ := logTo(t, Options{Lines: FormatJSON, File: path})
	l.Error("cannot fetch", "url", "https://user:secret@git.example/x")
	b, err := os.ReadFile(path)
	var d map[string]any
	if err != nil || json.Unmarshal(b, &d) != nil || strings.Contains(string(b), "secret") || !strings.Contains(d["url"].(string), "git.example") {
		t.Errorf("%s: %v", b, err)
	}
}
