package fileclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"brine/internal/base/log/redact"
	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func master(t testing.TB, files map[string]string) *fileserver.Server {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return fileserver.New(fileserver.Options{Backends: []string{"roots"}, FollowSymlinks: true, FileRoots: value.DictOf("base", value.ListOf(dir))},
		fileserver.Config{CacheDir: t.TempDir(), HashType: "sha256", BufferSize: 100}, slog.New(slog.DiscardHandler))
}

func client(src Source, cache string) *Client {
	return New(src, Options{CacheDir: cache}, slog.New(slog.DiscardHandler))
}

// TestEachMasterHasItsOwnFiles lets the runs of two masters with different trees
// read the same path concurrently, with one cache.
func TestEachMasterHasItsOwnFiles(t *testing.T) {
	cache := t.TempDir()
	var wg sync.WaitGroup
	for i := range 2 {
		want := strings.Repeat(fmt.Sprintf("of master %d\n", i), 50)
		c := client(master(t, map[string]string{"same/path": want}), cache)
		wg.Go(func() {
			for range 100 {
				got, err := c.Read(t.Context(), "salt://same/path", "base")
				if err != nil || string(got) != want {
					t.Errorf("master %d: %.20q, %v", i, got, err)
					return
				}
			}
		})
	}
	wg.Wait()
	left, err := filepath.Glob(cache + "/files/base/same/*")
	if hidden, _ := filepath.Glob(cache + "/files/base/same/.*"); err != nil || len(left) != 1 || len(hidden) > 0 {
		t.Errorf("left in the cache: %q %q", left, hidden)
	}
}

// sourceFunc is a source whose answers the test sets.
type sourceFunc func(load *value.Dict) (any, error)

func (f sourceFunc) Request(_ context.Context, load *value.Dict) (any, error) { return f(load) }

// TestWrongContent uses a source that sends other content than it reported the
// hash of. None of it must remain, and the existing file must stay.
func TestWrongContent(t *testing.T) {
	cache := t.TempDir()
	good := client(master(t, map[string]string{"f": "good"}), cache)
	p, err := good.CacheFile(t.Context(), "salt://f", "base")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	bad := client(sourceFunc(func(load *value.Dict) (any, error) {
		switch load.Str("cmd") {
		case "_file_hash":
			asked++
			return value.DictOf("hash_type", "sha256", "hsum", strings.Repeat("0", 64)), nil
		}
		if load.Int("loc") > 0 {
			return value.DictOf("data", "", "dest", "f"), nil
		}
		return value.DictOf("data", "evil", "dest", "f"), nil
	}), cache)
	if _, err := bad.CacheFile(t.Context(), "salt://f", "base"); err == nil || asked != attempts {
		t.Errorf("%v after %d attempts", err, asked)
	}
	if b, err := os.ReadFile(p); err != nil || string(b) != "good" {
		t.Errorf("the file is now %q, %v", b, err)
	}
}

// TestChangesOnTheWay changes the file between the request of its hash and of
// its content.
func TestChangesOnTheWay(t *testing.T) {
	contents, i := []string{"one", "two", "three"}, 0
	c := client(sourceFunc(func(load *value.Dict) (any, error) {
		if load.Str("cmd") == "_file_hash" {
			sum := sha256.Sum256([]byte(contents[i]))
			i = min(i+1, 2)
			return value.DictOf("hash_type", "sha256", "hsum", hex.EncodeToString(sum[:])), nil
		}
		if load.Int("loc") > 0 {
			return value.DictOf("data", "", "dest", "f"), nil
		}
		return value.DictOf("data", contents[i], "dest", "f"), nil
	}), t.TempDir())
	if got, err := c.Read(t.Context(), "salt://f", ""); err != nil || string(got) != "three" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPathsThatLeadOut(t *testing.T) {
	outside := t.TempDir()
	c := client(sourceFunc(func(load *value.Dict) (any, error) {
		t.Errorf("the source was asked: %s", value.Repr(load))
		return "", nil
	}), outside+"/cache")
	for _, url := range []string{"salt://../x", "salt://a/../../x", "salt:///../x", "salt://x?saltenv=../..", "salt://|../x", "salt://.."} {
		if _, err := c.CacheFile(t.Context(), url, "base"); salt.KindOf(err) != salt.NotFound || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", url, err)
		}
	}
	for _, url := range []string{"http://h/../../../x", "http://../x", "http:///../../../x", "no url://../../../x"} {
		if p, err := c.CacheDest(url, "base"); err == nil && !strings.HasPrefix(p, outside+"/cache/extrn_files/base/") {
			t.Errorf("%s: %s", url, p)
		}
	}
}

// TestInTheWay covers a file where the cache needs a directory, and vice versa.
func TestInTheWay(t *testing.T) {
	cache := t.TempDir()
	for _, files := range []map[string]string{{"a": "file"}, {"a/b/c": "deep"}, {"a/b": "flat"}, {"a": "file again"}} {
		c := client(master(t, files), cache)
		for name, want := range files {
			if got, err := c.Read(t.Context(), "salt://"+name, "base"); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// TestReplacedFileKeepsModeAndLink replaces, through a link, a file that has
// another mode.
func TestReplacedFileKeepsModeAndLink(t *testing.T) {
	dir := t.TempDir()
	real, link := dir+"/real", dir+"/link"
	if err := os.WriteFile(real, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(real, 0o751); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	c := client(master(t, map[string]string{"f": "new"}), dir+"/cache")
	if _, err := c.GetFile(t.Context(), "salt://f", link, GetOptions{}); err != nil {
		t.Fatal(err)
	}
	st, err := os.Lstat(real)
	if b, _ := os.ReadFile(real); err != nil || string(b) != "new" || st.Mode() != 0o751 {
		t.Errorf("%q %v %v", b, st.Mode(), err)
	}
	if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link: %v %v", st.Mode(), err)
	}
}

func TestWeb(t *testing.T) {
	gets := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		gets++
		user, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(w, r, "/file", http.StatusFound)
		case r.URL.Path == "/auth" && user+":"+password != "me:pw":
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == "/missing":
			w.WriteHeader(http.StatusNotFound)
		case r.Header.Get("If-None-Match") == `"tag"`:
			w.WriteHeader(http.StatusNotModified)
		default:
			w.Header().Set("ETag", `"tag"`)
			io.WriteString(w, "web "+r.URL.RawQuery)
		}
	}))
	defer srv.Close()
	cache := t.TempDir()
	c := client(nil, cache)
	host := strings.TrimPrefix(srv.URL, "http://")
	kept := cache + "/extrn_files/base/" + strings.ReplaceAll(host, ":", "")
	for url, want := range map[string]string{
		srv.URL + "/file": kept + "/file", srv.URL + "/file?q=1": kept + "/file-q=1", srv.URL + "/moved": kept + "/moved", "http://me:pw@" + host +
			"/auth": kept + "/auth",
	} {
		p, err := c.CacheFile(t.Context(), url, "base")
		if b, _ := os.ReadFile(p); err != nil || p != want || !strings.HasPrefix(string(b), "web ") {
			t.Errorf("%s: %s %q %v", url, p, b, err)
		}
	}
	for _, url := range []string{srv.URL + "/missing", "http://me:no@" + host + "/auth", "http://127.0.0.1:1/x", "s3://bucket/x"} {
		if p, err := c.CacheFile(t.Context(), url, "base"); err == nil || strings.Contains(err.Error(), "me:no") {
			t.Errorf("%s: %s %v", url, p, err)
		}
	}
	sum := sha256.Sum256([]byte("web "))
	before := gets
	if _, err := c.GetURL(t.Context(), srv.URL+"/file", "", URLOptions{SourceHash: "sha256=" + hex.EncodeToString(sum[:])}); err != nil || gets != before {
		t.Errorf("a file that has the hash was fetched: %v", err)
	}
	for range 2 {
		if p, err := c.GetURL(t.Context(), srv.URL+"/tagged", "", URLOptions{ETag: true}); err != nil || p != kept+"/tagged" {
			t.Errorf("%s %v", p, err)
		}
	}
	if b, err := c.GetText(t.Context(), srv.URL+"/file", URLOptions{}); err != nil || string(b) != "web " {
		t.Errorf("%q %v", b, err)
	}
}

func FuzzURL(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"salt://a/b", "salt://|a?b", "salt://a?saltenv=x", "salt://../x", "http://u:p@h:1/a?b", "file:///x", "", "salt://",
		"ftp://h/..", "|x"} {
		f.Add(s, "base")
	}
	c := client(nil, "/cache")
	f.Fuzz(func(t *testing.T, url, env string) {
		p, err := c.CacheDest(url, env)
		if err == nil && strings.Contains(url, "://") && !strings.HasPrefix(p, "/cache/") {
			t.Errorf("%q of %q: %q", url, env, p)
		}
		c.IsCached(url, env)
		redact.Text(url)
	})
}

// TestSmall lets a job read one file several times: the content must be fetched
// and read once, but the source must be asked each time whether it has changed.
// Large files are returned as a path.
func TestSmall(t *testing.T) {
	contents := map[string]string{"f": "one", "empty": "", "large": strings.Repeat("x", maxSmall+1)}
	served := 0
	src := sourceFunc(func(load *value.Dict) (any, error) {
		text := contents[load.Str("path")]
		if load.Str("cmd") == "_file_hash" {
			sum := sha256.Sum256([]byte(text))
			return value.DictOf("hash_type", "sha256", "hsum", hex.EncodeToString(sum[:])), nil
		}
		served++
		return value.DictOf("data", text[load.Int("loc"):], "dest", load.Str("path")), nil
	})
	cache := t.TempDir()
	c := client(src, cache)
	small := func(name string) (string, string) {
		t.Helper()
		data, path, err := c.Small(t.Context(), "salt://"+name, "base")
		if err != nil || (data == nil) == (path == "") {
			t.Errorf("%s: %q, %q, %v", name, data, path, err)
		}
		return string(data), path
	}
	if got, _ := small("f"); got != "one" {
		t.Errorf("%q", got)
	}
	before := served
	if err := os.RemoveAll(filepath.Join(cache, "files")); err != nil {
		t.Fatal(err)
	}
	if got, _ := small("f"); got != "one" || served != before {
		t.Errorf("%q, and %d parts were fetched again", got, served-before)
	}
	contents["f"] = "two"
	if got, _ := small("f"); got != "two" {
		t.Errorf("the content of before: %q", got)
	}
	if got, path := small("empty"); got != "" || path != "" {
		t.Errorf("%q %q", got, path)
	}
	if _, path := small("large"); path == "" {
		t.Error("a large file was kept in memory")
	} else if b, err := os.ReadFile(path); err != nil || string(b) != contents["large"] {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	for i := range 2 * maxHeld / maxSmall {
		contents[fmt.Sprint(i)] = strings.Repeat("y", maxSmall-i)
		small(fmt.Sprint(i))
	}
	if c.run.held > maxHeld {
		t.Errorf("%d bytes are kept", c.run.held)
	}
	if got, _ := small("f"); got != "two" {
		t.Errorf("%q", got)
	}
}
