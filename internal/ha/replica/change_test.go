package replica

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/store/oplog"
)

// TestChange: of concurrent changes the one with the higher rank wins, whatever their times; Change
// passes the winning version to fn, writes nothing if fn declines, and reports whether its version
// won. Drop removes a record only locally.
func TestChange(t *testing.T) {
	open := func(id string) *Store {
		dir := filepath.Join(t.TempDir(), id)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir, id, Ranks{"work": func(b []byte) int { return len(b) }}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	a, b := open("a"), open("b")
	send := func(from, to *Store) {
		t.Helper()
		has, err := to.Vector()
		if err != nil {
			t.Fatal(err)
		}
		batch, err := from.Read(from.Self(), has[from.Self()], 100, 1<<20)
		if err == nil {
			err = to.Apply(batch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change := func(s *Store, value, sees string, counts bool) {
		t.Helper()
		did, err := s.Change("work", "x", func(now *Record) ([]byte, bool) {
			have := ""
			if now != nil {
				have = string(now.Value)
			}
			if have != sees {
				t.Errorf("a change sees %q, not %q", have, sees)
			}
			return []byte(value), value != ""
		})
		if err != nil || did != counts {
			t.Errorf("%q: %v %v", value, did, err)
		}
	}
	is := func(s *Store, want string) {
		t.Helper()
		if r, err := s.Get("work", "x"); err != nil || r == nil || !bytes.Equal(r.Value, []byte(want)) {
			t.Errorf("%+v %v, want %q", r, err, want)
		}
	}
	change(a, "1", "", true)
	change(a, "", "1", false)
	send(a, b)
	change(b, "333", "1", true) // the next holder continues
	change(a, "22", "1", true)  // the previous holder finishes late without knowing of the change
	send(b, a)
	send(a, b)
	is(a, "333")
	is(b, "333")
	change(a, "22", "333", true) // a master that knows both decides
	send(a, b)
	is(b, "22")
	if err := a.Drop("work", "x"); err != nil {
		t.Fatal(err)
	}
	if r, err := a.Get("work", "x"); err != nil || r != nil {
		t.Errorf("%+v %v", r, err)
	}
	if batch, err := a.Read(a.Self(), 0, 100, 1<<20); err != nil || len(batch.Items) != 0 {
		t.Errorf("%+v %v", batch, err)
	}
	send(a, b)
	is(b, "22")
	var v oplog.Vector
	if v, _ = a.Vector(); v[a.Self()] == 0 {
		t.Error("numbers restart")
	}
}
