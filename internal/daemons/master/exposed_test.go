package master

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

// TestCacheDirModes: cachedir is closed to others, except that users of
// publisher_acl may enter it, even if they were configured after it was created.
// Everything below stays closed. A cachedir that others can write to is refused
// and left unchanged.
func TestCacheDirModes(t *testing.T) {
	for _, c := range []struct {
		before fs.FileMode
		acl    bool
		want   fs.FileMode // 0: it is refused
	}{{0o755, false, 0o750}, {0o700, false, 0o700}, {0o755, true, 0o751}, {0o750, true, 0o751}, {0o700, true, 0o701},
		{0o777, false, 0}, {0o702, true, 0}} {
		cfg := &Config{PKIDir: t.TempDir(), CacheDir: filepath.Join(t.TempDir(), "cache")}
		if c.acl {
			cfg.Options.PublisherACL = value.DictOf("ann", value.ListOf("test.ping"))
		}
		for _, dir := range []string{cfg.CacheDir, filepath.Join(cfg.CacheDir, "jobs"), filepath.Join(cfg.CacheDir, "sessions")} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		session := filepath.Join(cfg.CacheDir, "sessions", "web1")
		if err := os.WriteFile(session, []byte("private"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(cfg.CacheDir, c.before); err != nil {
			t.Fatal(err)
		}
		err := closeToOthers(cfg, slog.New(slog.DiscardHandler))
		if c.want == 0 {
			st, statErr := os.Stat(cfg.CacheDir)
			if salt.KindOf(err) != salt.Denied || statErr != nil || st.Mode().Perm()&^0o001 != c.before&^0o001 {
				t.Errorf("cachedir %04o: %v; then it is %v, %v", c.before, err, st.Mode(), statErr)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		cache, err := os.Stat(cfg.CacheDir)
		if err != nil || cache.Mode().Perm() != c.want {
			t.Errorf("cachedir %04o, publisher_acl %t: %v, %v, want %04o", c.before, c.acl, cache.Mode(), err, c.want)
		}
		if _, err := os.Stat(session); err != nil {
			t.Errorf("a session key that no other user could read is removed: %v", err)
		}
		if jobs, err := os.Stat(filepath.Join(cfg.CacheDir, "jobs")); err != nil || jobs.Mode().Perm()&0o007 != 0 {
			t.Errorf("jobs: %v, %v", jobs.Mode(), err)
		}
	}
}
