package render

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

// TestMain sets the time zone of the recordings before a goroutine of a test reads it.
func TestMain(m *testing.M) {
	os.Setenv("TZ", "UTC")
	time.Local = time.UTC
	os.Exit(m.Run())
}

// TestSaltFilters compares with the results of stock Salt for the same
// expressions.
func TestSaltFilters(t *testing.T) {
	b, err := os.ReadFile("testdata/filters.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := json.Load(string(b))
	if err != nil {
		t.Fatal(err)
	}
	cases := v.(*value.List).Items
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	r := New(Options{})
	for _, c := range cases {
		d := c.(*value.Dict)
		expr := d.Str("expr")
		t.Run(expr, func(t *testing.T) {
			src := "{{ " + expr + " }}"
			if strings.HasPrefix(expr, "{%") {
				src = expr
			}
			got, err := r.Text(t.Context(), "jinja", Request{Source: []byte(src), Opts: value.DictOf("id", "m1"),
				Grains: value.DictOf("os", "Debian", "n", []int{3, 1, 2}), Funcs: &functions{}})
			if !d.Has("error") {
				if err != nil || got != d.Str("out") {
					t.Errorf("got  %q, %v\nwant %q", got, err, d.Str("out"))
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %q, %v, want %s", got, err, d.Str("error"))
			}
			first, _, _ := strings.Cut(e.Message, "\n")
			if d.Str("error") != "" && first != d.Str("error") {
				t.Errorf("got  %s\nwant %s", first, d.Str("error"))
			}
		})
	}
}

// TestDates covers strings that are dates. Salt parses them with timelib, which its
// packages contain.
func TestDates(t *testing.T) {
	now := time.Date(2020, 2, 29, 13, 14, 15, 0, time.Local)
	for text, want := range map[string]string{
		"2020-01-02": "2020-01-02 00:00:00", "2020-1-2": "2020-01-02 00:00:00", "2020/01/02": "2020-01-02 00:00:00", "1/2/2020": "2020-01-02 00:00:00",
		"2.1.2020":         "2020-01-02 00:00:00",
		"2020-01-02 03:04": "2020-01-02 03:04:00", "2020-01-02 03:04:05.25": "2020-01-02 03:04:05", "2020-01-02T03:04:05": "2020-01-02 03:04:05",
		"2020-01-02T03:04:05Z": "2020-01-02 03:04:05",
		"3 Jan 2020":           "2020-01-03 00:00:00", "January 3, 2020": "2020-01-03 00:00:00", "Thu, 02 Jan 2020 03:04:05 GMT": "2020-01-02 03:04:05",
		"Thu, 2 Jan 2020 03:04:05 +0000": "2020-01-02 03:04:05",
		"10:20":                          "2020-02-29 10:20:00", "3pm": "2020-02-29 15:00:00", "now": "2020-02-29 13:14:15", "Today": "2020-02-29 00:00:00",
		"tomorrow": "2020-03-01 00:00:00", "yesterday": "2020-02-28 00:00:00",
		"noon": "2020-02-29 12:00:00", "+1 day": "2020-03-01 13:14:15", "2 days ago": "2020-02-27 13:14:15", "-1 week": "2020-02-22 13:14:15",
		"1 year": "2021-03-01 13:14:15", "2 hours ago": "2020-02-29 11:14:15",
		"foo": "", "2020-13-01": "", "2020-02-30": "", "": "", "day": "", "99999999 days": "", "1 day ago ago": "", "25:00": "",
	} {
		got, ok := parseDate(text, now)
		if s := got.Format(time.DateTime); ok != (want != "") || ok && s != want {
			t.Errorf("%q: %s, %v; want %s", text, s, ok, want)
		}
	}
	for _, huge := range []string{"1e300", "-1e300", "253402300800", "'nan'", "'inf'"} {
		if s, err := New(Options{}).Text(t.Context(), "jinja", Request{Source: []byte("{{ " + huge + " | strftime }}")}); err == nil {
			t.Errorf("%s is a date: %s", huge, s)
		}
	}
}

// asked records the calls of http.query.
type asked struct{ got string }

func (a *asked) Has(name string) bool { return name == "http.query" }
func (a *asked) Names() []string      { return []string{"http.query"} }
func (a *asked) Call(_ context.Context, name string, args []any, kw *value.Dict) (any, error) {
	a.got = name + value.Repr(value.From(args)) + value.Repr(kw)
	return value.NewDict(0), nil
}

// TestHTTPQuery checks that the filter passes all arguments to the function http.query.
func TestHTTPQuery(t *testing.T) {
	for src, want := range map[string]string{
		"'http://x/' | http_query(test=True)":                          "http.query['http://x/']{'test': True}",
		"'http://x/' | http_query":                                     "http.query['http://x/']{}",
		"'http://x/' | http_query('POST', data='a', verify_ssl=false)": "http.query['http://x/']{'method': 'POST', 'data': 'a', 'verify_ssl': False}",
		"'http://x/' | http_query('GET', {'a': 1}, header_dict={'b': 2})": "http.query['http://x/']{'method': 'GET', 'params': {'a': 1}, " +
			"'header_dict': {'b': 2}}",
	} {
		a := &asked{}
		got, err := New(Options{}).Text(t.Context(), "jinja", Request{Source: []byte("{{ " + src + " }}"), Funcs: a})
		if err != nil || got != "{}" || a.got != want {
			t.Errorf("%s: %q, %v, called %s", src, got, err, a.got)
		}
	}
	_, err := New(Options{}).Text(t.Context(), "jinja", Request{Source: []byte("{{ 'http://x/' | http_query }}")})
	if err == nil || !strings.Contains(err.Error(), "not available here") {
		t.Error(err)
	}
}

// TestFiltersOfAnotherMachine checks that no filter reads this machine if templates of
// another one are rendered.
func TestFiltersOfAnotherMachine(t *testing.T) {
	var refused []string
	ctx := Apart(t.Context(), func(name string) error {
		refused = append(refused, name)
		return errors.New("not here")
	})
	for _, name := range MachineFilters() {
		args := ""
		if name == "dns_check" {
			args = "(1)"
		}
		_, err := New(Options{}).Render(ctx, Request{Source: []byte("{{ '/nonexistent' | " + name + args + " }}"), Default: "jinja"})
		if err == nil || !strings.Contains(err.Error(), "not here") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !slices.Equal(refused, MachineFilters()) {
		t.Errorf("refused %v", refused)
	}
}

// TestHashOfEndlessFiles checks that a path from a minion cannot make a template wait or
// read forever.
func TestHashOfEndlessFiles(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/large", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(dir+"/large", 1<<40); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{dir + "/fifo": "is not a regular file", "/dev/zero": "is not a regular file", dir + "/large": "template_max_time"} {
		r := New(Options{Limits: Limits{MaxTime: time.Second}})
		_, err := r.Render(t.Context(), Request{Source: []byte("{{ '" + path + "' | file_hashsum }}"), Default: "jinja"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
