// Package clienttest provides a master for tests of clients: it has a real event bus and request
// socket, and minions implemented as Go functions. It writes the files that command lines read.
package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/call/client"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/transport/zeromq"
	"brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
	"brine/internal/store/cache"
	"brine/internal/store/keystore"
)

// Return is what a minion returns.
type Return struct {
	Value   any
	Retcode any // int64, or a dict of several functions
	Out     string
}

// Minion is one minion with an accepted key.
type Minion struct {
	ID             string
	Grains, Pillar *value.Dict // nil: unknown to the master
	// Run executes a job; nil means the minion is down.
	Run func(fun string, args []any, pub *value.Dict) Return
}

// Options configure the master.
type Options struct {
	// Minions return in this order.
	Minions []Minion
	// Config is added to the master's configuration.
	Config map[string]any
	// JIDs are used for the jobs in order, before generated ids.
	JIDs []string
	// Runner executes a runner, {fun, kwarg, ...}, and returns the data of its last event. progress
	// fires an event before that. Without it runners never end.
	Runner func(load *value.Dict, progress func(suffix string, data *value.Dict)) *value.Dict
}

// Master is a running master.
type Master struct {
	Dir  string // config_dir
	Conf *value.Dict
	Bus  *event.Bus

	t    testing.TB
	o    Options
	key  string
	stop context.CancelFunc

	mu    sync.Mutex
	loads []*value.Dict
	jobs  sync.WaitGroup
}

const testKey = "lv7Wq28saTBXGlvDKqXMc96FJeWAxkocvuIVncCFWx+K7KO9Gui4xDwG8svUb03vU021VzeuFtI="

// Start starts a master that stops with the test.
func Start(t testing.TB, o Options) *Master {
	t.Helper()
	dir, err := os.MkdirTemp("", "brine") // t.TempDir may be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	log := slog.New(slog.DiscardHandler)
	server, err := zeromq.New(log).ListenRequests("127.0.0.1:0", transport.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	port := server.Addr().(*net.TCPAddr).Port
	m := &Master{Dir: dir, Bus: event.NewBus(0), t: t, o: o, key: testKey}
	m.Conf = value.DictOf("interface", "127.0.0.1", "ret_port", port, "sock_dir", dir, "cachedir", dir+"/cache",
		"pki_dir", dir+"/pki", "timeout", .3, "gather_job_timeout", .3)
	for k, v := range o.Config {
		m.Conf.Set(k, value.From(v))
	}
	m.files(log)
	mo := event.MasterOptions{SockDir: dir}
	mo.PubHWM, mo.PubBuffer = 100000, 64
	ipc, err := event.Listen(m.Bus, mo.Sockets(), mo.Options, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { ipc.Serve(ctx) })
	wg.Go(func() { server.Serve(ctx, m.handle) })
	m.stop = func() { stop(); wg.Wait(); m.jobs.Wait() }
	t.Cleanup(m.stop)
	return m
}

// Stop stops the master before the test ends.
func (m *Master) Stop() { m.stop() }

func (m *Master) files(log *slog.Logger) {
	write := func(path, text string, mode os.FileMode) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			m.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			m.t.Fatal(err)
		}
	}
	write(filepath.Join(m.Dir, "master"), yaml.Dump(m.Conf), 0o600)
	place := client.Place{CacheDir: filepath.Join(m.Dir, "cache")}
	write(place.KeyFile(client.Caller(func(string) string { return "" })), m.key, 0o600)
	keys, err := keystore.Open(filepath.Join(m.Dir, "pki"), log)
	if err != nil {
		m.t.Fatal(err)
	}
	c := cache.New(filepath.Join(m.Dir, "cache"), cache.Options{MinionDataCache: true}, log)
	for _, mi := range m.o.Minions {
		write(filepath.Join(keys.Dir(), keystore.Accepted.DirName(), mi.ID), "a key", 0o644)
		if mi.Grains == nil {
			continue
		}
		if err := c.StoreMinion(mi.ID, cache.Minion{Grains: mi.Grains, Pillar: mi.Pillar}); err != nil {
			m.t.Fatal(err)
		}
	}
}

// Loads returns the received requests in order.
func (m *Master) Loads() []*value.Dict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]*value.Dict(nil), m.loads...)
}

func (m *Master) handle(r *transport.Request) {
	v, err := msgpack.Unmarshal(r.Body)
	d, ok := v.(*value.Dict)
	var in wire.Envelope
	if wire.View(d, &in); err != nil || !ok || in.Enc != "clear" || in.Version != 3 {
		m.t.Errorf("not a clear request: %s, %v", value.Repr(v), err)
		return
	}
	load := in.Load
	m.mu.Lock()
	m.loads = append(m.loads, value.DeepCopy(load).(*value.Dict))
	m.mu.Unlock()
	m.jobs.Go(func() {
		b, err := msgpack.Marshal(m.answer(load), msgpack.Wire)
		if err != nil {
			m.t.Error(err)
			return
		}
		r.Reply(b)
	})
}

func (m *Master) answer(load *value.Dict) any {
	var in wire.Publish
	wire.View(load, &in)
	if in.Key != m.key || in.Kwargs.Has("eauth") {
		return value.DictOf("error", value.DictOf("name", "AuthenticationError", "message", "Authentication error occurred."))
	}
	switch in.Cmd {
	case "publish":
		return m.publish(&in)
	case "runner":
		return m.runner(load)
	}
	return value.NewDict(0)
}

func (m *Master) newJID(fun any) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.o.JIDs) > 0 && fun != "saltutil.find_job" {
		jid := m.o.JIDs[0]
		m.o.JIDs = m.o.JIDs[1:]
		return jid
	}
	return salt.NewJID(time.Now())
}

// expected returns the minions that match, and the listed ones that are unknown.
func (m *Master) expected(in *wire.Publish) (minions, missing []string) {
	var kwargs wire.PublishKwargs
	wire.View(in.Kwargs, &kwargs)
	match, err := target.Parse(in.TgtType, in.Tgt, kwargs.Delimiter)
	if err != nil {
		return nil, nil
	}
	ids := make([]string, len(m.o.Minions))
	for i, mi := range m.o.Minions {
		ids[i] = mi.ID
	}
	return match.Expected(ids, func(id string) (grains, pillar *value.Dict) {
		for _, mi := range m.o.Minions {
			if mi.ID == id {
				return mi.Grains, mi.Pillar
			}
		}
		return nil, nil
	})
}

func (m *Master) publish(in *wire.Publish) any {
	minions, missing := m.expected(in)
	if len(minions) == 0 {
		return value.DictOf("enc", "clear", "load", value.DictOf("jid", nil, "minions", &value.List{},
			"error", "Master could not resolve minions for target "+value.Str(in.Tgt)))
	}
	jid := m.newJID(in.Fun)
	m.Bus.Fire("salt/job/"+jid+"/new", value.DictOf("jid", jid, "minions", minions, "missing", missing, "fun", in.Fun))
	named := map[string]bool{}
	for _, id := range minions {
		named[id] = true
	}
	m.jobs.Go(func() {
		for _, mi := range m.o.Minions {
			if named[mi.ID] && mi.Run != nil {
				m.run(mi, jid, in)
			}
		}
	})
	return value.DictOf("enc", "clear", "load", value.DictOf("jid", jid, "minions", minions, "missing", missing))
}

// run makes a minion run a job.
func (m *Master) run(mi Minion, jid string, in *wire.Publish) {
	pub := value.DictOf("fun", in.Fun, "arg", in.Arg, "tgt", in.Tgt, "jid", jid, "ret", in.Ret, "tgt_type", in.TgtType, "user", in.User)
	ret := value.DictOf("cmd", "_return", "id", mi.ID, "jid", jid, "fun", in.Fun, "fun_args", in.Arg)
	given := value.Items(in.Arg)
	if funs := value.Items(in.Fun); funs != nil {
		all, codes := value.NewDict(len(funs)), value.NewDict(len(funs))
		for i, f := range funs {
			args, _ := given[i].(*value.List)
			r := mi.Run(value.Str(f), args.Items, pub)
			all.Set(f, r.Value)
			codes.Set(f, value.From(r.Retcode))
		}
		ret.Set("return", all)
		ret.Set("retcode", codes)
	} else {
		r := mi.Run(value.Str(in.Fun), given, pub)
		ret.Set("return", value.From(r.Value))
		ret.Set("retcode", value.From(r.Retcode))
		if r.Out != "" {
			ret.Set("out", r.Out)
		}
	}
	m.Bus.Fire(fmt.Sprintf("salt/job/%s/ret/%s", jid, mi.ID), ret)
}

func (m *Master) runner(load *value.Dict) any {
	var in wire.Run
	wire.View(load, &in)
	jid := m.newJID(in.Fun)
	tag := "salt/run/" + jid
	m.jobs.Go(func() {
		about := value.DictOf("fun", "runner."+in.Fun, "jid", jid, "user", in.Rest.At("user"))
		m.Bus.Fire(tag+"/new", about)
		done := about.Clone()
		if m.o.Runner == nil {
			return
		}
		done.Update(m.o.Runner(load, func(suffix string, data *value.Dict) { m.Bus.Fire(tag+"/"+suffix, data) }))
		m.Bus.Fire(tag+"/ret", done)
	})
	return value.DictOf("tag", tag, "jid", jid)
}

// Recording is the recorded behaviour of Salt's program for a command line.
type Recording struct {
	Args                  []string
	Stdin, Stdout, Stderr string
	Exit                  int
}

// Read reads the recording with the name from the directory of recordings.
func Read(t testing.TB, dir, name string) Recording {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	var r Recording
	comment, rest, _ := strings.Cut(string(b), "-- cmd --\n")
	section := "cmd"
	parts := map[string]string{}
	for line := range strings.Lines(rest) {
		if word, ok := strings.CutPrefix(strings.TrimSuffix(line, " --\n"), "-- "); ok && !strings.Contains(word, " ") && word != "" {
			section = word
			continue
		}
		parts[section] += line
	}
	r.Args = Words(strings.TrimSuffix(parts["cmd"], "\n"))[1:]
	r.Stdin, r.Stdout, r.Stderr = parts["stdin"], parts["stdout"], parts["stderr"]
	if r.Exit, err = strconv.Atoi(strings.TrimSpace(parts["exit"])); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(comment, "stdout: no newline at the end") {
		r.Stdout = strings.TrimSuffix(r.Stdout, "\n")
	}
	return r
}

// Words splits a command line like a shell, with single quotes only.
func Words(s string) []string {
	var out []string
	word, quoted, begun := "", false, false
	for _, c := range s {
		switch {
		case c == '\'':
			quoted, begun = !quoted, true
		case c == ' ' && !quoted:
			if begun {
				out = append(out, word)
			}
			word, begun = "", false
		default:
			word, begun = word+string(c), true
		}
	}
	if begun {
		out = append(out, word)
	}
	return out
}
