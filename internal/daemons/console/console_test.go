package console

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"brine/internal/net/event"
	"brine/internal/py/value"
)

// TestFilesKeepThePolicy: no page uses what the policy forbids. A browser would report that
// only when a user opens that part of the page.
func TestFilesKeepThePolicy(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|style=|\son\w+="|javascript:|https?://[a-z]`)
	n := 0
	err := fs.WalkDir(files, "static", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		b, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		for _, line := range strings.Split(string(b), "\n") {
			if m := forbidden.FindString(strings.ReplaceAll(line, "http://www.w3.org/2000/svg", "")); m != "" {
				t.Errorf("%s has %q: %.200s", path, m, line)
			}
		}
		if kindOf(path) == "" {
			t.Errorf("%s has no content type", path)
		}
		if regexp.MustCompile(`<script(>| [^>]*[^>]>[^<])|<style`).Match(b) {
			t.Errorf("%s has an inline script or style", path)
		}
		return nil
	})
	if err != nil || n < 10 {
		t.Fatalf("%d files: %v", n, err)
	}
}

func TestServe(t *testing.T) {
	get := func(name, tag string) (*httptest.ResponseRecorder, bool) {
		r := httptest.NewRequest("GET", "/console/"+name, nil)
		r.Header.Set("If-None-Match", tag)
		w := httptest.NewRecorder()
		return w, Serve(w, r, name, []string{"https://m2.example:8000"})
	}
	w, ok := get("", "")
	policy := w.Header().Get("Content-Security-Policy")
	if !ok || w.Code != 200 || !strings.Contains(w.Body.String(), "main.js") || !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") || !strings.Contains(policy, "connect-src 'self' https://m2.example:8000;") {
		t.Errorf("the start page: %d %q %.100s", w.Code, policy, w.Body)
	}
	if w, _ := get("", w.Header().Get("ETag")); w.Code != 304 || w.Body.Len() != 0 {
		t.Errorf("unchanged: %d", w.Code)
	}
	for _, name := range []string{"nothing.js", "../console.go", "../../api/api.go", ".", "static", "/etc/passwd", "..", "main.js/"} {
		if w, ok := get(name, ""); ok && name != "main.js/" {
			t.Errorf("%q: %d %.80s", name, w.Code, w.Body)
		}
	}
}

func brief(t *testing.T, tag string, data *value.Dict) (e *Event, shown map[string]any) {
	t.Helper()
	e, err := NewEvent(tag, data)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tag  string
		Data map[string]any
	}
	if err := json.Unmarshal([]byte(e.Brief), &got); err != nil {
		t.Fatalf("%v: %s", err, e.Brief)
	}
	return e, got.Data
}

// TestEventsAreBounded: whatever an event contains, a page gets a bounded amount of data.
func TestEventsAreBounded(t *testing.T) {
	deep := any("bottom")
	for range 5000 {
		deep = value.ListOf(deep)
	}
	wide, many := value.NewDict(0), &value.List{}
	for i := range 10000 {
		wide.Set(fmt.Sprint(i), i)
		many.Append("x")
	}
	huge := strings.Repeat("\x1b[31m<b>\u202e", 1<<20)
	for name, v := range map[string]any{"deep": deep, "wide": wide, "many": many, "huge": huge, "bytes": []byte(huge), "tuple": value.Tuple(many.Items),
		"keys": value.DictOf(huge, huge)} {
		for _, key := range []string{"x", "return"} {
			e, shown := brief(t, "salt/job/20260101000000000000/ret/"+name, value.DictOf("id", name, "jid", "20260101000000000000", key, v))
			// JSON in ASCII takes up to six bytes for one byte.
			if len(e.Brief) > 8*maxBrief || len(e.Bare) > 1000 || shown["id"] != name {
				t.Errorf("%s as %s: %d and %d bytes: %.200s", name, key, len(e.Brief), len(e.Bare), e.Brief)
			}
			if key == "return" && shown["cut"] != true {
				t.Errorf("%s: nothing says that the return is left out: %.300s", name, e.Brief)
			}
		}
	}
	if e, _ := brief(t, strings.Repeat("ü", 10000), value.NewDict(0)); len(e.Brief) > 3000 {
		t.Errorf("a tag: %d bytes", len(e.Brief))
	}
}

func TestEventOfAReturn(t *testing.T) {
	states := value.DictOf("a_|-b_|-c_|-d", value.DictOf("result", false, "changes", value.NewDict(0)),
		"a_|-b_|-c_|-e", value.DictOf("result", true, "changes", value.DictOf("x", 1)))
	e, shown := brief(t, "salt/job/1/ret/w1", value.DictOf("id", "w1", "jid", "1", "return", states, "retcode", 2))
	if got := fmt.Sprint(shown["failed"], shown["states"]); got != "true map[changed:1 failed:1 ok:0 unknown:0]" {
		t.Error(got)
	}
	if !strings.Contains(e.Bare, `"id": "w1"`) || !strings.Contains(e.Bare, `"failed": true`) || !strings.Contains(e.Bare, `"cut": true`) {
		t.Errorf("bare: %s", e.Bare)
	}
	if _, shown := brief(t, "salt/job/1/ret/w1", value.DictOf("id", "w1", "return", event.Trimmed)); shown["cut"] != true {
		t.Errorf("a return that the bus has left out: %v", shown)
	}
	if _, shown := brief(t, "salt/job/1/ret/w1", value.DictOf("id", "w1", "return", true, "retcode", 0)); shown["return"] != true || shown["failed"] != false {
		t.Errorf("a small return: %v", shown)
	}
}

// TestFlow: a flood of events is shortened, then dropped and counted, and no event is lost
// without being counted.
func TestFlow(t *testing.T) {
	f, now := NewFlow(), time.Now()
	ret := &Event{Brief: `{"brief": 1}`, Bare: `{"bare": 1}`}
	other := &Event{Brief: `{"other": 1}`}
	const n = 20000
	for range n {
		f.Put(ret, now)
		f.Put(other, now)
	}
	var got struct {
		Events  []map[string]int
		Skipped int
	}
	text := f.Take()
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Events)+got.Skipped != 2*n || len(got.Events) != eventBurst+bareBurst {
		t.Errorf("%d events and %d left out", len(got.Events), got.Skipped)
	}
	if f.Take() != "" {
		t.Error("events are sent twice")
	}
	f.Put(other, now.Add(time.Second))
	if text := f.Take(); !strings.Contains(text, "other") {
		t.Errorf("a second later: %s", text)
	}
}

func TestTopology(t *testing.T) {
	topology := func(revision string, minions ...any) *value.Dict {
		return value.DictOf("revision", revision, "here", "m1", "keys_waiting", 2, "masters", value.ListOf("m1"), "minions", value.DictOf(minions...))
	}
	up, down := value.DictOf("state", "up"), value.DictOf("state", "down")
	var have Topology
	for _, c := range []struct {
		d    *value.Dict
		want string
	}{
		{topology("1", "a", up, "b", up),
			`{"full": true, "here": "m1", "keys_waiting": 2, "masters": ["m1"], "set": {"a": {"state": "up"}, "b": {"state": "up"}}, "gone": [], "loads": {}}`},
		{value.DictOf("revision", "1"), ""},
		{topology("1", "a", down), ""},
		{topology("2", "a", up, "b", down),
			`{"full": false, "here": "m1", "keys_waiting": 2, "masters": ["m1"], "set": {"b": {"state": "down"}}, "gone": [], "loads": {}}`},
		{value.DictOf("revision", "2", "loads", value.DictOf("m1", value.DictOf("cpu", 5))), `{"loads": {"m1": {"cpu": 5}}}`},
		{value.DictOf("revision", "2", "loads", value.DictOf("m1", value.DictOf("cpu", 5))), ""},
		{topology("3", "b", down), `{"full": false, "here": "m1", "keys_waiting": 2, "masters": ["m1"], "set": {}, "gone": ["a"], "loads": {}}`},
	} {
		got, err := have.Update(c.d)
		if err != nil || got != c.want {
			t.Errorf("%s, want %s: %v", got, c.want, err)
		}
	}
	for tag, want := range map[string]bool{"salt/minion/w1/master_changed": true, "salt/minion/w1/start": true, "salt/job/1/ret/w1": false, "salt/key": true,
		"salt/presence/change": true, "salt/presence/present": false, "salt/minion/w1/x": false, "": false} {
		if Hints(tag) != want {
			t.Errorf("%s: %v", tag, !want)
		}
	}
}
