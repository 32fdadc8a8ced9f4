package network

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/py/value"
)

// server echoes requests.
func server(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		user, password, _ := r.BasicAuth()
		switch r.URL.Path {
		case "/json":
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"method": %q, "query": %q, "body": %q, "auth": %q, "x": %q}`, r.Method, r.URL.RawQuery, b, user+":"+password,
				r.Header.Get("X-One"))
		case "/yaml":
			w.Header().Set("Content-Type", "text/yaml")
			io.WriteString(w, "a: [1, two]\n")
		case "/xml":
			w.Header().Set("Content-Type", "text/xml")
			io.WriteString(w, "<r><a>1</a><b>two</b></r>")
		case "/moved":
			http.Redirect(w, r, "/text", http.StatusFound)
		case "/text":
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "äöü")
		default:
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, "nothing here")
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestHTTPLikeSalt(t *testing.T) {
	s := server(t)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	kw := func(pairs ...any) map[string]any {
		m := map[string]any{"__kwarg__": true}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	}
	jobs := [][]any{
		{"http.query", s.URL + "/text"}, {"http.query", s.URL + "/text", kw("text", true, "status", true)},
		{"http.query", s.URL + "/moved", kw("status", true)},
		{"http.query", s.URL + "/json", kw("decode", true, "params", map[string]any{"a": "b c"}, "method", "POST", "data", "body", "username", "me",
			"password", "pw", "header_dict", map[string]any{"X-One": "1"})},
		{"http.query", s.URL + "/json", kw("decode", true, "method", "PUT", "header_list", []any{"X-One: 2"}, "data", map[string]any{"k": "v w"})},
		{"http.query", s.URL + "/yaml", kw("decode", true)}, {"http.query", s.URL + "/xml", kw("decode", true)},
		{"http.query", s.URL + "/json", kw("decode", true, "decode_type", "plain")},
		{"http.query", s.URL + "/json", kw("decode", true, "decode_type", "nope")}, {"http.query", s.URL + "/none"},
		{"http.query", s.URL + "/text", kw("test", true)},
	}
	recorded := stocktest.Ask(t, nil, jobs...)
	r, err := fn.NewRegistry(nil, httpModule())
	if err != nil {
		t.Fatal(err)
	}
	for i, job := range jobs {
		args := make([]any, 0, len(job))
		for _, a := range job[1:] {
			args = append(args, value.From(a))
		}
		got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "http.query", Arg: args}).Return
		if want := recorded[i].At("return"); !value.Equal(got, want) {
			t.Errorf("%v: returns %s\nSalt: %s", job, value.Repr(got), value.Repr(want))
		}
	}
	for _, c := range []struct {
		url  string
		kw   *value.Dict
		want string
	}{
		{closed.URL, value.DictOf("__kwarg__", true, "status", true), "0"},
		{"file:///etc/passwd", nil, ""},
		{s.URL, value.DictOf("__kwarg__", true, "no_such_keyword", 1), ""},
	} {
		args := []any{c.url}
		if c.kw != nil {
			args = append(args, c.kw)
		}
		got := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "http.query", Arg: args})
		if d, ok := got.Return.(*value.Dict); ok != (c.want != "") || ok && (value.Str(d.At("status")) != c.want || d.Str("error") == "") {
			t.Errorf("%s: %s", c.url, value.Repr(got.Return))
		}
	}
}

// TestHeadersInOrder checks that equal responses are shown alike.
func TestHeadersInOrder(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, name := range []string{"X-C", "X-A", "X-B", "X-F", "X-E", "X-D"} {
			w.Header().Set(name, "1")
		}
	}))
	t.Cleanup(s.Close)
	r, err := fn.NewRegistry(nil, httpModule())
	if err != nil {
		t.Fatal(err)
	}
	out := r.Run(t.Context(), &fn.Call{}, fn.Job{Fun: "http.query", Arg: []any{s.URL, value.DictOf("__kwarg__", true, "headers", true)}})
	d, _ := out.Return.(*value.Dict)
	var names []string
	for k := range d.Dict("headers").All() {
		names = append(names, value.Str(k))
	}
	if len(names) < 6 || !slices.IsSorted(names) {
		t.Errorf("headers: %v (%s)", names, value.Repr(out.Return))
	}
}
