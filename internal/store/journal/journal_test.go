package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brine/test/fuzztest"
)

// reopen returns the records of a journal as strings.
func reopen(t *testing.T, path string) (j *Journal, got []string, cut int64) {
	t.Helper()
	j, cut, err := Open(path, func(r Record) error {
		got = append(got, string(r.Kind)+string(r.Payload))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j, got, cut
}

func put(t *testing.T, j *Journal, text string) Position {
	t.Helper()
	at, err := j.Append(text[0], []byte(text[1:]))
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestReopenReplaysRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "journal")
	j, got, _ := reopen(t, path)
	if len(got) != 0 {
		t.Fatalf("a new journal has %q", got)
	}
	put(t, j, "aone")
	at := put(t, j, "b")
	put(t, j, "c"+strings.Repeat("x", 100_000))
	if b, err := j.Read(at); err != nil || len(b) != 0 {
		t.Errorf("read: %q, %v", b, err)
	}
	// Not closed, as after a kill; only the lock is released.
	j.lock.Close()
	j.lock = nil
	_, got, cut := reopen(t, path)
	if cut != 0 || len(got) != 3 || got[0] != "aone" || got[1] != "b" || len(got[2]) != 100_001 {
		t.Errorf("cut %d, %d records", cut, len(got))
	}
}

func TestTornAndDamagedEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := reopen(t, path)
	for i := range 5 {
		put(t, j, fmt.Sprintf("r%d....", i))
	}
	j.Close()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := len(magic); n < len(whole); n++ {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		j, got, _ := reopen(t, path)
		if want := (n - len(magic)) / 14; len(got) != want {
			t.Fatalf("%d bytes: %d records, want %d", n, len(got), want)
		}
		put(t, j, "znew") // appended after the intact records
		j.Close()
		j, again, cut := reopen(t, path)
		j.Close()
		if cut != 0 || len(again) != len(got)+1 || again[len(got)] != "znew" {
			t.Fatalf("%d bytes: then %q", n, again)
		}
	}
	bad := bytes.Clone(whole)
	bad[len(magic)+14+header+2] ^= 1 // in the second record
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	_, got, cut := reopen(t, path)
	if len(got) != 1 || cut != 56 {
		t.Errorf("damaged: %q, cut %d", got, cut)
	}
	if aside, _ := os.ReadFile(path + ".damaged"); len(aside) != 56 {
		t.Errorf("%d bytes were saved", len(aside))
	}
}

func TestOnlyOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	reopen(t, path)
	if _, _, err := Open(path, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("the second: %v", err)
	}
}

func TestForeignFileIsNotChanged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	text := "something else that is long enough"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Open(path, nil); err == nil {
		t.Error("no error")
	}
	if b, _ := os.ReadFile(path); string(b) != text {
		t.Errorf("it is now %q", b)
	}
}

func TestRewrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := reopen(t, path)
	var keep Position
	for i := range 1000 {
		at := put(t, j, fmt.Sprintf("r%d", i))
		if i == 500 {
			keep = at
		}
	}
	failed := errors.New("no")
	if err := j.Rewrite(func(func(byte, []byte) (Position, error), func(Position) ([]byte, error)) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("error: %v", err)
	}
	if b, err := j.Read(keep); err != nil || string(b) != "500" {
		t.Errorf("after a failed rewrite: %q, %v", b, err)
	}
	err := j.Rewrite(func(emit func(byte, []byte) (Position, error), read func(Position) ([]byte, error)) error {
		b, err := read(keep)
		if err == nil {
			keep, err = emit('k', b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, j, "lafter")
	if b, err := j.Read(keep); err != nil || string(b) != "500" {
		t.Errorf("after a rewrite: %q, %v", b, err)
	}
	j.Close()
	if _, got, _ := reopen(t, path); strings.Join(got, " ") != "k500 lafter" {
		t.Errorf("then: %q", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := reopen(t, path)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := j.Append('r', fmt.Appendf(nil, "%d-%d", g, i)); err != nil {
					t.Error(err)
				}
				if err := j.Sync(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	j.Close()
	if _, got, _ := reopen(t, path); len(got) != 400 {
		t.Errorf("%d records", len(got))
	}
}

func FuzzOpen(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	path := filepath.Join(f.TempDir(), "journal")
	j, _, err := Open(path, nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"one", "", "three"} {
		if _, err := j.Append('r', []byte(s)); err != nil {
			f.Fatal(err)
		}
	}
	j.Close()
	seed, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add(append(bytes.Clone(seed), 0xff, 0xff, 0xff, 0x03, 1, 2, 3, 4, 5))
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		good, _, err := scan(bytes.NewReader(b), func(r Record) error { n++; return nil })
		if err == nil && (good > int64(len(b)) || good < int64(len(magic)+9*n)) {
			t.Errorf("%d records, good until %d of %d", n, good, len(b))
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	j, _, err := Open(filepath.Join(b.TempDir(), "journal"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	payload := make([]byte, 400)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := j.Append('r', payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sync", func(b *testing.B) {
		for b.Loop() {
			_, _ = j.Append('r', payload)
			if err := j.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sync-64-at-once", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				_, _ = j.Append('r', payload)
				if err := j.Sync(); err != nil {
					b.Error(err)
				}
			}
		})
	})
}
