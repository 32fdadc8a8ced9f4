package boltfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

var bucket = []byte("b")

func put(f *File, key string) error {
	return f.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucket)
		if err != nil {
			return err
		}
		return b.Put([]byte(key), []byte("x"))
	})
}

// has fails the test unless the file has all keys.
func has(t *testing.T, f *File, keys ...string) {
	t.Helper()
	if err := f.View(func(tx *bolt.Tx) error {
		for _, k := range keys {
			if tx.Bucket(bucket).Get([]byte(k)) == nil {
				t.Errorf("%s is missing", k)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T) (f *File, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.db")
	f, err := Open(path, bolt.Options{Timeout: time.Second})
	must(t, err)
	t.Cleanup(func() { f.Close() })
	must(t, put(f, "before"))
	return f, path
}

func stat(t *testing.T, path string) os.FileInfo {
	t.Helper()
	fi, err := os.Stat(path)
	must(t, err)
	return fi
}

// failOnce makes the next commit fail after its writes.
func failOnce(f *File, err error) {
	f.commit = func(tx *bolt.Tx) error {
		f.commit = (*bolt.Tx).Commit
		return errors.Join(tx.Commit(), err)
	}
}

// TestFailedFlush checks that after a failed flush no change is accepted until the file is replaced
// by a flushed copy, which other processes find locked.
func TestFailedFlush(t *testing.T) {
	f, path := open(t)
	old := stat(t, path)
	failOnce(f, syscall.EIO)
	if err := put(f, "failed"); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	f.sync = func(*os.File) error { return syscall.EROFS }
	for range 2 {
		if err := put(f, "refused"); !errors.Is(err, syscall.EIO) || !errors.Is(err, syscall.EROFS) {
			t.Fatal("a change counts without a good file:", err)
		}
	}
	has(t, f, "before")
	if !os.SameFile(old, stat(t, path)) {
		t.Error("a copy that is not flushed has replaced the file")
	}

	synced := 0
	f.sync = func(x *os.File) error { synced++; return x.Sync() }
	must(t, put(f, "after"))
	if synced != 2 {
		t.Errorf("%d flushes, not of the copy and its directory", synced)
	}
	now := stat(t, path)
	if os.SameFile(old, now) || now.Mode().Perm() != 0o600 {
		t.Errorf("the file was not replaced: %v", now.Mode())
	}
	has(t, f, "before", "after")
	if _, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: 50 * time.Millisecond}); !errors.Is(err, berrors.ErrTimeout) {
		t.Errorf("another process can open the file: %v", err)
	}
	must(t, put(f, "more"))
	if synced != 2 || !os.SameFile(now, stat(t, path)) {
		t.Error("a good file was replaced")
	}
	must(t, f.Close())
	again, err := Open(path, bolt.Options{Timeout: time.Second})
	must(t, err)
	defer again.Close()
	has(t, again, "before", "after", "more")
	if l, err := filepath.Glob(path + ".*"); err != nil || len(l) > 0 {
		t.Errorf("left behind: %v, %v", l, err)
	}
}

// TestFailedDirectory checks that no change is accepted until the new name is on disk.
func TestFailedDirectory(t *testing.T) {
	f, _ := open(t)
	failOnce(f, syscall.EIO)
	if put(f, "failed") == nil {
		t.Fatal("no error")
	}
	f.sync = func(x *os.File) error {
		if fi, err := x.Stat(); err != nil || fi.IsDir() {
			return syscall.EIO
		}
		return x.Sync()
	}
	for range 2 {
		if err := put(f, "refused"); !errors.Is(err, syscall.EIO) {
			t.Fatal("a change counts without a durable name:", err)
		}
	}
	f.sync = (*os.File).Sync
	must(t, put(f, "after"))
	has(t, f, "before", "after")
}

// TestFailedWrite checks that a full disk, or an error of the caller, causes no copy.
func TestFailedWrite(t *testing.T) {
	f, path := open(t)
	old := stat(t, path)
	f.commit = func(tx *bolt.Tx) error {
		f.commit = (*bolt.Tx).Commit
		return errors.Join(tx.Rollback(), &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC})
	}
	if err := put(f, "full"); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	why := errors.New("no")
	if err := f.Update(func(*bolt.Tx) error { return why }); !errors.Is(err, why) {
		t.Fatal(err)
	}
	must(t, put(f, "after"))
	if !os.SameFile(old, stat(t, path)) {
		t.Error("the file was replaced")
	}
}

// shown reports whether a reader finds a key.
func shown(t *testing.T, f *File, key string) (found bool) {
	t.Helper()
	must(t, f.View(func(tx *bolt.Tx) error { found = tx.Bucket(bucket).Get([]byte(key)) != nil; return nil }))
	return found
}

// TestRefusedIsNotRead: a change whose last flush fails is never read: not during the flush, not
// after it, not after the file is replaced, and not after a restart in place of that.
func TestRefusedIsNotRead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		f, path := open(t)
		flushing, fail := make(chan struct{}), make(chan struct{})
		f.commit = func(tx *bolt.Tx) error {
			f.commit = (*bolt.Tx).Commit
			err := tx.Commit()
			close(flushing)
			<-fail
			return errors.Join(err, syscall.EIO)
		}
		refused := make(chan error, 1)
		go func() { refused <- put(f, "failed") }()
		<-flushing
		seen := make(chan bool, 8)
		for range cap(seen) {
			go func() { seen <- shown(t, f, "failed") }()
		}
		select {
		case found := <-seen:
			t.Errorf("a reader did not wait for the flush: found %v", found)
			seen <- found
		case <-time.After(50 * time.Millisecond):
		}
		close(fail)
		if err := <-refused; !errors.Is(err, syscall.EIO) || errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
		for range cap(seen) {
			if <-seen {
				t.Error("a reader that waited found the refused change")
			}
		}
		if shown(t, f, "failed") {
			t.Error("the refused change is read")
		}
		if restart {
			must(t, f.Close())
			var err error
			f, err = Open(path, bolt.Options{Timeout: time.Second})
			must(t, err)
			t.Cleanup(func() { f.Close() })
		}
		must(t, put(f, "after"))
		has(t, f, "before", "after")
		if shown(t, f, "failed") {
			t.Error("the refused change came back", restart)
		}
		must(t, put(f, "failed"))
		must(t, f.View(func(tx *bolt.Tx) error {
			for err := range tx.Check() {
				t.Error(err)
			}
			return nil
		}))
	}
}

// TestRefusedAgain: many changes are refused one after the other.
func TestRefusedAgain(t *testing.T) {
	f, _ := open(t)
	for i := range 8 {
		failOnce(f, syscall.EIO)
		if err := put(f, "failed"); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrUnknown) {
			t.Fatal(err)
		}
		if shown(t, f, "failed") {
			t.Fatal("the refused change is read", i)
		}
		if i%3 == 2 {
			must(t, put(f, "after"))
		}
	}
}

// TestNotTakenBack: if the disk takes no overwriting either, the error says that the change may come
// back, and no reader gets data until the disk does.
func TestNotTakenBack(t *testing.T) {
	f, _ := open(t)
	failOnce(f, syscall.EIO)
	f.revoke = func(*File, int) error { return syscall.EROFS }
	for range 2 {
		if err := put(f, "failed"); !errors.Is(err, syscall.EIO) || !errors.Is(err, syscall.EROFS) {
			t.Fatal(err)
		}
		if err := f.View(func(*bolt.Tx) error { return nil }); err == nil {
			t.Error("a reader got data")
		}
	}
	f.revoke = (*File).overwriteMeta
	must(t, put(f, "after"))
	has(t, f, "before", "after")
	if shown(t, f, "failed") {
		t.Error("the refused change is read")
	}

	failOnce(f, syscall.EIO)
	f.sync = func(*os.File) error { return syscall.EIO }
	if err := put(f, "failed"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if shown(t, f, "failed") {
		t.Error("the change is read although it is unknown")
	}
	f.sync = (*os.File).Sync
	must(t, put(f, "more"))
	has(t, f, "before", "after", "more")
}
