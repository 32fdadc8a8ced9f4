// Package stocktest compares execution modules with a real Salt minion. A table
// in a module family's testdata lists jobs. record.py runs them once, with
// Salt's own job code, and records the outcomes. The tests compare with the
// recording and need neither Salt nor Python.
//
// A table is JSON:
//
//	{"minion": {options}, "jobs": [
//	  {"fun": "test.echo", "arg": ["x"], "return": "x", "retcode": 0, "success": true},
//	  ...]}
//
// The table may also have "pillar", the pillar of the minion.
//
// Further fields of a job: "out" is the outputter, if the outcome names one;
// "ours" is what Brine returns instead of "return", "ours_retcode" its exit
// status if that differs, too, and "why" the reason. Process ids and the
// documentation after an error message are not compared. Of a fault, only its
// message is compared.
package stocktest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/test/tools"
)

//go:embed record.py
var recorder []byte

// table is a decoded table: each job is a dict of its fields.
type table []*value.Dict

// JID is the id of every job.
const JID = "20260101000000000000"

func load(t *testing.T, path string) *value.Dict {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v, err := model(json.NewDecoder(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	return v.(*value.Dict)
}

func read(t *testing.T, path string) table {
	t.Helper()
	var tab table
	for _, j := range load(t, path).List("jobs") {
		tab = append(tab, j.(*value.Dict))
	}
	if len(tab) == 0 {
		t.Fatalf("%s holds no jobs", path)
	}
	return tab
}

// Options returns the options that the minion of a table had.
func Options(t *testing.T, path string) *value.Dict {
	t.Helper()
	return load(t, path).Dict("minion")
}

// Pillar returns the pillar that the minion of a table had.
func Pillar(t *testing.T, path string) *value.Dict {
	t.Helper()
	return load(t, path).Dict("pillar")
}

// Compare runs the jobs of a table in order with the functions of r. prepare
// makes the Call of each job.
func Compare(t *testing.T, path string, r *fn.Registry, prepare func() *fn.Call) {
	t.Helper()
	for _, j := range read(t, path) {
		t.Run(j.Str("fun"), func(t *testing.T) { compare(t, j, r, prepare()) })
	}
}

func compare(t *testing.T, j *value.Dict, r *fn.Registry, c *fn.Call) {
	fun, args := j.Str("fun"), &value.List{Items: j.List("arg")}
	pub := value.DictOf("fun", fun, "arg", args, "jid", JID, "ret", "", "tgt", "alpha", "tgt_type", "glob", "user", "root")
	c.ID, c.JID = "alpha", JID
	arg := value.Repr(args)
	got := r.Run(t.Context(), c, fn.Job{Fun: fun, Arg: args.Items, Pub: pub})
	want, retcode := j.At("return"), j.Int("retcode")
	if j.Has("ours") {
		if j.Str("why") == "" {
			t.Error("the deviation needs a reason")
		}
		want = j.At("ours")
	}
	if j.Has("ours_retcode") {
		retcode = j.Int("ours_retcode")
	}
	if !same(normal(got.Return), normal(want)) {
		t.Errorf("%s: returns %s\nwant %s", arg, value.Repr(got.Return), value.Repr(want))
	}
	if got.Retcode != int(retcode) || got.Success != (retcode == 0) {
		t.Errorf("%s: retcode %d, success %v, want %d", arg, got.Retcode, got.Success, retcode)
	}
	if got.Err != nil && got.Out != j.Str("out") {
		t.Errorf("%s: outputter %q, want %q", arg, got.Out, j.Str("out"))
	}
}

const fault = "The minion function caused an exception: "

// context matches the part of an error message in which Salt shows a whole
// environment; Brine omits it.
var context = regexp.MustCompile(`(?s)with the context '.*', reason:`)

// normal replaces what must not be compared.
func normal(v any) any {
	switch x := v.(type) {
	case value.Tuple:
		return normal(&value.List{Items: x})
	case *value.List:
		l := &value.List{}
		for _, it := range x.Items {
			l.Append(normal(it))
		}
		return l
	case *value.Dict:
		d := value.NewDict(x.Len())
		for k, w := range x.All() {
			if k == "pid" {
				w = value.TypeName(w)
			}
			d.Set(value.Str(k), normal(w)) // JSON keys are strings
		}
		return d
	case string:
		if strings.HasPrefix(x, "Passed invalid arguments to ") {
			x, _, _ = strings.Cut(x, "\n")
		}
		return context.ReplaceAllString(x, "with the context '', reason:")
	}
	return v
}

// same compares values. A fault is equal if Salt's message, which begins with
// the name of a Python class, ends with Brine's.
func same(got, want any) bool {
	g, ok1 := got.(string)
	w, ok2 := want.(string)
	if ok1 && ok2 && strings.HasPrefix(w, fault) {
		text, ok := strings.CutPrefix(g, fault)
		return ok && strings.HasSuffix(strings.TrimRight(strings.ToLower(w), "."), strings.ToLower(text))
	}
	return value.Equal(got, want)
}

// model decodes the next JSON value to the value model and keeps the order of
// maps.
func model(d *json.Decoder) (any, error) {
	d.UseNumber()
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch x := tok.(type) {
	case json.Number:
		if i, err := x.Int64(); err == nil {
			return i, nil
		}
		return x.Float64()
	case json.Delim:
		if x == '[' {
			return list(d)
		}
		return dict(d)
	}
	return tok, nil
}

func list(d *json.Decoder) (any, error) {
	l := &value.List{}
	for d.More() {
		v, err := model(d)
		if err != nil {
			return nil, err
		}
		l.Append(v)
	}
	_, err := d.Token()
	return l, err
}

func dict(d *json.Decoder) (any, error) {
	out := value.NewDict(0)
	for d.More() {
		k, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := model(d)
		if err != nil {
			return nil, err
		}
		out.Set(k, v)
	}
	_, err := d.Token()
	return out, err
}

// Verify runs the jobs of a table again on a real minion and compares with the
// recording. It skips unless BRINE_STOCK_SALT names Salt's source tree. If
// BRINE_RECORD is set, it rewrites the table instead.
func Verify(t *testing.T, path string) {
	t.Helper()
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tmp, fresh := record(t, old)
	if os.Getenv("BRINE_RECORD") != "" {
		if err := os.WriteFile(path, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	before, after := read(t, path), read(t, tmp)
	for i, j := range before {
		k := after[i]
		if !value.Equal(normal(j.At("return")), normal(k.At("return"))) || j.Int("retcode") != k.Int("retcode") || j.Str("out") != k.Str("out") {
			t.Errorf("recorded %s\nSalt returns %s", value.Repr(j), value.Repr(k))
		}
	}
}

// Ask runs jobs now on a real minion with these options, possibly none, and
// returns their outcomes, for results that depend on the machine and cannot be
// recorded. Each job is the name of a function and its arguments. It skips
// like Verify.
func Ask(t *testing.T, options map[string]any, jobs ...[]any) []*value.Dict {
	t.Helper()
	type job struct {
		Fun string `json:"fun"`
		Arg []any  `json:"arg"`
	}
	list := make([]job, len(jobs))
	for i, j := range jobs {
		list[i] = job{j[0].(string), append([]any{}, j[1:]...)}
	}
	data, err := json.Marshal(map[string]any{"minion": options, "jobs": list})
	if err != nil {
		t.Fatal(err)
	}
	path, _ := record(t, data)
	return read(t, path)
}

// record runs the jobs of a table on a real minion and returns the table with
// the outcomes, and its file.
func record(t *testing.T, jobs []byte) (path string, done []byte) {
	t.Helper()
	stock, python := tools.StockSalt(t)
	dir := t.TempDir()
	script, path := filepath.Join(dir, "record.py"), filepath.Join(dir, "table.json")
	for name, data := range map[string][]byte{script: recorder, path: jobs} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), python, "-W", "ignore", script, path)
	// The caller's environment must not get into a recording.
	cmd.Env = []string{"PYTHONPATH=" + stock, "HOME=/", "SHELL=/bin/bash", "PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", "PYTHONHASHSEED=0"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("recording: %v\n%s", err, out)
	}
	done, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, done
}
