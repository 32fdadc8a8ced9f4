package fileclient

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// remote is a Brine master behind a connection.
type remote struct {
	*fileserver.Server
	mu    sync.Mutex
	asked map[string]int
	bytes int                          // total size of the sent parts
	fail  func(load *value.Dict) error // if set, returns an error instead of an answer
}

func remoteMaster(t testing.TB, files map[string]string) *remote {
	return &remote{Server: master(t, files), asked: map[string]int{}}
}

func (r *remote) note(load *value.Dict) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked[load.Str("cmd")]++
	if r.fail != nil {
		return r.fail(load)
	}
	return nil
}

func (r *remote) Request(ctx context.Context, load *value.Dict) (any, error) {
	if err := r.note(load); err != nil {
		return nil, err
	}
	return r.Server.Request(ctx, load)
}

func (r *remote) RequestShared(ctx context.Context, load *value.Dict) (any, []byte, func(), error) {
	if err := r.note(load); err != nil {
		return nil, nil, nil, err
	}
	v, s, err := r.Server.RequestShared(ctx, load)
	if err != nil || s == nil {
		return v, nil, func() {}, err
	}
	plain, err := crypt.OpenShared(s.Ticket(), bytes.Clone(s.Sealed()))
	r.mu.Lock()
	defer r.mu.Unlock()
	if load.Str("cmd") == "_brine_part" {
		r.bytes += len(plain)
	}
	// Overwrite the buffer on free, since others may reuse it.
	return v, plain, func() { clear(plain) }, err
}

// TestOneListForARun fetches many files: their hashes must come in one answer,
// equal content must be sent once, and a second run must learn that nothing
// changed.
func TestOneListForARun(t *testing.T) {
	files := map[string]string{"a?b": "odd"}
	for i := range 50 {
		files[fmt.Sprintf("dir/f%02d", i)] = fmt.Sprintf("content %d", i%5)
	}
	m := remoteMaster(t, files)
	cache, trees := t.TempDir(), &Trees{}
	for run := range 2 {
		c := New(m, Options{CacheDir: cache, Trees: trees}, slog.New(slog.DiscardHandler))
		for name, want := range files {
			p, err := c.CacheFile(t.Context(), scheme+escape(name), "base")
			got, _ := os.ReadFile(p)
			if err != nil || string(got) != want || !strings.HasSuffix(p, "/files/base/"+name) {
				t.Fatalf("%s: %s %q, %v", name, p, got, err)
			}
		}
		if _, err := c.Hash(t.Context(), "salt://dir/none", "base"); salt.KindOf(err) != salt.NotFound {
			t.Error("a file that is not there:", err)
		}
		if l, err := c.List(t.Context(), Files, "base", "/dir/"); err != nil || len(l) != 50 {
			t.Error("list:", len(l), err)
		}
		if run == 0 && m.asked["_brine_part"] != 6 {
			t.Errorf("%d files were sent, want one for each content", m.asked["_brine_part"])
		}
		if m.asked["_brine_tree"] != run+1 || m.asked["_file_hash"] > run+1 || m.asked["_file_list"]+m.asked["_serve_file"] > 0 {
			t.Errorf("run %d asked for %v", run, m.asked)
		}
	}
	if m.asked["_brine_part"] != 6 {
		t.Error("what is there was sent again")
	}
	if left, _ := filepath.Glob(cache + "/brine/contents/sha256/*/*.part"); len(left) > 0 {
		t.Error("left:", left)
	}
}

// TestMasterIsAwayDuringARun checks that the client waits once for a master that
// has answered before, but not for one that never answered, nor again after an
// unsuccessful wait.
func TestMasterIsAwayDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := remoteMaster(t, map[string]string{"a": "1", "b": "2", "c": "3"})
		var back time.Time
		away := func(d time.Duration) { back = time.Now().Add(d) }
		m.fail = func(*value.Dict) error {
			if time.Now().Before(back) {
				return salt.Errorf(salt.Unavailable, "away")
			}
			return nil
		}
		fetch := func(c *Client, name string, within time.Duration) error {
			t.Helper()
			from := time.Now()
			_, err := c.CacheFile(t.Context(), scheme+name, "base")
			if took := time.Since(from); took > within {
				t.Errorf("%s took %v", name, took)
			}
			return err
		}
		away(time.Second)
		if err := fetch(client(m, t.TempDir()), "a", 0); salt.KindOf(err) != salt.Unavailable {
			t.Error("a master that was never there:", err)
		}
		away(0)
		c := client(m, t.TempDir())
		for i, name := range []string{"a", "b"} {
			if err := fetch(c, name, time.Duration(i)*time.Minute); err != nil {
				t.Error(err)
			}
			away(30 * time.Second)
		}
		away(time.Hour)
		for _, within := range []time.Duration{waitLimit + 10*time.Second, 0} {
			if err := fetch(c, "c", within); salt.KindOf(err) != salt.Unavailable {
				t.Error(err)
			}
		}
		away(0)
		if err := fetch(c, "c", 0); err != nil {
			t.Error(err)
		}
		away(time.Hour)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := c.Hash(ctx, "salt://none", "base"); err == nil || !time.Now().Before(back) {
			t.Error("its end was ignored:", err)
		}
	})
}

// TestChangedDuringARun changes a file after the list was fetched.
func TestChangedDuringARun(t *testing.T) {
	m := remoteMaster(t, map[string]string{"one": "1", "two": "2", "three": "old"})
	c := client(m, t.TempDir())
	for _, name := range []string{"one", "two"} {
		if _, err := c.Read(t.Context(), scheme+name, "base"); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := m.Find("three", "base")
	if err := os.WriteFile(found.Path, []byte("new, and longer"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, err := c.Read(t.Context(), "salt://three", "base"); err != nil || string(b) != "new, and longer" {
		t.Errorf("%q, %v", b, err)
	}
	if err := os.Remove(found.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := client(m, t.TempDir()).Read(t.Context(), "salt://three", "base"); salt.KindOf(err) != salt.NotFound {
		t.Error("a file that has gone:", err)
	}
}

// TestCutConnection interrupts a transfer. Within a job, it must continue when the
// master is back. After a failed job, the next one must continue at the same
// offset, unless the partial file is not the beginning of the file.
func TestCutConnection(t *testing.T) {
	text := strings.Repeat("0123456789", 100) // ten parts
	m := remoteMaster(t, map[string]string{"big": text})
	cache := t.TempDir()
	cuts := 0
	m.fail = func(load *value.Dict) error {
		if load.Int("loc") == 500 && cuts < 2 {
			cuts++
			return salt.Errorf(salt.Unavailable, "cut")
		}
		return nil
	}
	read := func(want string) {
		t.Helper()
		b, err := client(m, cache).Read(t.Context(), "salt://big", "base")
		if err != nil || string(b) != want {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
	}
	read(text)
	if cuts != 2 || m.bytes != len(text) {
		t.Errorf("after %d cuts %d bytes were sent", cuts, m.bytes)
	}
	os.RemoveAll(cache)
	m.fail = func(load *value.Dict) error {
		if load.Int("loc") == 700 {
			return salt.Errorf(salt.Internal, "for good")
		}
		return nil
	}
	if _, err := client(m, cache).Read(t.Context(), "salt://big", "base"); err == nil {
		t.Fatal("half a file is a file")
	}
	if _, err := os.Stat(cache + "/files/base/big"); err == nil {
		t.Error("half a file has the name of the whole")
	}
	m.fail, m.bytes = nil, 0
	read(text)
	if m.bytes != 300 {
		t.Errorf("%d bytes were sent for the last 300", m.bytes)
	}
	whole, _ := filepath.Glob(cache + "/brine/contents/sha256/*/*")
	if len(whole) != 1 {
		t.Fatal(whole)
	}
	os.RemoveAll(cache + "/files")
	os.Remove(whole[0])
	if err := os.WriteFile(whole[0]+".part", []byte(strings.Repeat("?", 400)), 0o600); err != nil {
		t.Fatal(err)
	}
	read(text)
	// Manual damage in the cache is detected, too.
	if err := os.WriteFile(whole[0], []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	read(text)
}

// TestContentOfTwoMasters checks that the paths for equally named files of two
// masters keep their contents.
func TestContentOfTwoMasters(t *testing.T) {
	cache := t.TempDir()
	var wg sync.WaitGroup
	for i := range 2 {
		want := strings.Repeat(fmt.Sprintf("of master %d\n", i), 50)
		m := remoteMaster(t, map[string]string{"same/path": want})
		wg.Go(func() {
			for range 100 {
				c := client(m, cache)
				p, err := c.Content(t.Context(), "salt://same/path", "base")
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(p); err != nil || string(got) != want {
					t.Errorf("master %d: %.20q, %v", i, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if hidden, _ := filepath.Glob(cache + "/files/base/same/.*"); len(hidden) > 0 {
		t.Error("left:", hidden)
	}
}

// TestManyWantOneContent checks that concurrent requests for one content share a
// transfer.
func TestManyWantOneContent(t *testing.T) {
	m := remoteMaster(t, map[string]string{"f": strings.Repeat("x", 1000), "g": strings.Repeat("x", 1000)})
	cache := t.TempDir()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			b, err := client(m, cache).Read(t.Context(), scheme+[]string{"f", "g"}[i%2], "base")
			if err != nil || len(b) != 1000 {
				t.Error(len(b), err)
			}
		})
	}
	wg.Wait()
	if m.bytes != 1000 {
		t.Errorf("%d bytes were sent of 1000", m.bytes)
	}
}

// saltMaster is a stock master behind the same kind of connection.
type saltMaster struct{ *fileserver.Server }

func (saltMaster) RequestShared(context.Context, *value.Dict) (any, []byte, func(), error) {
	return nil, nil, nil, salt.Errorf(salt.NotFound, "the master is Salt's")
}

func TestFilesOfSaltsMaster(t *testing.T) {
	text := strings.Repeat("0123456789", 100)
	c := client(saltMaster{master(t, map[string]string{"a": text, "b": text, "c": "c"})}, t.TempDir())
	for name, want := range map[string]string{"a": text, "b": text, "c": "c"} {
		if b, err := c.Read(t.Context(), scheme+name, "base"); err != nil || string(b) != want {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	dest := t.TempDir() + "/copy"
	if _, err := c.GetFile(t.Context(), "salt://a", dest, GetOptions{Saltenv: "base", Gzip: 5}); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(dest); string(b) != text {
		t.Errorf("%d bytes", len(b))
	}
}
