// Package statetest compares state modules with those of stock Salt on a real
// machine: with real accounts, packages, services and files.
//
// A table in a state family's testdata is YAML:
//
//	grains: {os_family: Debian}      # of the minion
//	prepare: touch /srv/x            # shell commands before all cases
//	setup: touch /srv/y              # and before each
//	fresh: false                     # do not begin each case afresh
//	network: own                     # a network namespace, too, without any link
//	show: getent passwd joe          # prints what is compared after each case
//	mask: [["pid [0-9]+", "pid"]]    # patterns to replace before comparing
//	disk: true                       # in the temporary directory, not in memory
//	names: true                      # compare results' names, where they are not the state's
//	tests: true                      # compare states of the module test, too
//	stored: true                     # grains are also those of the file /etc/salt/grains
//	cases:
//	- user.present: {name: joe}      # a state and its arguments
//	  setup: useradd joe             # more commands, for this case
//	  watched: true                  # the state watches another with changes
//	  varies: rounds memory          # why Salt's outcome depends on the machine;
//	                                 # Verify does not compare it, ours is needed
//	- low: [{...}, {...}]            # several chunks
//
// Each case runs as a test, for real, and for real again; a test must not
// change what is shown. Recordings of stock Salt are beside the table, with the
// suffix json. A case may have "ours", a map from test, run or again to
// differing fields of the outcome, with the reason as "why".
//
// The states work in a separate mount namespace, in which /etc, /srv and others
// (see machine.sh) are new directories: the machine that runs the tests is not
// changed. That requires root on Linux; otherwise the tests skip.
package statetest

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/call/fn/fntest"
	"brine/internal/files/fileclient"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/sls/render"
	"brine/internal/sls/state"
	"brine/internal/sls/state/engine"
	"brine/test/tools"
)

//go:embed machine.sh
var machine []byte

//go:embed record.py
var recorder []byte

// Table is a test table, with the modules that are compared with its recording.
type Table struct {
	// Name is the table's path without its extension.
	Name string
	// States are the state modules, Functions the execution modules that they
	// may call.
	States    []state.Module
	Functions []fn.Module
	// Grains, if set, returns new grains for every state, from those of the
	// table.
	Grains func(table *value.Dict) *value.Dict
	// Env are variables, NAME=value, for all commands. An option of the table
	// that is $NAME is replaced by the variable's value. They locate servers
	// that the test has started, and must not be compared.
	Env []string
}

// Inside reports whether the test already runs in the private machine.
func Inside() bool { return os.Getenv(directory) != "" }

// directory is the environment variable that names the working directory in the
// private machine.
const directory = "BRINE_STATETEST"

// path is the PATH of everything that runs in the private machine.
const path = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"

// outcome is the part of a result that is compared.
type outcome struct {
	Crash    string `json:"crash,omitempty"`
	Name     any    `json:"name,omitempty"`
	Result   any    `json:"result"`
	Comment  string `json:"comment"`
	Changes  any    `json:"changes"`
	Warnings any    `json:"warnings,omitempty"`
}

type recorded struct {
	Case  string    `json:"case"`
	Test  []outcome `json:"test"`
	Run   []outcome `json:"run"`
	Again []outcome `json:"again"`
	Shown string    `json:"shown"`
}

type caseOf struct {
	name        string
	setup, show string
	varies      bool
	chunks      []*value.Dict
	ours        *value.Dict
}

// table is a decoded table.
type table struct {
	grains, options *value.Dict
	prepare         string
	fresh           bool
	network, names  bool
	tests, stored   bool
	disk            bool
	setup, show     string
	mask            [][2]string
	cases           []caseOf
}

func load(t *testing.T, name string) table {
	t.Helper()
	b, err := os.ReadFile(name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	v, err := yaml.Load(b, name)
	if err != nil {
		t.Fatal(err)
	}
	d := v.(*value.Dict)
	tab := table{grains: d.Dict("grains"), options: d.Dict("options"), prepare: d.Str("prepare"), setup: d.Str("setup"), show: d.Str("show")}
	tab.fresh = d.At("fresh") != false
	tab.network = d.At("network") == "own"
	tab.names = d.Bool("names")
	tab.disk = d.Bool("disk")
	tab.tests, tab.stored = d.Bool("tests"), d.Bool("stored")
	for _, m := range d.List("mask") {
		pair := m.(*value.List)
		tab.mask = append(tab.mask, [2]string{pair.Items[0].(string), pair.Items[1].(string)})
	}
	for i, it := range d.List("cases") {
		c, err := readCase(i, it.(*value.Dict))
		if err != nil {
			t.Fatal(err)
		}
		tab.cases = append(tab.cases, c)
	}
	return tab
}

func readCase(n int, d *value.Dict) (c caseOf, err error) {
	c = caseOf{setup: d.Str("setup"), show: d.Str("show"), varies: d.Str("varies") != "", ours: d.Dict("ours")}
	watched := d.Bool("watched")
	if watched {
		c.chunks = append(c.chunks, value.DictOf("state", "test", "fun", "succeed_with_changes", "name", "changed", "__id__", "changed", "__sls__", "x",
			"__env__", "base", "order", 1))
	}
	for k, v := range d.All() {
		mod, fun, ok := strings.Cut(value.Str(k), ".")
		switch {
		case k == "low":
			for _, it := range v.(*value.List).Items {
				c.chunks = append(c.chunks, it.(*value.Dict))
			}
		case ok:
			low := value.DictOf("state", mod, "fun", fun)
			if watched {
				low.Set("watch", value.ListOf(value.DictOf("test", "changed")))
			}
			args, _ := v.(*value.Dict)
			low.Update(args)
			c.chunks = append(c.chunks, low)
		}
	}
	for i, low := range c.chunks {
		for k, v := range map[string]any{"__id__": "x", "__sls__": "x", "__env__": "base", "order": int64(i + 1)} {
			if !low.Has(k) {
				low.Set(k, v)
			}
		}
	}
	if len(c.chunks) == 0 {
		return c, fmt.Errorf("case %d has no state", n)
	}
	last := c.chunks[len(c.chunks)-1]
	text, err := json.Marshal(plain(last))
	c.name = fmt.Sprintf("%03d %s.%s %s", n, last.Str("state"), last.Str("fun"), text)
	if c.ours != nil && d.Str("why") == "" {
		return c, fmt.Errorf("case %s: ours needs a reason", c.name)
	}
	if c.varies && c.ours == nil {
		return c, fmt.Errorf("case %s: what varies must be compared with ours", c.name)
	}
	return c, err
}

// plain converts a value to the types of decoded JSON.
func plain(v any) any {
	switch v := v.(type) {
	case *value.Dict:
		m := map[string]any{}
		for k, it := range v.All() {
			m[value.Str(k)] = plain(it)
		}
		return m
	case *value.List:
		return plainList(v.Items)
	case value.Tuple:
		return plainList(v)
	case int64:
		return float64(v)
	}
	return v
}

func plainList(items []any) any {
	l := []any{}
	for _, it := range items {
		l = append(l, plain(it))
	}
	return l
}

// Run compares the states with the recording of a table. A top-level test must
// call it, not a subtest, since it runs that test again in the private machine.
func Run(t *testing.T, tab Table) {
	t.Helper()
	if dir := os.Getenv(directory); dir != "" {
		inside(t, dir, tab)
		return
	}
	cmd := command(t, tab, os.Args[0], "-test.run", "^"+regexp.QuoteMeta(t.Name())+"$", "-test.v", "-test.count=1")
	out, err := cmd.CombinedOutput()
	skipUnlessPrivate(t, err)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) && !strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Skipf("in the private machine:\n%s", out)
	}
}

// skipUnlessPrivate skips the test if a command cannot start because mount
// namespaces are unavailable: in a container without the privilege, or in a
// chroot whose root is not a mount point.
func skipUnlessPrivate(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
		tools.Without(t, "no mount namespace can be made here: "+err.Error())
	}
}

// command returns a command that runs in new namespaces.
func command(t *testing.T, tab Table, name string, args ...string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a machine of its own needs root")
	}
	dir, err := os.MkdirTemp("", "statetest") // other users than root must be able to enter it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// A daemon of a table is killed with the namespace, but may still be
		// writing.
		err := os.RemoveAll(dir)
		for deadline := time.Now().Add(30 * time.Second); errors.Is(err, syscall.ENOTEMPTY) && time.Now().Before(deadline); err = os.RemoveAll(dir) {
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"machine.sh": machine, "record.py": recorder} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = []string{directory + "=" + dir, "PATH=" + path, "HOME=/srv", "SHELL=/bin/sh", "TMPDIR=" + os.TempDir(), "LC_ALL=C", "USER=root"}
	// The directories of the machine may be on several file systems, or on the root file
	// system.
	cmd.Env = append(cmd.Env, "GIT_DISCOVERY_ACROSS_FILESYSTEM=1")
	cmd.Env = append(cmd.Env, tab.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	of := load(t, tab.Name)
	if of.disk { // machine.sh then uses the disk instead of memory
		cmd.Env = append(cmd.Env, "BRINE_STATETEST_DISK=1")
	}
	if of.network {
		cmd.SysProcAttr.Unshareflags |= syscall.CLONE_NEWNET
	}
	return cmd
}

// inside runs the cases.
func inside(t *testing.T, dir string, tab Table) {
	t.Helper()
	syscall.Umask(0o022)
	cases := load(t, tab.Name)
	do := "sh " + filepath.Join(dir, "machine.sh")
	sh(t, "sh", "-ec", do+" begin "+dir+"\n"+cases.prepare+"\n"+do+" keep "+dir)
	want := recording(t, tab.Name)
	if len(want) != len(cases.cases) {
		t.Fatalf("%d cases, %d recordings: record the table again", len(cases.cases), len(want))
	}
	st := newStage(t, dir, tab, cases)
	for i, c := range cases.cases {
		t.Run(c.name, func(t *testing.T) {
			if want[i].Case != c.name {
				t.Fatalf("recorded was %s: record the table again", want[i].Case)
			}
			setup := cases.setup + "\n" + c.setup
			if cases.fresh {
				setup = do + " reset " + dir + "\n" + setup
			}
			if strings.TrimSpace(setup) != "" {
				sh(t, "sh", "-ec", setup)
			}
			show := cases.show
			if c.show != "" {
				show = c.show
			}
			st.t, st.ours = t, c.ours
			before := st.shown(show)
			st.compare("test", st.run(c.chunks, true), want[i].Test)
			if after := st.shown(show); after != before {
				t.Errorf("a test changed something: before\n%s\nafter\n%s", before, after)
			}
			st.compare("run", st.run(c.chunks, false), want[i].Run)
			wanted := want[i].Shown
			if c.ours.Has("shown") {
				wanted = c.ours.Str("shown")
			}
			if got := st.shown(show); got != wanted {
				t.Errorf("after the run there is\n%s\nwant\n%s", got, wanted)
			}
			st.compare("again", st.run(c.chunks, false), want[i].Again)
		})
	}
}

// expanded returns the options of a table with variables replaced.
func expanded(options *value.Dict, env []string) *value.Dict {
	out := value.NewDict(options.Len())
	for k, v := range options.All() {
		if name, ok := strings.CutPrefix(value.Str(v), "$"); ok {
			for _, e := range env {
				if text, ok := strings.CutPrefix(e, name+"="); ok {
					v = text
				}
			}
		}
		out.Set(k, v)
	}
	return out
}

func sh(t *testing.T, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = "/"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
}

func recording(t *testing.T, name string) []recorded {
	t.Helper()
	var r struct{ Cases []recorded }
	b, err := os.ReadFile(name + ".json")
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.Cases
}

// stage is an engine in the private machine.
type stage struct {
	t    *testing.T
	tab  table
	ours *value.Dict
	test bool
	deps engine.Deps
}

func newStage(t *testing.T, dir string, tab Table, cases table) *stage {
	t.Helper()
	s := &stage{t: t, tab: cases}
	grains := fn.Tree{Dict: cases.grains}
	states, err := state.NewRegistry(grains, tab.States...)
	if err != nil {
		t.Fatal(err)
	}
	funcs, err := fn.NewRegistry(grains, tab.Functions...)
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	r := render.New(render.Options{})
	s.deps = engine.Deps{States: states, Log: quiet}
	cache := filepath.Join(dir, "cache")
	s.deps.Call = func() *fn.Call {
		srv := fileserver.New(fileserver.Options{
			FileRoots: value.DictOf("base", value.ListOf("/srv/salt")), Backends: []string{"roots"}, FollowSymlinks: true, IgnoreRegex: value.ListOf(),
			IgnoreGlob: value.ListOf(),
		}, fileserver.Config{CacheDir: cache, HashType: "sha256"}, quiet)
		files := fileclient.New(srv, fileclient.Options{CacheDir: filepath.Join(cache, "minion"), HashType: "sha256"}, quiet)
		config := value.DictOf("cachedir", cache, "conf_file", "/etc/salt/minion", "test", s.test)
		config.Update(expanded(cases.options, os.Environ()))
		now := grains
		if cases.stored {
			now = fn.Tree{Dict: Stored(s.t, cases.grains)}
		}
		if tab.Grains != nil {
			now = fn.Tree{Dict: tab.Grains(cases.grains)}
		}
		return &fn.Call{ID: "rec", Files: files, Funcs: funcs, Grains: now, Config: fn.Tree{Dict: config},
			Templates: fntest.Templates{OfText: func(ctx context.Context, tm fn.Template) (string, error) {
				return r.Text(ctx, tm.Engine, render.Request{Source: tm.Source, Path: tm.Path, Saltenv: tm.Saltenv, Context: tm.Context})
			}}}
	}
	s.deps.Template = func(ctx context.Context, _ *fn.Call, tm state.Template) (string, error) {
		return r.Text(ctx, tm.Engine, render.Request{Source: []byte(tm.Source), Path: tm.Name, Saltenv: tm.Saltenv, Context: tm.Context})
	}
	return s
}

// Stored adds the grains of the private machine's file to those of a table.
func Stored(t *testing.T, table *value.Dict) *value.Dict {
	t.Helper()
	const name = "/etc/salt/grains"
	all := value.DeepCopy(table).(*value.Dict)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return all
	}
	var v any
	if err == nil {
		v, err = yaml.Load(b, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	if d, ok := v.(*value.Dict); ok {
		all.Update(d)
	}
	return all
}

// masked replaces what differs between runs.
func (t table) masked(text string) string {
	for _, m := range t.mask {
		text = regexp.MustCompile(m[0]).ReplaceAllString(text, m[1])
	}
	return text
}

// maskedAll does the same in all strings and whole numbers of a value.
func (t table) maskedAll(v any) any {
	switch v := v.(type) {
	case string:
		return t.masked(v)
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		if m := t.masked(text); m != text {
			return m
		}
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, it := range v {
			m[t.masked(k)] = t.maskedAll(it)
		}
		return m
	case []any:
		for i, it := range v {
			v[i] = t.maskedAll(it)
		}
	}
	return v
}

func (s *stage) shown(command string) string {
	if command == "" {
		return ""
	}
	cmd := exec.CommandContext(s.t.Context(), "sh", "-c", command)
	cmd.Dir = "/"
	out, _ := cmd.CombinedOutput() // the output shows a failure
	return s.tab.masked(string(out))
}

// run runs chunks and returns the outcomes of those that are compared.
func (s *stage) run(chunks []*value.Dict, test bool) []outcome {
	s.t.Helper()
	s.test = test
	own := make([]*value.Dict, len(chunks))
	for i, low := range chunks {
		own[i] = value.DeepCopy(low).(*value.Dict)
	}
	var outs []map[string]any
	skipped := "test_|-"
	if s.tab.tests {
		skipped = "test_|-changed_|-"
	}
	for k, v := range engine.New(s.deps, engine.Options{Test: test}).Run(s.t.Context(), own).All() {
		if r := v.(*value.Dict); !strings.HasPrefix(value.Str(k), skipped) {
			one := map[string]any{}
			for _, f := range []string{"result", "comment", "changes", "warnings"} {
				if r.Has(f) {
					one[f] = plain(r.At(f))
				}
			}
			if name := r.At("name"); s.tab.names && value.Str(name) != nameOf(value.Str(k)) {
				one["name"] = plain(name)
			}
			outs = append(outs, one)
		}
	}
	b, err := json.Marshal(outs)
	if err != nil {
		s.t.Fatal(err)
	}
	var read []outcome
	if err := json.Unmarshal(b, &read); err != nil {
		s.t.Fatal(err)
	}
	for i := range read {
		o := &read[i]
		o.Comment = s.tab.masked(o.Comment)
		o.Changes, o.Warnings = s.tab.maskedAll(o.Changes), s.tab.maskedAll(o.Warnings)
	}
	return read
}

// nameOf returns the state's name from the tag of a result.
func nameOf(tag string) string {
	if parts := strings.Split(tag, "_|-"); len(parts) == 4 {
		return parts[2]
	}
	return ""
}

func (s *stage) compare(when string, got, want []outcome) {
	s.t.Helper()
	if len(got) != len(want) && (len(want) != 1 || want[0].Crash == "") {
		s.t.Errorf("%s: %d results, want %d", when, len(got), len(want))
		return
	}
	for i := range want {
		s.compareOne(when, got[i], want[i])
	}
}

const traceback = "An exception occurred in this state: Traceback"

func (s *stage) compareOne(when string, got, want outcome) {
	s.t.Helper()
	if own := s.ours.Dict(when); own != nil {
		b, err := json.Marshal(plain(own))
		if err == nil {
			err = json.Unmarshal(b, &want)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	if want.Crash != "" || strings.HasPrefix(want.Comment, traceback) { // Brine returns an error where Salt has a traceback
		if got.Result != false || got.Comment == "" {
			s.t.Errorf("%s: %+v; Salt fails: %s%s", when, got, want.Crash, want.Comment)
		}
		return
	}
	if !reflect.DeepEqual(got, want) {
		s.t.Errorf("%s:\n got %v %v %q %v %v\nwant %v %v %q %v %v", when, got.Name, got.Result, got.Comment, got.Changes, got.Warnings, want.Name,
			want.Result, want.Comment, want.Changes, want.Warnings)
	}
}

// Verify runs a table with stock Salt from the source tree in BRINE_STOCK_SALT,
// and compares with the recording. Without the variable it skips. With
// BRINE_RECORD set, it rewrites the recording instead.
func Verify(t *testing.T, name string) {
	t.Helper()
	VerifyTable(t, func(*testing.T) Table { return Table{Name: name} })
}

// VerifyTable does the same for a table with variables. It calls table, which
// may start a server, only if stock Salt is available.
func VerifyTable(t *testing.T, table func(*testing.T) Table) {
	t.Helper()
	stock, python := tools.StockSalt(t)
	tab := table(t)
	name := tab.Name
	read := load(t, name)
	type oneCase struct {
		Name   string `json:"name"`
		Setup  string `json:"setup"`
		Show   string `json:"show"`
		Chunks []any  `json:"chunks"`
	}
	var cases []oneCase
	for _, c := range read.cases {
		one := oneCase{Name: c.name, Setup: c.setup, Show: c.show}
		for _, low := range c.chunks {
			one.Chunks = append(one.Chunks, whole(plain(low)))
		}
		cases = append(cases, one)
	}
	data, err := json.Marshal(map[string]any{"grains": whole(plain(read.grains)), "options": plain(expanded(read.options, tab.Env)), "prepare": read.prepare,
		"fresh": read.fresh, "setup": read.setup, "show": read.show, "mask": read.mask, "names": read.names, "tests": read.tests, "stored": read.stored,
		"cases": cases})
	if err != nil {
		t.Fatal(err)
	}
	cmd := command(t, tab, "/bin/sh", "-ec", `mkdir "$1/stock"; mount --bind "$2" "$1/stock"; shift 2; exec "$@"`, "sh")
	dir := strings.TrimPrefix(cmd.Env[0], directory+"=")
	file := filepath.Join(dir, "table.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	// The private machine hides /opt and other directories, where the source
	// tree may be. Programs such as psql complain if their working directory is
	// hidden.
	cmd.Dir = "/"
	cmd.Args = append(cmd.Args, dir, stock, python, "-W", "ignore", filepath.Join(dir, "record.py"), file, filepath.Join(dir, "machine.sh"), dir)
	// Salt iterates over sets, whose order is random in each Python process.
	cmd.Env = append(cmd.Env, "PYTHONPATH="+filepath.Join(dir, "stock"), "PYTHONHASHSEED=0")
	var said strings.Builder
	cmd.Stderr = &said
	fresh, err := cmd.Output()
	skipUnlessPrivate(t, err)
	if err != nil {
		t.Fatalf("recording: %v\n%s", err, said.String())
	}
	if os.Getenv("BRINE_RECORD") != "" {
		if err := os.WriteFile(name+".json", fresh, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	var again struct{ Cases []recorded }
	if err := json.Unmarshal(fresh, &again); err != nil {
		t.Fatal(err)
	}
	old := recording(t, name)
	if len(old) != len(again.Cases) {
		t.Fatalf("%d cases are recorded, there are %d", len(old), len(again.Cases))
	}
	for i, c := range again.Cases {
		if !read.cases[i].varies && !reflect.DeepEqual(c, old[i]) {
			t.Errorf("recorded %+v\nSalt now: %+v", old[i], c)
		}
	}
}

// whole converts floats without a fraction to ints, as JSON does not
// distinguish them.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, it := range v {
			v[k] = whole(it)
		}
	case []any:
		for i, it := range v {
			v[i] = whole(it)
		}
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	}
	return v
}

// Needs skips the test if a program or directory is missing, or fails it if
// tools are required.
func Needs(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		_, err := os.Stat(n)
		if errors.Is(err, fs.ErrNotExist) && !slices.ContainsFunc(strings.Split(path, ":"), func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, n))
			return err == nil
		}) {
			tools.Without(t, "this machine has no "+n)
		}
	}
}
