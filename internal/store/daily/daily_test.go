package daily

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func content(t *testing.T, d Dir) (out string) {
	t.Helper()
	if err := d.Each(func(day string, text []byte) { out += day + ":" + string(text) + ";" }); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(out, "\n", "|")
}

// TestDays: lines are kept by days, also after one that a crash cut off, within the bounds.
func TestDays(t *testing.T) {
	d := Dir{Path: filepath.Join(t.TempDir(), "x"), Name: "moves", MaxDay: 20, MaxAll: 25}
	if got := content(t, d); got != "" {
		t.Error(got)
	}
	if removed, err := d.Clean(time.Hour, time.Now()); removed || err != nil {
		t.Error(removed, err)
	}
	for _, x := range []struct{ day, lines string }{{"2026-03-02", "one\n"}, {"2026-03-01", "zero\n"}, {"2026-03-02", "two\n"}} {
		if err := d.Append(x.day, []byte(x.lines)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := content(t, d), "2026-03-01:zero|;2026-03-02:one|two|;"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := d.Append("2026-03-02", []byte(strings.Repeat("x", 13))); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if err := os.WriteFile(d.file("2026-03-02"), []byte("one\ntw"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"moves-2026-13-01.json", "moves-x.json", "other-2026-03-01.json", "moves-2026-03-09.json.1"} {
		if err := os.WriteFile(filepath.Join(d.Path, name), []byte("y"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(d.file("2026-02-01"), make([]byte, 30), 0o600); err != nil { // of a version with other bounds
		t.Fatal(err)
	}
	if err := errors.Join(d.Append("2026-03-02", []byte("three\n")),
		d.Replace("2026-03-03", []byte("all\n")), d.Replace("2026-03-03", []byte("new\n"))); err != nil {
		t.Fatal(err)
	}
	if got, want := content(t, d), "2026-03-01:zero|;2026-03-02:one|tw|three|;2026-03-03:new|;"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := d.Replace("2026-03-03", make([]byte, 21)); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	at := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	for _, x := range []struct {
		keep    time.Duration
		removed bool
		want    string
	}{
		{0, true, "2026-03-01:zero|;2026-03-02:one|tw|three|;2026-03-03:new|;"}, // the bound of bytes
		{3 * 24 * time.Hour, false, "2026-03-01:zero|;2026-03-02:one|tw|three|;2026-03-03:new|;"},
		{2 * 24 * time.Hour, true, "2026-03-02:one|tw|three|;2026-03-03:new|;"},
		{time.Hour, true, ""},
	} {
		removed, err := d.Clean(x.keep, at)
		if got := content(t, d); removed != x.removed || err != nil || got != x.want {
			t.Errorf("%v: %v %v %s, want %s", x.keep, removed, err, got, x.want)
		}
	}
}
