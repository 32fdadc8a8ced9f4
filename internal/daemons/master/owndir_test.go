package master

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/store/job"
)

// TestOwnPlace: a master finds its own directory in a cachedir that others may use.
func TestOwnPlace(t *testing.T) {
	free := func(string) (jobStore, error) { return nil, nil }
	used := func(own string) (jobStore, error) {
		if filepath.Base(own) == "brine" {
			return nil, job.ErrInUse
		}
		return nil, nil
	}
	for _, c := range []struct {
		name, owner string
		open        func(string) (jobStore, error)
		want        string // "" is a refusal
		ownerAfter  string
	}{
		{"alone", "", free, "brine", "m1"},
		{"as before", "m1\n" + thisMachine() + "\n", free, "brine", "m1"},
		{"moved to another machine", "m1\nelsewhere\n", free, "brine", "m1"},
		{"started twice", "m1\n" + thisMachine() + "\n", used, "", "m1"},
		{"in use by an earlier version", "", used, "", "m1"},
		{"renamed", "m0\n" + thisMachine() + "\n", free, "brine", "m1"},
		{"beside one on this machine", "m0\n" + thisMachine() + "\n", used, "brine/hot/m1", "m0"},
		{"beside one elsewhere, without locks", "m0\nelsewhere\n", free, "brine/hot/m1", "m0"},
		{"a damaged note", "m0", free, "brine", "m1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := t.TempDir()
			base := filepath.Join(cache, "brine")
			if c.owner != "" {
				if err := os.MkdirAll(base, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(base, ownerFile), []byte(c.owner), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg := &Config{ID: "m1", CacheDir: cache}
			for range 2 { // the second start finds the same place
				p, _, err := openOwn(cfg, c.open, slog.New(slog.DiscardHandler))
				switch {
				case c.want == "" && !errors.Is(err, job.ErrInUse):
					t.Fatalf("%+v %v", p, err)
				case c.want != "" && (err != nil || p.dir != filepath.Join(cache, c.want) || p.beside != (c.want != "brine")):
					t.Fatalf("%+v %v", p, err)
				}
				if id, _, err := readOwner(base); id != c.ownerAfter || err != nil {
					t.Fatalf("the owner is %q (%v)", id, err)
				}
			}
		})
	}
}

// TestOwnPlaceOfHostileID: an id cannot create a directory outside of cachedir.
func TestOwnPlaceOfHostileID(t *testing.T) {
	cache := t.TempDir()
	base := filepath.Join(cache, "brine")
	if _, _, err := claim(mustDir(t, base), "m0"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, ownerFile), []byte("m0\nelsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := openOwn(&Config{ID: "../../x", CacheDir: cache}, func(string) (jobStore, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Error("accepted")
	}
}

func mustDir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
