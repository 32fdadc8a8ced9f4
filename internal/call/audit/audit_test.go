package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/internal/py/value"
)

var secret = []byte("secret")

func all(*value.Dict) bool { return true }

func TestRecent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	l.max = 3000
	for i := range 100 {
		if _, err := l.Add(value.DictOf("user", fmt.Sprintf("u%d", i%2), "n", i, "fun", "a\nb\u00f6")); err != nil {
			t.Fatal(err)
		}
	}
	show := func(limit int, keep func(*value.Dict) bool) string {
		list, err := l.Recent(limit, keep)
		if err != nil {
			t.Fatal(err)
		}
		var ns []string
		for _, d := range list {
			ns = append(ns, fmt.Sprint(d.Int("n")))
		}
		return strings.Join(ns, " ")
	}
	if got := show(3, all); got != "99 98 97" {
		t.Error(got)
	}
	if got := show(2, func(d *value.Dict) bool { return d.Str("user") == "u0" }); got != "98 96" {
		t.Error(got)
	}
	if got := show(1000, all); strings.HasSuffix(got, " 0") || len(got) < 30 {
		t.Errorf("wrong rotation of old files: %s", got)
	}
	for _, p := range []string{path, path + ".1"} {
		if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o600 || fi.Size() > 3000 {
			t.Errorf("%s: %v %v", p, fi, err)
		}
	}
	// A line cut off by a crash does not hide the other records.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	f.WriteString(`{"n": 9`)
	f.Close()
	if got := show(1, all); got != "99" {
		t.Error(got)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(value.DictOf("n", 1)); err == nil {
		t.Error("Add succeeded after Close")
	}
	if l, err = Open(path, secret); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Add(value.DictOf("n", 100)); err != nil {
		t.Fatal(err)
	}
	if got := show(2, all); got != "100 99" {
		t.Errorf("after a restart: %s", got)
	}
}

// TestDiskThatIsFull checks that a record cut off by a full disk does not corrupt later ones, and
// that a log that cannot be renamed is still written.
func TestDiskThatIsFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit")
	l, err := Open(path, secret)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.write = func(f *os.File, text []byte) (int, error) {
		n, _ := f.Write(text[:len(text)/2])
		return n, syscall.ENOSPC
	}
	for range 2 {
		if _, err := l.Add(value.DictOf("n", 1)); !errors.Is(err, syscall.ENOSPC) {
			t.Error(err)
		}
	}
	l.write = (*os.File).Write
	if _, err := l.Add(value.DictOf("n", 2)); err != nil {
		t.Error(err)
	}
	// A directory with the name of the old log prevents the rename.
	if err := os.MkdirAll(path+".1/x", 0o700); err != nil {
		t.Fatal(err)
	}
	l.max = 1
	if _, err := l.Add(value.DictOf("n", 3)); err == nil {
		t.Error("no error for a log that cannot be renamed")
	}
	b, err := os.ReadFile(path)
	if lines := strings.Split(string(b), "\n"); err != nil || len(lines) != 5 || !strings.Contains(lines[1], `"lost": 2`) ||
		!strings.HasPrefix(lines[2], `{"n": 2, "seq": 3,`) || !strings.HasPrefix(lines[3], `{"n": 3, "seq": 4,`) {
		t.Errorf("%q, %v", b, err)
	}
	os.RemoveAll(path + ".1")
	if _, err := l.Add(value.DictOf("n", 4)); err != nil {
		t.Error(err)
	}
	if list, err := l.Recent(9, all); err != nil || len(list) != 3 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestLogThatComesBack checks that a log that could not be opened is opened again.
func TestLogThatComesBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := Open(filepath.Join(dir, "audit"), secret)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.max = 1
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Add(value.DictOf("n", 1)); err == nil {
		t.Error("no error without the directory")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	l.max = maxSize
	if _, err := l.Add(value.DictOf("n", 2)); err != nil {
		t.Error(err)
	}
}
