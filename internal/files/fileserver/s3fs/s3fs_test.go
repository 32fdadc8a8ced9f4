package s3fs

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"brine/internal/py/value"
)

// TestSignature uses the examples in Amazon's documentation of signature
// version 4.
func TestSignature(t *testing.T) {
	c := &client{region: "us-east-1", keyID: "AKIAIOSFODNN7EXAMPLE", key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	now := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for _, e := range []struct {
		path   string
		query  url.Values
		ranged bool
		want   string
	}{
		{"/test.txt", nil, true, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		{"/", url.Values{"lifecycle": {""}}, false, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
		{"/", url.Values{"max-keys": {"2"}, "prefix": {"J"}}, false, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		r, err := http.NewRequest(http.MethodGet, "https://examplebucket.s3.amazonaws.com"+e.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e.ranged {
			r.Header.Set("Range", "bytes=0-9")
		}
		c.sign(r, e.path, e.query, now)
		if got := r.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+e.want) {
			t.Errorf("%s %v: %s", e.path, e.query, got)
		}
	}
}

// service returns an S3 server, and the number of objects that it has sent.
func service(t *testing.T, buckets map[string]map[string]string) (addr string, put func(bucket, key, text string), sent *atomic.Int32, down *atomic.Bool) {
	t.Helper()
	b := s3mem.New()
	put = func(bucket, key, text string) {
		if _, err := b.PutObject(bucket, key, map[string]string{}, bytes.NewReader([]byte(text)), int64(len(text)), nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, objects := range buckets {
		if err := b.CreateBucket(name); err != nil {
			t.Fatal(err)
		}
		for k, text := range objects {
			put(name, k, text)
		}
	}
	sent, down = &atomic.Int32{}, &atomic.Bool{}
	h := gofakes3.New(b).Server()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=id/") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		if strings.Count(strings.TrimSuffix(r.URL.Path, "/"), "/") > 1 {
			sent.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return strings.TrimPrefix(srv.URL, "http://"), put, sent, down
}

func open(t *testing.T, addr, cache string, buckets any, sync bool) *FS {
	t.Helper()
	f, err := New(Options{Buckets: buckets, KeyID: "id", Key: "key", ServiceURL: addr, PathStyle: true, Location: "us-east-1", Sync: sync, Expire: time.Hour},
		"s3fs", cache,
		func(p string) bool { return strings.HasSuffix(p, ".bak") }, false, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func read(f *FS, env, name string) string {
	found, ok := f.Find(env, name, nil)
	if !ok {
		return "none"
	}
	b, err := os.ReadFile(found.Path)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestBuckets(t *testing.T) {
	many := map[string]string{}
	for i := range 1500 { // more than one page
		many[fmt.Sprintf("many/%04d", i)] = fmt.Sprint(i)
	}
	addr, put, sent, down := service(t, map[string]map[string]string{
		"one": {"top.sls": "one", "web/ä b+c?.sls": "odd", "web/init.sls": "web", "x.bak": "b", "empty/": ""}, "two": {"top.sls": "two", "more": "m"},
		"multi": {"base/top.sls": "mb", "dev/a/b": "md", "loose": "l"}, "many": many,
	})
	cache := t.TempDir()
	buckets := value.DictOf("base", value.ListOf("one", "two"), "many", value.ListOf("many"))
	f := open(t, addr, cache, buckets, false)
	if len(f.Envs()) != 0 || read(f, "base", "top.sls") != "none" {
		t.Error("something is served before anything was fetched")
	}
	if c, err := f.Update(t.Context()); err != nil || !c.Any {
		t.Fatal(c, err)
	}
	if c, err := f.Update(t.Context()); err != nil || c.Any || sent.Load() != 0 {
		t.Error(c, err, sent.Load())
	}
	l, _ := f.Lists(t.Context(), "base")
	if got := fmt.Sprint(f.Envs(), l.Files, l.Dirs); got != "[base many] [more top.sls web/init.sls web/ä b+c?.sls] [empty web]" {
		t.Error(got)
	}
	if l, _ := f.Lists(t.Context(), "many"); len(l.Files) != 1500 {
		t.Error(len(l.Files))
	}
	for range 2 {
		if got := read(f, "base", "top.sls") + read(f, "base", "web/ä b+c?.sls") + read(f, "base", "x.bak") +
			read(f, "dev", "top.sls"); got != "oneoddnonenone" {
			t.Error(got)
		}
	}
	if sent.Load() != 2 {
		t.Errorf("%d objects were sent", sent.Load())
	}
	put("one", "top.sls", "new")
	if c, err := f.Update(t.Context()); err != nil || !c.Any || read(f, "base", "top.sls") != "new" {
		t.Error(c, err)
	}
	// While the service is unreachable, stored contents must still be served,
	// also after a restart.
	down.Store(true)
	f = open(t, addr, cache, buckets, false)
	for i := range 2 {
		if c, err := f.Update(t.Context()); err == nil || (len(c.Faults) > 0) != (i == 0) {
			t.Error(c, err)
		}
	}
	if got := read(f, "base", "top.sls") + read(f, "base", "more"); got != "newnone" {
		t.Error(got)
	}
	if value.Repr(f.Remotes().Dict("s3").At("error")) == "None" {
		t.Error("the runner does not tell what is wrong")
	}
	down.Store(false)
	if c, err := f.Update(t.Context()); err != nil || len(c.Faults) != 1 || read(f, "base", "more") != "m" {
		t.Error(c, err)
	}

	f = open(t, addr, t.TempDir(), value.ListOf("multi"), true)
	sent.Store(0)
	if _, err := f.Update(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(f.Envs(), read(f, "base", "top.sls"), read(f, "dev", "a/b"), read(f, "base", "loose"), sent.Load()); got != "[base dev]mbmdnone2" {
		t.Error(got)
	}
	if failed := f.ClearCache(); len(failed) > 0 || len(f.Envs()) > 0 {
		t.Error(failed)
	}
	if _, err := open(t, addr, t.TempDir(), value.ListOf("nosuch"), false).Update(t.Context()); err == nil || !strings.Contains(err.Error(), "NoSuchBucket") {
		t.Error(err)
	}
}

func TestWrongOptions(t *testing.T) {
	for _, o := range []Options{{}, {Buckets: "x"}, {Buckets: value.ListOf("a/b")}, {Buckets: value.ListOf("x"), KeyID: "id"}} {
		if _, err := New(o, "s3fs", t.TempDir(), nil, false, nil); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
