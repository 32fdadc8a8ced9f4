package beacons

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/process"
	"brine/internal/py/value"
)

func dict(kv ...any) *value.Dict { return value.DictOf(kv...) }

// rig is a machine made of files, with functions that return what a test sets.
type rig struct {
	t       *testing.T
	root    string
	kinds   map[string]Beacon
	call    *fn.Call
	answers map[string]any
	memory  *value.Dict
	now     time.Time
	held    io.Closer
}

type one struct {
	Name string    `salt:"name" default:""`
	Kw   fn.Kwargs `salt:"kwargs"`
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, root: t.TempDir(), answers: map[string]any{}, memory: value.NewDict(0), now: time.Unix(1_800_000_000, 0)}
	r.kinds = All(&host.Machine{Root: r.root})
	reply := func(fun string) fn.Func {
		return fn.Of(strings.Split(fun, ".")[1], func(_ context.Context, _ *fn.Call, a one) (any, error) {
			v, ok := r.answers[strings.TrimSuffix(fun+" "+a.Name, " ")]
			if !ok {
				return nil, errors.New("no answer")
			}
			return v, nil
		}, "A test's answer.")
	}
	reg, err := fn.NewRegistry(nil,
		fn.Module{Name: "ps", Doc: "x", Funcs: []fn.Func{reply("ps.virtual_memory"), reply("ps.swap_memory"), reply("ps.disk_usage")}},
		fn.Module{Name: "service", Doc: "x", Funcs: []fn.Func{reply("service.status")}},
		fn.Module{Name: "pkg", Doc: "x", Funcs: []fn.Func{reply("pkg.version"), reply("pkg.latest_version")}},
		fn.Module{Name: "cmd", Doc: "x", Funcs: []fn.Func{reply("cmd.shells")}},
		fn.Module{Name: "status", Doc: "x", Funcs: []fn.Func{reply("status.loadavg"), reply("status.time"), reply("status.nproc")}})
	if err != nil {
		t.Fatal(err)
	}
	r.call = (&fn.Call{ID: "w1", Funcs: reg}).Prepare()
	return r
}

func (r *rig) file(path, text string) {
	r.t.Helper()
	path = filepath.Join(r.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// look compares the events of a beacon, as a string.
func (r *rig) look(kind string, config any, want string) {
	r.t.Helper()
	c, err := ParseConfig(config)
	if err == nil {
		err = r.kinds[kind].Validate(c)
	}
	if err != nil {
		r.t.Fatalf("%s: %v", kind, err)
	}
	got, err := r.kinds[kind].Look(context.Background(), Look{Config: c, Memory: r.memory, Call: r.call, Now: r.now, Held: &r.held})
	if err != nil {
		r.t.Errorf("%s: %v", kind, err)
	}
	var texts []string
	for _, d := range got {
		texts = append(texts, value.Repr(d))
	}
	if text := strings.Join(texts, " "); text != want {
		r.t.Errorf("%s %s\n tells %s\n want  %s", kind, value.Repr(config), text, want)
	}
}

func TestLoad(t *testing.T) {
	r := newRig(t)
	limits := func(more ...any) *value.List {
		l := value.ListOf(dict("averages", dict("1m", value.ListOf(0.0, 2.0), "5m", value.ListOf(0.1, 1.5))))
		if len(more) > 0 {
			l.Append(dict(more...))
		}
		return l
	}
	calm, busy := "{'1m': 0.5, '5m': 0.4, '15m': 0.3}", "{'1m': 3.25, '5m': 1.0, '15m': 0.5}"
	set := func(text string) { r.file("proc/loadavg", text+" 1/100 4711\n") }
	set("0.50 0.40 0.30")
	r.look("load", limits(), "")
	set("3.25 1.00 0.50")
	r.look("load", limits(), busy)
	r.look("load", limits(), busy)
	r.memory = value.NewDict(0)
	r.look("load", limits("onchangeonly", true), "")
	set("0.50 0.40 0.30")
	r.look("load", limits("onchangeonly", true), "")
	set("3.25 1.00 0.50")
	r.look("load", limits("onchangeonly", true), busy)
	r.look("load", limits("onchangeonly", true), "")
	set("0.50 0.40 0.30")
	r.look("load", value.ListOf(dict("averages", dict("1m", value.ListOf(1.0, 2.0))), dict("onchangeonly", true)), calm)
}

func TestUsage(t *testing.T) {
	r := newRig(t)
	r.answers["ps.virtual_memory"] = dict("percent", 63.5)
	r.answers["ps.swap_memory"] = dict("percent", 5.0)
	r.look("memusage", value.ListOf(dict("percent", "63%")), "{'memusage': 63.5}")
	r.look("memusage", value.ListOf(dict("percent", int64(64))), "")
	r.look("swapusage", value.ListOf(dict("percent", 5.0)), "{'swapusage': 5.0}")
	r.file("proc/self/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /srv/data ext4 rw 0 0\n/dev/c /home ext4 rw 0 0\n")
	r.file("proc/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /srv/data ext4 rw 0 0\n/dev/c /home ext4 rw 0 0\n")
	r.file("proc/self/mountinfo", "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 8:2 / /srv/data rw - ext4 /dev/b rw\n3 1 8:3 / /home rw - ext4 /dev/c rw\n")
	for name, used := range map[string]float64{"/": 50, "/srv/data": 95, "/home": 99} {
		r.answers["ps.disk_usage "+name] = dict("percent", used)
	}
	r.look("diskusage", value.ListOf(dict("/", "63%"), dict("/srv/data", "90%")), "{'diskusage': 95.0, 'mount': '/srv/data'}")
	r.look("diskusage", value.ListOf(dict("interval", int64(5)), dict(`^\/(?!home).*$`, int64(40))),
		"{'diskusage': 50.0, 'mount': '/'} {'diskusage': 95.0, 'mount': '/srv/data'}")
}

func TestService(t *testing.T) {
	r := newRig(t)
	r.answers["service.status nginx"] = true
	conf := func(kv ...any) *value.List { return value.ListOf(dict("services", dict("nginx", dict(kv...)))) }
	up := "{'service_name': 'nginx', 'tag': 'nginx', 'nginx': {'running': True}}"
	down := strings.Replace(up, "True", "False", 1)
	r.look("service", conf(), up)
	r.look("service", conf(), up)
	r.look("service", conf("onchangeonly", true), up)
	r.look("service", conf("onchangeonly", true), "")
	r.answers["service.status nginx"] = false
	r.look("service", conf("onchangeonly", true), down)
	r.look("service", conf("uncleanshutdown", "/nonexistent/pid"), strings.Replace(down, "False", "False, 'uncleanshutdown': False", 1))
	r.answers["service.status nginx"] = true
	r.look("service", conf("onchangeonly", true, "delay", int64(30)), "")
	r.now = r.now.Add(29 * time.Second)
	r.look("service", conf("onchangeonly", true, "delay", int64(30)), "")
	r.now = r.now.Add(time.Second)
	r.look("service", conf("onchangeonly", true, "delay", int64(30)), up)
	r.look("service", conf("onchangeonly", true, "delay", int64(30)), "")
	r.memory = value.NewDict(0)
	r.look("service", conf("onchangeonly", true, "emitatstartup", false), "")
}

func TestStatus(t *testing.T) {
	r := newRig(t)
	r.answers["status.loadavg"] = dict("1-min", 0.5, "5-min", 0.4)
	r.answers["status.time"] = "Sun"
	tag := "{'tag': '" + r.now.UTC().Format("2006-01-02T15:04:05.000000") + "', 'data': "
	r.look("status", value.ListOf(dict("time", value.ListOf("all")), dict("loadavg", value.ListOf("1-min"))),
		tag+"{'time': 'Sun', 'loadavg': {'1-min': 0.5}}}")
	r.look("status", value.ListOf(dict("loadavg", value.ListOf("9-min"))), tag+`{'loadavg': "Status beacon is incorrectly configured: '9-min'"}}`)
	r.look("status", value.ListOf(), tag+"{'loadavg': {'1-min': 0.5, '5-min': 0.4}, 'cpustats': {}, 'meminfo': {}, 'vmstats': {}, 'time': 'Sun'}}")
}

func TestProcesses(t *testing.T) {
	r := newRig(t)
	r.kinds = All(&host.Machine{}) // so that the process of this test is found
	self, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Skip(err)
	}
	name := ""
	for _, p := range processes() {
		if strings.HasPrefix(p, strings.TrimSpace(string(self))) {
			name = p
		}
	}
	r.look("ps", value.ListOf(dict("processes", dict(name, "running", "no such program", "stopped", "nor this", "running", "gone", "?"))),
		"{'"+name+"': 'Running'} {'no such program': 'Stopped'} {'gone': False}")
}

func TestWrongSettings(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct {
		kind   string
		config any
	}{
		{"load", nil}, {"load", "x"}, {"load", value.ListOf("x")}, {"load", value.ListOf(dict("averages", dict("2m", value.ListOf(1, 2))))},
		{"load", value.ListOf(dict("averages", dict("1m", value.ListOf(1))))}, {"memusage", value.ListOf(dict("percent", "much"))}, {"memusage", nil},
		{"diskusage", value.ListOf(dict("/", "full"))}, {"diskusage", value.ListOf(dict("(", "5%"))}, {"ps", nil},
		{"service", value.ListOf(dict("services", "nginx"))},
	} {
		conf, err := ParseConfig(c.config)
		if err == nil {
			err = r.kinds[c.kind].Validate(conf)
		}
		if err == nil {
			t.Errorf("%s: %s is taken", c.kind, value.Repr(c.config))
		}
	}
}

func processes() (names []string) {
	for _, p := range process.All(&host.Machine{}) {
		names = append(names, p.Name)
	}
	return names
}
