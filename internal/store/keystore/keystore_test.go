package keystore

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "etc", "pki"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var keys = sync.OnceValue(func() []string {
	var out []string
	for range 2 {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		der, _ := x509.MarshalPKIXPublicKey(&k.PublicKey)
		out = append(out, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	}
	return out
})

func check(t *testing.T, err error, want salt.Kind) {
	t.Helper()
	if err == nil || salt.KindOf(err) != want {
		t.Errorf("error %v, want one of kind %v", err, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// age waits until a file or directory is old enough for its stamp to count as settled.
func age(t testing.TB, s *Store, names ...string) {
	t.Helper()
	// The ctime cannot be set, so wait for the clock of the file system.
	deadline := time.Now().Add(time.Minute)
	for _, n := range names {
		for {
			st, err := host.StampOf(filepath.Join(s.dir, n))
			must(t, err)
			if st.Settled() {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the stamp of " + n + " does not settle")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

func TestLayoutAndModes(t *testing.T) {
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	s := open(t)
	must(t, s.Put(Pending, "web1", "PUB"))
	for name, want := range map[string]fs.FileMode{"": 0o700, "minions": 0o755, "minions_pre": 0o755, "minions_rejected": 0o755,
		"minions_denied": 0o755, "minions_autosign": 0o755, "minions_pre/web1": 0o644} {
		info, err := os.Stat(filepath.Join(s.dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want %v", name, info.Mode().Perm(), err, want)
		}
	}
	es, _ := os.ReadDir(filepath.Join(s.dir, "minions_pre"))
	if len(es) != 1 {
		t.Error("more files than the key:", es)
	}
	must(t, os.Chmod(s.dir, 0o755))
	if _, err := Open(s.dir, quiet); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(s.dir); info.Mode().Perm() != 0o700 {
		t.Error("the mode of the key directory was not narrowed")
	}
}

func TestLookupOrder(t *testing.T) {
	s := open(t)
	want := func(st State, pub string) {
		t.Helper()
		gotState, gotPub, err := s.Lookup("m")
		if gotState != st || gotPub != pub || err != nil {
			t.Errorf("%v %q %v, want %v %q", gotState, gotPub, err, st, pub)
		}
	}
	want(None, "")
	must(t, s.Put(Denied, "m", "d"))
	want(None, "")
	must(t, s.Put(Pending, "m", "p"))
	want(Pending, "p")
	must(t, s.Put(Accepted, "m", "a"))
	want(Accepted, "a")
	must(t, s.Put(Rejected, "m", "r"))
	want(Rejected, "r")
	must(t, s.Delete(Rejected, "m"))
	must(t, s.Delete(Accepted, "m"))
	must(t, s.Move("m", Pending, Accepted))
	want(Accepted, "p")
	check(t, s.Move("m", Pending, Accepted), salt.NotFound)
	check(t, s.Delete(Pending, "m"), salt.NotFound)
	if pub, err := s.Read(Denied, "m"); pub != "d" || err != nil {
		t.Error(pub, err)
	}
}

func TestFirstKeyKeepsItsPlace(t *testing.T) {
	s := open(t)
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			switch err := s.Add(Pending, "m", fmt.Sprint("key", i)); {
			case err == nil:
				won.Add(1)
			case salt.KindOf(err) != salt.Exists:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d keys were added as the first", won.Load())
	}
}

func TestIDsAreNeverPaths(t *testing.T) {
	s := open(t)
	outside := filepath.Join(filepath.Dir(s.dir), "minion")
	must(t, os.WriteFile(outside, []byte("x"), 0o600))
	for _, id := range []string{"", ".", "..", "../../minion", "/etc/passwd", "a/b", `a\b`, "a\x00", "a\nb", ".key_cache", ".hidden", strings.Repeat("a", 256)} {
		_, _, err := s.Lookup(id)
		check(t, err, salt.Invalid)
		_, err = s.AcceptedKey(id)
		check(t, err, salt.Invalid)
		check(t, s.Put(Accepted, id, "x"), salt.Invalid)
		check(t, s.Add(Accepted, id, "x"), salt.Invalid)
		check(t, s.Move(id, Pending, Accepted), salt.Invalid)
		check(t, s.Delete(Accepted, id), salt.Invalid)
	}
	must(t, s.Put(Accepted, strings.Repeat("a", 255), "x"))
}

func TestOnlyFilesAreKeys(t *testing.T) {
	s := open(t)
	pre := filepath.Join(s.dir, "minions_pre")
	acc := filepath.Join(s.dir, "minions")
	must(t, os.Mkdir(filepath.Join(pre, "dir"), 0o755))
	must(t, syscall.Mkfifo(filepath.Join(acc, "pipe"), 0o644))
	must(t, os.Mkdir(filepath.Join(acc, "accdir"), 0o755))
	must(t, os.WriteFile(filepath.Join(acc, ".key_cache"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(s.dir, "real"), []byte(keys()[0]), 0o600))
	must(t, os.Symlink(filepath.Join(s.dir, "real"), filepath.Join(acc, "linked")))
	must(t, os.Symlink("/nonexistent", filepath.Join(acc, "dangling")))
	must(t, os.Symlink("/dev/zero", filepath.Join(acc, "device")))

	_, _, err := s.Lookup("dir")
	check(t, err, salt.Denied)
	check(t, s.Put(Pending, "dir", "x"), salt.Unavailable)
	check(t, s.Delete(Pending, "dir"), salt.NotFound)
	for _, id := range []string{"pipe", "accdir", "dangling", "device"} {
		if st, _, err := s.Lookup(id); st != None || err != nil {
			t.Error(id, st, err)
		}
		_, err := s.AcceptedKey(id)
		check(t, err, salt.NotFound)
	}
	if st, pub, err := s.Lookup("linked"); st != Accepted || pub != keys()[0] || err != nil {
		t.Error(st, err)
	}
	ids, err := s.Accepted()
	if err != nil || !slices.Equal(ids, []string{"linked"}) {
		t.Error(ids, err)
	}
	must(t, s.Put(Accepted, "linked", keys()[1]))
	if b, _ := os.ReadFile(filepath.Join(s.dir, "real")); string(b) != keys()[0] {
		t.Error("a key was written through a link")
	}
	must(t, os.WriteFile(filepath.Join(acc, "huge"), make([]byte, maxKeyFile+1), 0o644))
	_, err = s.AcceptedKey("huge")
	check(t, err, salt.Unavailable)
	must(t, os.WriteFile(filepath.Join(acc, "junk"), []byte("no key"), 0o644))
	_, err = s.AcceptedKey("junk")
	check(t, err, salt.Invalid)
}

func TestExternalChangesApplyAtOnce(t *testing.T) {
	s := open(t)
	acc := filepath.Join(s.dir, "minions")
	want := func(ids ...string) {
		t.Helper()
		got, err := s.Accepted()
		if err != nil || !slices.Equal(got, ids) {
			t.Fatalf("%v %v, want %v", got, err, ids)
		}
	}
	want()
	must(t, s.Put(Pending, "Web", keys()[0]))
	for range 50 { // as fast as the clock of the file system, or faster
		must(t, os.Rename(filepath.Join(s.dir, "minions_pre", "Web"), filepath.Join(acc, "Web")))
		want("Web")
		if _, err := s.AcceptedKey("Web"); err != nil {
			t.Fatal(err)
		}
		must(t, os.Rename(filepath.Join(acc, "Web"), filepath.Join(s.dir, "minions_pre", "Web")))
		want()
		_, err := s.AcceptedKey("Web")
		check(t, err, salt.NotFound)
	}
	// The same with cached answers.
	must(t, os.Rename(filepath.Join(s.dir, "minions_pre", "Web"), filepath.Join(acc, "Web")))
	age(t, s, "minions", "minions/Web")
	want("Web")
	first, err := s.AcceptedKey("Web")
	must(t, err)
	if again, _ := s.AcceptedKey("Web"); again != first {
		t.Error("a key that did not change was parsed again")
	}
	must(t, os.WriteFile(filepath.Join(acc, "Web"), []byte(keys()[1]), 0o644)) // in place, with the same size
	if k, err := s.AcceptedKey("Web"); err != nil || k.Public.Equal(first.Public) {
		t.Error("an old key is still accepted", err)
	}
	must(t, os.WriteFile(filepath.Join(acc, "app"), []byte(keys()[1]), 0o644))
	want("app", "Web")
	must(t, os.RemoveAll(acc))
	want()
	_, err = s.AcceptedKey("Web")
	check(t, err, salt.NotFound)
	must(t, s.Put(Accepted, "Web", keys()[0]))
	want("Web")
}

func TestList(t *testing.T) {
	s := open(t)
	for i, st := range States {
		must(t, s.Put(st, fmt.Sprint("m", i), "x"))
		must(t, s.Put(st, "B", "x"))
	}
	got, err := s.List()
	must(t, err)
	for i, st := range States {
		if !slices.Equal(got[st], []string{"B", fmt.Sprint("m", i)}) {
			t.Error(st, got[st])
		}
	}
}

func TestParsedKeysAreBounded(t *testing.T) {
	s := open(t)
	must(t, s.Put(Accepted, "m", keys()[0]))
	age(t, s, "minions/m")
	for i := range maxParsed {
		s.parsed[fmt.Sprint(i)] = parsedKey{}
	}
	if _, err := s.AcceptedKey("m"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.parsed["m"]; !ok || len(s.parsed) != maxParsed {
		t.Error(ok, len(s.parsed))
	}
}

func BenchmarkAcceptedKey(b *testing.B) {
	s := open(b)
	must(b, s.Put(Accepted, "web1.example.com", keys()[0]))
	age(b, s, "minions/web1.example.com")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.AcceptedKey("web1.example.com"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAccepted10k(b *testing.B) {
	s := open(b)
	for i := range 10_000 {
		must(b, os.WriteFile(s.path(Accepted, fmt.Sprint("web", i)), nil, 0o644))
	}
	age(b, s, "minions")
	b.ReportAllocs()
	for b.Loop() {
		if ids, err := s.Accepted(); err != nil || len(ids) != 10_000 {
			b.Fatal(len(ids), err)
		}
	}
}

// TestMoveBetweenTwoNames: rename(2) of one of two names of a file to the other does nothing, and succeeds. On a network file system
// the system takes a name that another master has just moved away for such a one.
func TestMoveBetweenTwoNames(t *testing.T) {
	s := open(t)
	must(t, s.Put(Rejected, "m", keys()[0]))
	accepted := s.path(Accepted, "m")
	must(t, os.MkdirAll(filepath.Dir(accepted), 0o755))
	must(t, os.Link(s.path(Rejected, "m"), accepted))
	must(t, s.Move("m", Rejected, Accepted))
	if pub, err := s.Read(Accepted, "m"); err != nil || pub != keys()[0] {
		t.Errorf("accepted: %q, %v", pub, err)
	}
	if _, err := os.Lstat(s.path(Rejected, "m")); !os.IsNotExist(err) {
		t.Errorf("the key is still rejected: %v", err)
	}
}
