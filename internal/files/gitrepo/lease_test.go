package gitrepo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func heldBy(t *testing.T, l *Leases, path string) string {
	t.Helper()
	_, _, err := l.Take(t.Context(), path, 0)
	var other *HeldError
	if !errors.As(err, &other) {
		t.Fatalf("the lock can be had: %v", err)
	}
	return other.owner.String()
}

func TestLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "work", "update.lk")
	l := &Leases{Global: true}
	a, _, err := l.Take(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(b), fmt.Sprintf("%d\n%s\n", os.Getpid(), MachineID())) {
		t.Errorf("the first lines are not Salt's: %q, %v", b, err)
	}
	if got := heldBy(t, &Leases{Global: true}, path); !strings.Contains(got, fmt.Sprint(os.Getpid())) {
		t.Error(got)
	}
	if err := a.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Error("the file is still there", err)
	}
	a, _, err = l.Take(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if was, err := l.Clear(path); !was || err != nil {
		t.Error(was, err)
	}
	if err := a.Guarded(func() error { return nil }); !errors.Is(err, errLost) {
		t.Error("who lost a lock still acts:", err)
	}
	if err := a.Release(); err != nil {
		t.Error(err)
	}
}

// TestDeadOwners checks that the lock of a dead owner is available immediately,
// and that of a live one is not.
func TestDeadOwners(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	gone, self := dead.Process.Pid, me()
	other := self
	other.machine, other.host, other.pid = "another", "elsewhere", gone
	for name, c := range map[string]struct {
		text                  string
		free, freeIfNotGlobal bool
	}{
		"nothing":          {"", true, true},
		"stock, dead":      {fmt.Sprintf("%d\n%s\n", gone, self.machine), true, true},
		"stock, alive":     {fmt.Sprintf("%d\n%s\n", 1, self.machine), false, false},
		"stock, elsewhere": {fmt.Sprintf("%d\nanother\n", gone), false, true},
		"stock, rubbish":   {"rubbish\n" + self.machine + "\n", true, true},
		"dead":             {string(owner{pid: gone, machine: self.machine, boot: self.boot, space: self.space, token: "x"}.text()), true, true},
		"before a reboot":  {string(owner{pid: 1, machine: self.machine, boot: "old", space: self.space, token: "x"}.text()), true, true},
		"another with the number": {string(owner{pid: 1, machine: self.machine, boot: self.boot, space: self.space, start: "999999999999",
			token: "x"}.text()), true, true},
		"alive": {string(owner{pid: 1, machine: self.machine, boot: self.boot, space: self.space, start: startOf(1), token: "x"}.text()), false,
			false},
		"another container": {string(owner{pid: gone, machine: self.machine, boot: self.boot, space: "pid:[1]", token: "x"}.text()), false, true},
		"elsewhere":         {string(other.text()), false, true},
		"by hand":           {string(owner{pid: gone, machine: self.machine, token: "x", until: time.Now().Add(time.Hour)}.text()), false, false},
		"by hand, long ago": {string(owner{pid: gone, machine: self.machine, token: "x", until: time.Now().Add(-time.Hour)}.text()), true, true},
	} {
		for _, global := range []bool{true, false} {
			path := filepath.Join(t.TempDir(), "update.lk")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			want := c.free
			if !global {
				want = c.freeIfNotGlobal
			}
			lease, _, err := (&Leases{Global: global}).Take(t.Context(), path, 0)
			if (err == nil) != want {
				t.Errorf("%s, global %v: free is %v, want %v (%v)", name, global, err == nil, want, err)
			}
			if lease != nil {
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestUnrenewed checks that a lock of another machine expires if it is not
// renewed, and only then.
func TestUnrenewed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "update.lk")
	o := owner{pid: 1, machine: "another", token: "x"}
	write := func() {
		o.renewed++
		if err := os.WriteFile(path, o.text(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	l := &Leases{Global: true, Time: 50 * time.Millisecond}
	for range 5 {
		heldBy(t, l, path)
		// Backdate the last sighting instead of waiting.
		l.mu.Lock()
		s := l.seen[path]
		s.since = s.since.Add(-time.Hour)
		l.seen[path] = s
		l.mu.Unlock()
		write()
	}
	lease, _, err := l.Take(t.Context(), path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
}

// TestLostLease checks that a process that was suspended and could not renew
// its lease learns that the lease is lost.
func TestLostLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "update.lk")
	l := &Leases{Global: true, Time: 30 * time.Millisecond}
	lease, ctx, err := l.Take(t.Context(), path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, owner{pid: 1, machine: "another", token: "other"}.text(), 0o600); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), errLost) {
		t.Error(context.Cause(ctx))
	}
	if err := lease.Release(); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); !strings.Contains(string(b), "token=other") {
		t.Error("another's lock was removed")
	}
}

// TestTakeOverAtOnce checks that only one of many processes at a time takes
// over a dead owner's lock.
func TestTakeOverAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "update.lk")
	var inside sync.Mutex
	for round := range 20 {
		if err := os.WriteFile(path, []byte("0\nnobody\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				lease, _, err := (&Leases{}).Take(t.Context(), path, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				if alone := inside.TryLock(); !alone {
					t.Errorf("round %d: two have the lock", round)
				} else {
					_, _ = os.ReadFile(path) // takes some time, in which others try
					inside.Unlock()
				}
				if err := lease.Release(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
