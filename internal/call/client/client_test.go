package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestPublishAsStock compares requests with those of Salt's own command line, byte by byte.
func TestPublishAsStock(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/vectors/cli_publish.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Key       string `json:"root_key"`
		Exchanges []struct {
			Request string `json:"request_b64"`
			Reply   string `json:"reply_b64"`
		}
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	kwargs := value.DictOf("show_timeout", true, "show_jid", false, "delimiter", ":")
	jobs := []Job{
		{Target: "vecminion", Fun: "test.ping", Kwargs: kwargs},
		{Target: "vecminion", Fun: "cmd.run", Kwargs: kwargs,
			Arg: value.ListOf("echo hi", value.DictOf("__kwarg__", true, "cwd", "/tmp", "python_shell", true))},
	}
	if len(v.Exchanges) != len(jobs) {
		t.Fatalf("%d exchanges", len(v.Exchanges))
	}
	for i, x := range v.Exchanges {
		want, _ := base64.StdEncoding.DecodeString(x.Request)
		reply, _ := base64.StdEncoding.DecodeString(x.Reply)
		r := &recorder{reply: reply}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, ".root_key"), []byte(v.Key), 0o600); err != nil {
			t.Fatal(err)
		}
		l := &Local{place: Place{CacheDir: dir}, user: "root", log: quiet(), req: r}
		p, err := New(Options{Timeout: time.Second}, "", l, l, quiet()).Publish(t.Context(), jobs[i])
		if err != nil || !salt.ValidJID(p.JID) || !reflect.DeepEqual(p.Minions, []string{"vecminion"}) {
			t.Errorf("%d: got %+v, %v", i, p, err)
		}
		if string(r.sent) != string(want) {
			got, _ := msgpack.Unmarshal(r.sent)
			t.Errorf("%d: sent %s\n%x\nSalt %x", i, value.Repr(got), r.sent, want)
		}
	}
}

// recorder is a requester with one fixed reply, or a list of replies.
type recorder struct {
	reply   []byte
	replies []any
	sent    []byte
	n       int
}

func (r *recorder) Request(_ context.Context, body []byte) ([]byte, error) {
	r.sent = body
	if r.replies != nil {
		b, err := msgpack.Marshal(r.replies[r.n], msgpack.Wire)
		r.n++
		return b, err
	}
	return r.reply, nil
}

func (r *recorder) Close() error { return nil }

func TestKeyIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ".root_key")
	os.WriteFile(file, []byte("old"), 0o600)
	r := &recorder{replies: []any{"", value.DictOf("ok", 1), ""}}
	l := &Local{place: Place{CacheDir: dir}, user: "sudo_ann", log: quiet(), req: r}
	l.currentKey(false)
	os.WriteFile(file, []byte("new"), 0o600)
	reply, err := l.Request(t.Context(), value.DictOf("cmd", "publish", "key", "", "user", ""))
	if err != nil || value.Repr(reply) != "{'ok': 1}" || !strings.Contains(string(r.sent), "new") || !strings.Contains(string(r.sent), "sudo_ann") {
		t.Errorf("got %s, %v; sent %q", value.Repr(reply), err, r.sent)
	}
	if reply, err := l.Request(t.Context(), value.DictOf("cmd", "publish", "key", "")); err != nil || reply != "" || r.n != 3 {
		t.Errorf("the same key was sent again: %v, %v, %d requests", reply, err, r.n)
	}
}

func TestKeyFile(t *testing.T) {
	for _, c := range []struct{ master, caller, want string }{
		{"", "root", "/c/.root_key"}, {"salt", "root", "/c/.salt_key"}, {"salt", "sudo_ann", "/c/.salt_key"}, {"salt", "ann", "/c/.ann_key"},
		{"root", `DOM\ann`, "/c/.DOM_ann_key"}, {"", "../x", "/c/..._x_key"},
	} {
		if got := (Place{CacheDir: "/c", User: c.master}).KeyFile(c.caller); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

func TestReachable(t *testing.T) {
	for in, want := range map[string]string{"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1", "192.0.2.1": "192.0.2.1",
		"[2001:db8::1]": "2001:db8::1", "host": "host"} {
		if got := reachable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		reply any
		text  string
		kind  salt.Kind
	}{
		{"", textNotPermitted, salt.Denied},
		{value.NewDict(0), ErrNoReply.Error(), salt.Internal},
		{value.DictOf("error", value.DictOf("name", "AuthorizationError", "message", "Authorization error occurred.")), "Authorization error occurred.",
			salt.Denied},
		{value.DictOf("error", "no"), "no", salt.Internal},
		{"some text", "some text", salt.Internal},
		{value.DictOf("enc", "clear", "load", value.DictOf("jid", nil, "minions", &value.List{})), textNoMatch, salt.NotFound},
		{published(testJID, nil, []string{"ghost"}), textNoMatch, salt.NotFound},
		{published("../../x", []string{"a"}, nil), "the master answered with '../../x', which is not a job id", salt.Internal},
	} {
		f := newFake(func(*value.Dict) (any, error) { return c.reply, nil })
		_, err := f.client(Options{}).Start(t.Context(), Job{Target: "*", Fun: "test.ping"})
		if err == nil || err.Error() != c.text || salt.KindOf(err) != c.kind {
			t.Errorf("%s: got %v (%v), want %s", value.Repr(c.reply), err, salt.KindOf(err), c.text)
		}
		if f.closed != 1 {
			t.Errorf("%s: the subscription was closed %d times", value.Repr(c.reply), f.closed)
		}
	}
}

func TestMasterAway(t *testing.T) {
	l, err := NewLocal(Place{Interface: "0.0.0.0", RetPort: 1, CacheDir: t.TempDir()}, "root", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.place.Sockets.Network, l.place.Sockets.Pub = "unix", filepath.Join(t.TempDir(), "none")
	_, err = New(Options{Timeout: time.Second}, "", l, l, quiet()).Start(t.Context(), Job{Target: "*", Fun: "test.ping"})
	if err == nil || err.Error() != textUnreachable || salt.KindOf(err) != salt.Unavailable {
		t.Errorf("no bus: %v", err)
	}
	_, err = New(Options{Timeout: time.Second}, "", l, l, quiet()).Publish(t.Context(), Job{Target: "*", Fun: "test.ping"})
	if err == nil || err.Error() != textUnreachable {
		t.Errorf("no requests: %v", err)
	}
	if _, err := NewLocal(Place{Transport: "pigeon"}, "root", quiet()); salt.KindOf(err) != salt.Invalid {
		t.Errorf("unknown transport: %v", err)
	}
}

func TestSilentMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		m := waiting{f}
		c := New(Options{Timeout: 5 * time.Second}, "", m, f, quiet())
		begin := time.Now()
		_, err := c.Start(t.Context(), Job{Target: "*", Fun: "test.ping"})
		if salt.KindOf(err) != salt.Timeout || err.Error() != textTimeout || time.Since(begin) != 15*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := c.Start(ctx, Job{Target: "*", Fun: "test.ping"}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// waiting is a master that does not answer.
type waiting struct{ Master }

func (waiting) Request(ctx context.Context, _ *value.Dict) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestEnds(t *testing.T) {
	start := func(t *testing.T) (*fake, *Running) {
		f := newFake(jobs([]string{"a", "b"}, nil, noQuestions(t)))
		r, err := f.client(Options{}).Start(t.Context(), Job{Target: "*", Fun: "test.ping"})
		if err != nil {
			t.Fatal(err)
		}
		f.fire("salt/job/"+testJID+"/ret/a", "id", "a", "return", true)
		f.fire("salt/job/"+testJID+"/ret/a", "id", "a", "return", "again")
		f.fire("salt/job/"+testJID+"x/ret/b", "id", "b", "return", "of another job")
		f.fire("salt/job/"+testJID+"/ret/b", "id", "b")
		return f, r
	}
	collect := func(ctx context.Context, r *Running) (ids []string, err error) {
		for res, e := range r.Results(ctx) {
			if e != nil {
				return ids, e
			}
			ids = append(ids, res.ID+value.Repr(res.Return))
		}
		return ids, nil
	}
	f, r := start(t)
	close(f.events)
	var lost *Lost
	if ids, err := collect(t.Context(), r); !errors.As(err, &lost) || !errors.Is(err, errBroken) || !reflect.DeepEqual(ids, []string{"aTrue"}) {
		t.Errorf("broken stream: %v, %v", ids, err)
	}
	f, r = start(t)
	f.fire("salt/job/"+testJID+"/error", "error", "x")
	var refused *Refused
	if ids, err := collect(t.Context(), r); !errors.As(err, &refused) || !reflect.DeepEqual(ids, []string{"aTrue"}) {
		t.Errorf("error event: %v, %v", ids, err)
	}
	_, r = start(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := collect(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRetcode(t *testing.T) {
	for _, c := range []struct {
		v    any
		want int
	}{{nil, 0}, {int64(3), 3}, {value.DictOf("a", 0, "b", 4, "c", 2), 4}, {true, 1}, {"x", 0}} {
		if got := retcode(c.v); got != c.want {
			t.Errorf("%v: %d", c.v, got)
		}
	}
}

func TestExpandTarget(t *testing.T) {
	c := newFake(nil).client(Options{Timeout: 1, Nodegroups: value.DictOf("web", "L@a,b", "all", "N@web or G@os:x", "loop", "N@loop")})
	for _, x := range []struct {
		typ  string
		tgt  any
		want string
	}{
		{"", "*", "glob '*'"}, {"nodegroup", "web", "compound 'L@a,b'"}, {"nodegroup", "all", "compound '( ( L@a,b ) or G@os:x )'"},
		{"compound", "N@web and not c", "compound 'L@a,b and not c'"}, {"compound", value.ListOf("a", "or", "N@web"), "compound 'a or L@a,b'"},
		{"nodegroup", "none", "error Node group none unavailable in /etc/salt/master"},
		{"compound", "N@none", "error Node group none unavailable in /etc/salt/master"},
		{"nodegroup", "loop", `error nodegroup "loop" contains itself: loop > loop`}, {"list", value.ListOf("a"), "list ['a']"},
	} {
		typ, tgt, err := c.expandTarget(x.typ, x.tgt)
		got := typ + " " + value.Repr(tgt)
		if err != nil {
			got = "error " + err.Error()
		}
		if got != x.want {
			t.Errorf("%s %v: got %s, want %s", x.typ, x.tgt, got, x.want)
		}
	}
}

func TestBatch(t *testing.T) {
	for _, c := range []struct {
		name string
		size int
		rest time.Duration
		stop string
		want []string
	}{
		{"one by one", 1, 0, "", []string{"3.0 down [d]", "3.0 begin [a]", "4.0 a", "4.0 begin [b]", "6.0 b", "6.0 begin [c]", "9.0 c absent"}},
		{"two at a time", 2, 0, "", []string{"3.0 down [d]", "3.0 begin [a b]", "4.0 a", "4.0 begin [c]", "5.0 b", "7.0 c absent"}},
		{"all", 9, 0, "", []string{"3.0 down [d]", "3.0 begin [a b c]", "4.0 a", "5.0 b", "6.0 c absent"}},
		{"with rests", 1, 10 * time.Second, "", []string{"3.0 down [d]", "3.0 begin [a]", "4.0 a", "14.0 begin [b]", "16.0 b", "26.0 begin [c]",
			"29.0 c absent"}},
		{"stopped", 1, 0, "a", []string{"3.0 down [d]", "3.0 begin [a]", "4.0 a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := batch(t, c.size, c.rest, c.stop); !reflect.DeepEqual(got, c.want) {
					t.Errorf("got  %q\nwant %q", got, c.want)
				}
			})
		})
	}
}

// batch runs a batch on a, b and c, which take one second, two seconds and forever, and d, which is down.
func batch(t *testing.T, size int, rest time.Duration, stop string) []string {
	var f *fake
	f = newFake(func(load *value.Dict) (any, error) {
		jid, ids := salt.NewJID(time.Now()), []string{"d", "c", "b", "a"}
		if l, ok := load.At("tgt").(*value.List); ok {
			ids = value.OnlyTexts(l)
		}
		for _, id := range ids {
			after := map[string]time.Duration{"a": time.Second, "b": 2 * time.Second}[id]
			switch fun := load.Str("fun"); {
			case fun == "saltutil.find_job", id == "d", fun != "test.ping" && id == "c":
				continue
			case fun == "test.ping":
				after = 0
			}
			time.AfterFunc(after, func() { f.fire("salt/job/"+jid+"/ret/"+id, "id", id, "return", true, "retcode", 0, "jid", jid) })
		}
		return published(jid, ids, nil), nil
	})
	begin := time.Now()
	var out []string
	note := func(what string, ids ...string) {
		out = append(out, strings.TrimSuffix(happened(time.Since(begin).Seconds(), what, ids...), " []"))
	}
	b := Batch{Job: Job{Target: "*", Fun: "test.sleep"}, Size: func(int) int { return size }, Rest: rest}
	if stop != "" {
		b.Stop = func(r Result) bool { return r.ID == stop }
	}
	for step, err := range f.client(Options{Timeout: 2 * time.Second, GatherJobTimeout: time.Second}).RunBatch(t.Context(), b) {
		switch {
		case err != nil:
			t.Fatal(err)
		case step.Down != nil:
			note("down", step.Down...)
		case step.Begin != nil:
			note("begin", step.Begin...)
		case step.Result == nil:
			if len(step.Up) == 0 {
				t.Error("an empty step")
			}
		case step.Result.Absent:
			note(step.Result.ID + " absent")
		default:
			note(step.Result.ID)
		}
	}
	if f.closed != 1 {
		t.Errorf("the subscription was closed %d times", f.closed)
	}
	return out
}

func TestRunner(t *testing.T) {
	tag := "salt/run/" + testJID
	f := newFake(func(load *value.Dict) (any, error) { return value.DictOf("tag", tag, "jid", testJID), nil })
	f.fire(tag+"/new", "fun", "runner.x")
	f.fire("salt/run/20261121040156486144/ret", "return", "of another")
	f.fire(tag+"/progress", "message", "half", "_stamp", "now")
	f.fire(tag+"/ret", "return", 7)
	var told []string
	data, err := f.client(Options{}).Run(t.Context(), Runner{Fun: "test.arg", Args: []any{"x"}}, func(jid string) { told = append(told, jid) },
		func(e RunnerEvent) { told = append(told, e.Name+" "+value.Repr(e.Data)) })
	if err != nil || data.Int("return") != 7 {
		t.Errorf("got %s, %v", value.Repr(data), err)
	}
	if want := []string{testJID, "progress {'message': 'half', '_stamp': 'now'}"}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %q", told)
	}
	if got, want := value.Repr(f.loads[0]), "{'cmd': 'runner', 'fun': 'test.arg', 'kwarg': {'arg': ['x'], 'kwarg': {}}, 'key': '', 'user': ''}"; got != want {
		t.Errorf("sent %s", got)
	}
	close(f.events)
	var lost *Lost
	if _, err := f.client(Options{}).Run(t.Context(), Runner{Fun: "x"}, nil, nil); !errors.As(err, &lost) {
		t.Errorf("broken stream: %v", err)
	}
	as := f.client(Options{}).As(value.DictOf("eauth", "pam"))
	as.RunAsync(t.Context(), Runner{Fun: "x"})
	if l := f.loads[len(f.loads)-1]; l.Has("key") || l.Str("eauth") != "pam" {
		t.Errorf("with credentials: %s", value.Repr(l))
	}
}

// BenchmarkWait measures a client's work for one return among many minions.
func BenchmarkWait(b *testing.B) {
	ids := make([]string, 10000)
	for i := range ids {
		ids[i] = "minion-" + strings.Repeat("0", i%7) + string(rune('a'+i%26)) + value.Str(int64(i))
	}
	c := New(Options{Timeout: time.Hour}, "", nil, nil, quiet())
	now := time.Now()
	w := c.newWait(Published{JID: testJID, Minions: ids}, &Job{}, now)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%len(ids) == 0 {
			w = c.newWait(Published{JID: testJID, Minions: ids}, &Job{}, now)
		}
		if w.classify("salt/job/"+testJID+"/ret/x") != ret {
			b.Fatal("not a return")
		}
		w.returned(ids[i%len(ids)])
		w.over(now)
		w.wake()
	}
}

// TestUnreadableKeyFile checks that an unmounted share is not reported as missing permission.
func TestUnreadableKeyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ".root_key")
	if err := os.Mkdir(path, 0o700); err != nil { // reading it fails
		t.Fatal(err)
	}
	l, err := NewLocal(Place{Interface: "127.0.0.1", RetPort: 1, CacheDir: dir}, "root", quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := New(Options{Timeout: time.Second}, "", l, l, quiet())
	_, _, err = c.RunAsync(t.Context(), Runner{Fun: "test.arg"})
	if salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "cannot read the key") || !strings.Contains(err.Error(), path) ||
		NotRunning(err) {
		t.Error(err)
	}
}

// TestOddMessages: malformed fields in job messages, which stock masters and any
// minion can send, are skipped and end no command.
func TestOddMessages(t *testing.T) {
	f := newFake(func(*value.Dict) (any, error) {
		return value.DictOf("enc", "clear", "load", value.DictOf("jid", testJID, "minions", value.ListOf("a", int64(7)), "missing",
			value.ListOf("b", int64(42), nil))), nil
	})
	c := f.client(Options{})
	run, err := c.Start(t.Context(), Job{Target: "a", Fun: "test.ping"})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	if !slices.Equal(run.Minions, []string{"a"}) || !slices.Equal(run.Missing, []string{"b"}) {
		t.Errorf("%v, %v", run.Minions, run.Missing)
	}
	for _, data := range []*value.Dict{
		value.DictOf("minions", "a", "missing", value.NewDict(0), "id", int64(3), "state", value.NewDict(0)),
		value.DictOf("minions", value.ListOf(int64(1)), "id", value.ListOf("x")),
		value.DictOf("id", "a", "state", true),
	} {
		for _, k := range []kind{announced, info, ret, answer} {
			if _, ok, err := run.take(k, data); ok || err != nil {
				t.Errorf("%s: %v, %v", value.Repr(data), ok, err)
			}
		}
	}
	if _, _, err := run.take(info, value.DictOf("error", "no", "minions", "odd")); err == nil {
		t.Error("an error beside odd values is passed over")
	}
	if _, err := c.NewToken(t.Context(), value.DictOf("eauth", "pam", "cmd", value.NewDict(0))); salt.KindOf(err) != salt.Denied {
		t.Errorf("credentials beside other keys: %v", err)
	}
}
