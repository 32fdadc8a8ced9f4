package files

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/sls/state/engine"
)

func sha256Of(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// TestWebSourceIsNotFetchedAgain manages a file that already has the content
// of its source while the server is down.
func TestWebSourceIsNotFetchedAgain(t *testing.T) {
	s := newStage(t)
	text := "hi\n"
	s.build(map[string]*string{"w/x": &text})
	args := map[string]any{"name": s.root + "/w/x", "source": "http://127.0.0.1:1/x", "source_hash": sha256Of(text)}
	for test, want := range map[bool]string{false: "exists with proper permissions. No changes made.", true: "not updated"} {
		if got := s.run("file.managed", args, test); got.Result != true || len(got.Changes.(map[string]any)) > 0 || !strings.HasSuffix(got.Comment, want) {
			t.Errorf("a file with the hash of its source: %+v, want %s", got, want)
		}
	}
	args["source_hash"] = sha256Of("other\n")
	if got := s.run("file.managed", args, false); got.Result != false || !strings.Contains(got.Comment, "connection refused") {
		t.Errorf("a file with another hash: %+v", got)
	}
}

// TestKeepSource checks what a state leaves in the minion's cache.
func TestKeepSource(t *testing.T) {
	small, large := "secret\n", strings.Repeat("secret\n", 1<<17)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(small)) }))
	defer srv.Close()
	for _, c := range []struct {
		what string
		fun  string
		args map[string]any
	}{
		{"small", "file.managed", map[string]any{"source": "salt://small"}},
		{"large", "file.managed", map[string]any{"source": "salt://large"}},
		{"template", "file.managed", map[string]any{"source": "salt://small", "template": "jinja"}},
		{"web", "file.managed", map[string]any{"source": srv.URL + "/x", "source_hash": sha256Of(small)}},
		{"tree", "file.recurse", map[string]any{"source": "salt://tree"}},
	} {
		for _, keep := range []bool{false, true} {
			t.Run(c.what, func(t *testing.T) {
				s := newStage(t)
				s.build(map[string]*string{"srv/small": &small, "srv/large": &large, "srv/tree/a": &small, "srv/tree/b": &large, "w": nil})
				c.args["name"], c.args["keep_source"] = s.root+"/w/x", keep
				if got := s.run(c.fun, c.args, false); got.Result != true {
					t.Fatalf("%+v", got)
				}
				found := false
				err := filepath.WalkDir(s.root+"/cache/minion", func(path string, _ os.DirEntry, err error) error {
					if err != nil {
						return err
					}
					if b, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(b), "secret") {
						found = true
					}
					return nil
				})
				if err != nil || found != keep {
					t.Errorf("keep_source is %v; content in the cache: %v %v", keep, found, err)
				}
			})
		}
	}
}

// TestTemplateIsNotItsOwnSource uses the managed file as its own template.
func TestTemplateIsNotItsOwnSource(t *testing.T) {
	s := newStage(t)
	text := "{{ 1 + 1 }}\n"
	for _, scheme := range []string{"", "file://"} {
		s.build(map[string]*string{"w/x": &text})
		got := s.run("file.managed", map[string]any{"name": s.root + "/w/x", "source": scheme + s.root + "/w/x", "template": "jinja"}, false)
		now, err := os.ReadFile(s.root + "/w/x")
		if err != nil || string(now) != text || got.Result != false || got.Comment != "Unable to manage file: Source file cannot be the same as destination" {
			t.Errorf("%q: %+v; the file holds %q %v", scheme, got, now, err)
		}
	}
}

// TestPasswordsStayOutOfComments uses URLs with a password that cannot be
// fetched.
func TestPasswordsStayOutOfComments(t *testing.T) {
	s := newStage(t)
	text := "old\n"
	s.build(map[string]*string{"w/x": &text})
	for _, fun := range []string{"file.managed", "file.cached"} {
		name := s.root + "/w/x"
		if fun == "file.cached" {
			name = "https://u:secret@127.0.0.1:1/x.tgz"
		}
		args := map[string]any{"name": name, "source_hash": "https://u:secret@127.0.0.1:1/x.sha256"}
		if fun == "file.managed" {
			args["source"] = "https://u:secret@127.0.0.1:1/x.tgz"
		}
		got := s.run(fun, args, false)
		if got.Result != false || strings.Contains(got.Comment, "secret") || !strings.Contains(got.Comment, "connection refused") {
			t.Errorf("%s: %+v", fun, got)
		}
	}
}

// TestAccumulators fills two blocks of one file with different texts, one from
// an accumulator that a bare id requires.
func TestAccumulators(t *testing.T) {
	s := newStage(t)
	text := "#a\n#A\n#b\n#B\n"
	s.build(map[string]*string{"w/x": &text})
	path := s.root + "/w/x"
	low := func(fun, id string, more ...any) *value.Dict {
		d := value.DictOf("state", "file", "fun", fun, "__id__", id, "__sls__", "x", "__env__", "base", "name", path)
		d.Update(value.DictOf(more...))
		return d
	}
	chunks := []*value.Dict{
		low("accumulated", "one", "name", "one", "filename", path, "text", "foo", "require_in", value.ListOf(value.DictOf("file", "first"))),
		low("accumulated", "two", "name", "two", "filename", path, "text", "bar", "watch_in", value.ListOf("second block")),
		low("blockreplace", "first", "marker_start", "#a", "marker_end", "#A"),
		low("blockreplace", "second block", "marker_start", "#b", "marker_end", "#B"),
	}
	for i, c := range chunks {
		c.Set("order", int64(i+1))
	}
	for _, r := range engine.New(s.deps, engine.Options{}).Run(t.Context(), chunks).All() {
		if d := r.(*value.Dict); d.At("result") != true {
			t.Errorf("%s", value.Repr(d))
		}
	}
	now, err := os.ReadFile(path)
	if want := "#a\nfoo\n#A\n#b\nbar\n#B\n"; err != nil || string(now) != want {
		t.Errorf("the file holds %q, want %q (%v)", now, want, err)
	}
}
