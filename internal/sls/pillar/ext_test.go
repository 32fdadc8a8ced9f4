package pillar

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// site is a web server with valid and invalid answers.
func site(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	say := func(path, kind string, code int, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(code)
			io.WriteString(w, body)
		})
	}
	say("/json", "application/json", 200, `{"a": 1, "l": [1, {"b": null}], "ü": "é", "f": 1.50, "big": 12345678901234567890}`)
	say("/json/list", "application/json", 200, `[1, 2]`)
	say("/json/text", "application/json", 200, `"x"`)
	say("/json/null", "application/json", 200, `null`)
	say("/json/empty", "application/json", 200, ``)
	say("/json/bad", "application/json", 200, `{"a": `)
	say("/json/created", "application/json", 201, `{"created": true}`)
	say("/json/bom", "application/json", 200, "\ufeff{\"a\": 1}")
	say("/json/missing", "application/json", 404, `{"a": "of 404"}`)
	say("/json/broken", "application/json", 500, `{"a": "of 500"}`)
	say("/yaml", "text/yaml", 200, "a: 1\nl: [x, yes, 010]\nd: 2020-01-01\nü: é\nn: ~\n")
	say("/yaml/list", "text/yaml", 200, "- 1\n")
	say("/yaml/text", "text/plain", 200, "just text")
	say("/yaml/bad", "text/yaml", 200, "a: [\n")
	say("/yaml/dup", "text/yaml", 200, "a: 1\na: 2\n")
	say("/yaml/two", "text/yaml", 200, "a: 1\n---\nb: 2\n")
	say("/yaml/tag", "text/yaml", 200, "a: !!python/name:os.system x\n")
	say("/yaml/empty", "text/yaml", 200, "")
	say("/yaml/html", "text/html", 200, "<html><body>login</body></html>")
	mux.HandleFunc("/latin", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=iso-8859-1")
		io.WriteString(w, "{\"a\": \"\xe9\"}")
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/json", http.StatusFound) })
	mux.HandleFunc("/moved/always", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/moved/always", http.StatusFound)
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, `{"a": 1`)
	})
	mux.HandleFunc("/echo/", func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		fmt.Fprintf(w, `{"path": %q, "query": %q, "method": %q, "user": %q, "password": %q, "auth": %v, "x": %q, "y": %q, "agent": %q, "accept": %q}`,
			r.URL.EscapedPath(), r.URL.RawQuery, r.Method, user, password, ok, r.Header.Get("X-One"), r.Header.Get("X-Two"), r.Header.Get("User-Agent"),
			r.Header.Get("Accept"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// extCases are compared with stock Salt. @S@ stands for the web server. Where
// Salt raises or reports an error with the message of its parsers, Brine also
// reports an error; why is the reason for an intended difference.
const extCases = `[
 {"ext_pillar": [{"http_json": "@S@/json"}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json", "namespace": "ns"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/list"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/list", "namespace": "ns"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/text"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/text", "namespace": "ns"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/null"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/null", "namespace": "ns"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/empty"}}, {"http_json": "@S@/json"}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/bad"}}, {"http_json": "@S@/json"}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/created"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/bom"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/missing"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/json/broken"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/nosuch"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/latin"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/moved"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/moved/always"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/cut"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/yaml"}}]},
 {"ext_pillar": [{"http_json": {"url": "http://127.0.0.1:1/x"}}, {"http_json": "@S@/json"}]},
 {"ext_pillar": [{"http_json": {"url": "ftp://127.0.0.1/x"}}]},
 {"ext_pillar": [{"http_json": {"url": "nonsense"}}]},
 {"ext_pillar": [{"http_json": {}}]},
 {"ext_pillar": [{"http_json": {"nosuch": 1, "url": "@S@/json"}}]},
 {"ext_pillar": [{"http_json": ["@S@/echo/%s/x"]}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/%s?q=%s"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/<role>/<nested:n>?r=<role>", "with_grains": true}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/<role>/<nosuch>", "with_grains": true}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/h", "header_dict": {"X-One": "1", "X-Two": "2"}}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/u", "username": "joe", "password": "p:w"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/u", "username": "joe"}}]},
 {"ext_pillar": [{"http_json": {"url": "@S@/echo/u", "auth": ["joe", "pw"]}}], "why": "Salt's default backend leaves auth out"},
 {"ext_pillar": [{"http_yaml": "@S@/yaml"}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/list"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/text"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/bad"}}, {"http_json": "@S@/json"}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/dup"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/two"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/tag"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/empty"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml/html"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/json"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/json/missing"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/yaml", "namespace": "ns"}}]},
 {"ext_pillar": [{"http_yaml": {"url": "@S@/echo/<role>/%s", "with_grains": true}}]},
 {"ext_pillar": [{"http_json": "@S@/json"}, {"http_yaml": "@S@/yaml"}]},
 {"ext_pillar": [{"http_json": "@S@/json"}, {"http_yaml": "@S@/yaml"}], "options": {"pillar_merge_lists": true}},
 {"ext_pillar": [{"cmd_yamlex": "printf 'a: 1\\nl: [x]\\nid: %s\\nd: {e: {f: 010}}\\n'"}]},
 {"ext_pillar": [{"cmd_yamlex": "printf 'a: ['"}]},
 {"ext_pillar": [{"cmd_yamlex": "printf 'a: 1\\na: 2\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'd: {a: 1}\\nd: {b: 2}\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'l: !aggregate [1]\\nl: !aggregate [2, 1]\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'p: !aggregate foo\\np: !aggregate bar\\np: !aggregate foo\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'm: !aggregate {a: {x: 1}}\\nm: !aggregate {a: {y: 2}, b: 1}\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'm: !aggregate {a: 1}\\n!reset m: !aggregate {b: 2}\\n'"}], "why": "without the tags of yamlex, and what is there twice is a fault"},
 {"ext_pillar": [{"cmd_yamlex": "printf 'x: yes\\nt: 2020-01-01\\nn: ~\\nf: 1.5\\n'"}]},
 {"ext_pillar": [{"cmd_yamlex": "echo just text"}]}
]`

// TestExternalAsSalt compiles each pillar and expects the result of stock Salt
// 3007.10; BRINE_RECORD=1 with BRINE_STOCK_SALT records it again.
func TestExternalAsSalt(t *testing.T) {
	s := site(t)
	text := strings.ReplaceAll(extCases, "@S@", s.URL)
	if stock := os.Getenv("BRINE_STOCK_SALT"); stock != "" && os.Getenv("BRINE_RECORD") != "" {
		cmd := exec.Command("/usr/bin/python3", "-W", "ignore", "testdata/record_ext.py")
		cmd.Env, cmd.Stdin = append(os.Environ(), "PYTHONPATH="+stock), strings.NewReader(text)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s", err, stderr.String())
		}
		if err := os.WriteFile("testdata/ext.json", append(bytes.ReplaceAll(out, []byte(s.URL), []byte("@S@")), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	v, err := json.Load(text)
	if err != nil {
		t.Fatal(err)
	}
	cases, want := v.(*value.List).Items, readList(t, "testdata/ext.json")
	if len(cases) != len(want) {
		t.Fatalf("%d cases, %d recorded", len(cases), len(want))
	}
	for i, it := range cases {
		c := it.(*value.Dict)
		opts := value.DictOf("renderer", "jinja|yaml", "pillar_roots", value.DictOf("base", value.ListOf(t.TempDir())), "ext_pillar", c.At("ext_pillar"))
		opts.Update(orEmpty(c.Dict("options")))
		cfg := Config{Renderer: render.New(render.Options{}), Opts: opts, CacheDir: t.TempDir()}
		fill(t, &cfg.Options, opts)
		fill(t, &cfg.Top, opts)
		got, err := New(cfg).Compile(t.Context(),
			Request{ID: "web1", Grains: value.DictOf("id", "web1", "role", "a b/c", "nested", value.DictOf("n", "deep"))})
		if err != nil {
			t.Fatal(err)
		}
		if c.Has("why") {
			continue
		}
		ours, salts := plain(got, s.URL).(*value.Dict), plain(want[i], s.URL).(*value.Dict)
		if salts.Has("_errors") || salts.Has("__raised__") {
			if !ours.Has("_errors") {
				t.Errorf("%s\n got %s\nSalt fails: %s", value.Repr(c), value.Repr(ours), value.Repr(salts))
			}
			for _, k := range []string{"_errors", "__raised__"} {
				ours.Delete(k)
				salts.Delete(k)
			}
		}
		if !value.Equal(ours, salts) {
			t.Errorf("%s\n got %s\nSalt %s", value.Repr(c), value.Repr(ours), value.Repr(salts))
		}
	}
}
