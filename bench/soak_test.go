package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/test/tools"
)

// TestSoak is a short soak test: every request is answered, and the master logs no error.
func TestSoak(t *testing.T) {
	dir, err := os.MkdirTemp("", "bs") // short, for sockets in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	bin, err := tools.Binary(dir)
	if err == nil {
		err = os.Symlink(bin, filepath.Join(dir, "salt-master"))
	}
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{programs: programs{brine: dir}, scale: 1, soak: 4 * time.Second, tmp: dir, out: filepath.Join(dir, "out")}
	if err := b.makeKeys(); err != nil {
		t.Fatal(err)
	}
	if err := b.soakTest(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(b.out, "soak.txt"))
	if err != nil || !strings.Contains(string(text), "flat, and no error logged") || !strings.Contains(string(text), "own memory") {
		t.Errorf("it wrote %s, %v", text, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "brine-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFlat(t *testing.T) {
	base := health{goroutines: 100}
	base.mem.Own = 100e6
	for _, c := range []struct {
		own        int64
		goroutines int
		flat       bool
	}{{100e6, 100, true}, {124e6, 124, true}, {126e6, 100, false}, {50e6, 126, false}} {
		h := health{goroutines: c.goroutines}
		h.mem.Own = c.own
		if err := h.flat(base); (err == nil) != c.flat {
			t.Errorf("%d bytes and %d goroutines: %v", c.own, c.goroutines, err)
		}
	}
}
