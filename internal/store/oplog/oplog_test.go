package oplog

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
)

func open(t *testing.T) *bolt.DB {
	t.Helper()
	db, err := bolt.Open(filepath.Join(t.TempDir(), "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	update(t, db, func(tx *bolt.Tx) error { return Init(tx, "m1") })
	return db
}

func update(t *testing.T, db *bolt.DB, fn func(*bolt.Tx) error) {
	t.Helper()
	if err := db.Update(fn); err != nil {
		t.Fatal(err)
	}
}

// TestChangesRelayed checks that a file can pass on the changes of another origin, also after some were
// replaced, and that a gap is refused.
func TestChangesRelayed(t *testing.T) {
	a, b := open(t), open(t)
	var self string
	update(t, a, func(tx *bolt.Tx) error {
		for _, ref := range []string{"x", "y", "z"} {
			if _, _, err := Append(tx, []byte(ref)); err != nil {
				return err
			}
		}
		self = Self(tx)
		return Drop(tx, self, 3)
	})
	var got []string
	update(t, a, func(tx *bolt.Tx) error {
		if to := Each(tx, self, 0, func(_ uint64, ref []byte) bool { got = append(got, string(ref)); return true }); to != 3 {
			t.Errorf("seen up to %d, want 3", to)
		}
		if to := Each(tx, self, 0, func(n uint64, _ []byte) bool { return n < 2 }); to != 1 {
			t.Errorf("stopped after 1, got %d", to)
		}
		return nil
	})
	if len(got) != 2 {
		t.Errorf("%q", got)
	}
	update(t, b, func(tx *bolt.Tx) error {
		if _, err := Accept(tx, Batch{Origin: self, From: 1, To: 3}); !errors.Is(err, ErrGap) {
			t.Errorf("a gap: %v", err)
		}
		if _, err := Accept(tx, Batch{Origin: self, From: 0, To: 2, Items: []Item{{Number: 2}, {Number: 1}}}); err == nil {
			t.Error("a batch out of order was taken")
		}
		if _, err := Accept(tx, Batch{Origin: self, From: 0, To: 2}); err != nil {
			t.Error(err)
		}
		before, err := Accept(tx, Batch{Origin: self, From: 0, To: 3})
		if err != nil || before != 2 {
			t.Errorf("known before: %d, %v", before, err)
		}
		if v := ReadVector(tx); v[self] != 3 || len(v) != 1 {
			t.Errorf("%v", v)
		}
		if Self(tx) == self {
			t.Error("two files have the same name")
		}
		return nil
	})
}

// TestSweep removes changes of missing items at the beginning of an origin, but none after a change that
// counts.
func TestSweep(t *testing.T) {
	db := open(t)
	update(t, db, func(tx *bolt.Tx) error {
		for _, ref := range []string{"old", "old", "new", "old"} {
			if _, _, err := Append(tx, []byte(ref)); err != nil {
				return err
			}
		}
		if err := Sweep(tx, func(ref []byte) bool { return string(ref) == "old" }); err != nil {
			return err
		}
		var left []uint64
		Each(tx, Self(tx), 0, func(n uint64, _ []byte) bool { left = append(left, n); return true })
		if len(left) != 2 || left[0] != 3 {
			t.Errorf("left: %v", left)
		}
		return nil
	})
}

// TestNameOfEachLife checks that a file gets a new name each time it is opened, and that its master
// recognizes all of them. A name under which nothing was written leaves no trace.
func TestNameOfEachLife(t *testing.T) {
	db := open(t)
	var names []string
	life := func(changes int) {
		update(t, db, func(tx *bolt.Tx) error {
			if err := Init(tx, "m1"); err != nil {
				return err
			}
			names = append(names, Self(tx))
			for range changes {
				if _, _, err := Append(tx, []byte("x")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	life(0)
	life(2)
	life(0)
	life(1)
	for i, n := range names {
		if slices.Contains(names[:i], n) {
			t.Errorf("%q", names)
		}
	}
	update(t, db, func(tx *bolt.Tx) error {
		if v := ReadVector(tx); len(v) != 2 || v[names[1]] != 2 || v[names[3]] != 1 {
			t.Errorf("%v of %q", v, names)
		}
		return nil
	})
	for _, n := range names {
		if !Own(n, "m1") || Own(n, "m2") || len(n) > maxName {
			t.Errorf("%q", n)
		}
	}
	if Own("0123456789abcdef", "m1") || Own("", "m1") {
		t.Error("a name of an older version counts as own")
	}
}
