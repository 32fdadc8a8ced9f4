package event

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
	"brine/test/tools"
)

var quiet = slog.New(slog.DiscardHandler)

var testOptions = Options{IPCMode: "ipc", MaxEventSize: 1 << 20, PubHWM: 10000, PubBuffer: 8}

func masterSockets(t testing.TB) Sockets {
	dir, err := os.MkdirTemp("", "ev") // t.TempDir can be too long for a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return MasterOptions{Options: testOptions, SockDir: filepath.Join(dir, "s")}.Sockets()
}

// serve runs a server until the test ends.
func serve(t testing.TB, bus *Bus, at Sockets, o Options) *Server {
	t.Helper()
	s, err := Listen(bus, at, o, quiet)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialReader connects and waits until the server knows the reader.
func dialReader(t testing.TB, s *Server) *Reader {
	t.Helper()
	s.backlog.mu.Lock()
	before := len(s.backlog.readers)
	s.backlog.mu.Unlock()
	r, err := Dial(t.Context(), s.Sockets())
	must(t, err)
	t.Cleanup(func() { r.Close() })
	waitReaders(t, s, before+1)
	r.SetDeadline(time.Now().Add(time.Minute))
	return r
}

func waitReaders(t testing.TB, s *Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		s.backlog.mu.Lock()
		now := len(s.backlog.readers)
		s.backlog.mu.Unlock()
		if now == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d readers, want %d", now, n)
		}
	}
}

func TestBothWays(t *testing.T) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			at := masterSockets(t)
			if network == "tcp" {
				at = tcpSockets(0, 0)
			}
			bus := NewBus(1 << 20)
			s := serve(t, bus, at, testOptions)
			r := dialReader(t, s)
			inside := bus.Subscribe(10)

			must(t, bus.Fire("salt/a", value.DictOf("n", 1, "bin", []byte{0xff}, "text", "é")))
			e, err := r.Next()
			must(t, err)
			if e.Tag != "salt/a" || !value.Equal(e.Data, (<-inside.C).Data) {
				t.Error(e.Tag, value.Repr(e.Data))
			}

			p, err := DialPush(t.Context(), s.Sockets(), 0)
			must(t, err)
			defer p.Close()
			for i := range 3 {
				must(t, p.Fire(t.Context(), fmt.Sprint("salt/b", i), value.DictOf("n", i)))
			}
			must(t, Push(t.Context(), s.Sockets(), "salt/c", nil))
			seen := map[string]bool{}
			for range 4 {
				seen[(<-inside.C).Tag] = true
			}
			n := 0
			for e, err := range r.Events("salt/b", "salt/c") {
				must(t, err)
				if !seen[e.Tag] || e.Data.Str("_stamp") == "" {
					t.Error(e.Tag, value.Repr(e.Data))
				}
				if n++; n == 4 {
					break
				}
			}
			r.Close()
			waitReaders(t, s, 0)
		})
	}
}

// TestConnectedIsEnough: a connected program gets the next event, even if the server has not
// accepted the connection yet.
func TestConnectedIsEnough(t *testing.T) {
	for _, mode := range []string{"ipc", "tcp"} {
		o := MasterOptions{Options: testOptions, SockDir: filepath.Dir(masterSockets(t).Pub)}
		o.IPCMode = mode
		at := o.Sockets()
		if mode == "tcp" {
			at.Pub, at.Pull = "127.0.0.1:0", "127.0.0.1:0"
		}
		bus := NewBus(0)
		s, err := Listen(bus, at, testOptions, quiet) // without serving
		must(t, err)
		defer s.Close()
		r, err := Dial(t.Context(), s.Sockets())
		must(t, err)
		defer r.Close()
		must(t, bus.Fire("first", value.NewDict(0)))
		must(t, r.SetDeadline(time.Now().Add(time.Minute)))
		e, err := r.Next()
		must(t, err)
		if e.Tag != "first" {
			t.Errorf("%s: %q came first", mode, e.Tag)
		}
	}
}

func TestSocketFiles(t *testing.T) {
	at := masterSockets(t)
	must(t, os.MkdirAll(filepath.Dir(at.Pub), 0o755))
	must(t, os.WriteFile(at.Pull, nil, 0o644)) // a stale file
	l, err := net.Listen("unix", at.Pub)
	must(t, err)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close() // a socket without a listener

	s, err := Listen(NewBus(0), at, testOptions, quiet)
	must(t, err)
	for path, want := range map[string]fs.FileMode{at.Pub: fs.ModeSocket | 0o660, at.Pull: fs.ModeSocket | 0o600, at.Markers[0]: 0o600,
		at.Markers[1]: 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v %v, want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := Listen(NewBus(0), at, testOptions, quiet); salt.KindOf(err) != salt.Exists {
		t.Error("two servers at one place:", err)
	}
	// The files of a successor are kept.
	must(t, os.Remove(at.Pub))
	next, err := net.Listen("unix", at.Pub)
	must(t, err)
	defer next.Close()
	s.Close()
	if _, err := os.Stat(at.Pub); err != nil {
		t.Error("the socket of another process was removed")
	}
	if _, err := os.Stat(at.Pull); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a socket is left")
	}
	for _, name := range []string{"publish_pull.ipc", "workers.ipc"} { // Salt's programs look for these files
		if _, err := os.Stat(filepath.Join(filepath.Dir(at.Pub), name)); err != nil {
			t.Error("a marker is gone", err)
		}
	}
}

func TestPathTooLong(t *testing.T) {
	at := MasterOptions{SockDir: "/tmp/" + strings.Repeat("x", 100)}.Sockets()
	_, err := Listen(NewBus(0), at, testOptions, quiet)
	if salt.KindOf(err) != salt.Invalid || !strings.Contains(err.Error(), "set sock_dir to a shorter directory, or ipc_mode to tcp") {
		t.Error(err)
	}
	if _, err := Dial(t.Context(), at); salt.KindOf(err) != salt.Invalid {
		t.Error(err)
	}
}

func TestNobodyThere(t *testing.T) {
	at := masterSockets(t)
	if _, err := Dial(t.Context(), at); salt.KindOf(err) != salt.Unavailable {
		t.Error(err)
	}
	if err := Push(t.Context(), at, "x", nil); salt.KindOf(err) != salt.Unavailable {
		t.Error(err)
	}
}

// Clients that do not read delay no other client, and use a bounded amount of memory.
func TestSlowReaders(t *testing.T) {
	o := testOptions
	o.PubHWM, o.PubBuffer = 2000, 1
	bus := NewBus(0)
	s := serve(t, bus, masterSockets(t), o)
	var slow []*Reader
	for range 30 {
		slow = append(slow, dialReader(t, s))
	}
	good := dialReader(t, s)
	const events = 5000
	payload := strings.Repeat("x", 2000)
	for i := range events {
		must(t, bus.Fire("e", value.DictOf("n", i, "p", payload)))
		s.backlog.mu.Lock()
		if s.backlog.bytes > 1<<20 || len(s.backlog.frames) > 2000 {
			t.Fatalf("%d bytes in %d frames are kept", s.backlog.bytes, len(s.backlog.frames))
		}
		s.backlog.mu.Unlock()
		if e, err := good.Next(); err != nil || e.Data.Int("n") != int64(i) {
			t.Fatal("a reader that is quick enough missed an event", err)
		}
	}
	// A slow reader that resumes gets whole events, in order, including the newest.
	last := int64(-1)
	got := 0
	for last < events-1 {
		e, err := slow[0].Next()
		must(t, err)
		if n := e.Data.Int("n"); n <= last {
			t.Fatalf("event %d after %d", n, last)
		} else {
			last = n
		}
		got++
	}
	if got == events {
		t.Error("nothing was dropped: this tests nothing")
	}
	for _, r := range slow {
		r.Close()
	}
	good.Close()
	waitReaders(t, s, 0)
	if s.backlog.bytes != 0 || s.backlog.frames != nil {
		t.Error("events are kept without readers")
	}
}

func TestBacklogLetsGo(t *testing.T) {
	b := newBacklog(100, 1<<20)
	c, d := b.open(), b.open()
	for range 10 {
		b.add([]byte("x"), false)
	}
	if f, ok := b.take(c, nil, 4, 100); !ok || len(f) != 4 || len(b.frames) != 10 {
		t.Error(len(f), ok, len(b.frames))
	}
	if f, _ := b.take(d, nil, 100, 3); len(f) != 3 || len(b.frames) != 7 || b.bytes != 7 {
		t.Error(len(f), len(b.frames))
	}
	b.remove(d)
	if len(b.frames) != 6 {
		t.Error(len(b.frames))
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, ok := b.take(c, nil, 100, 100); !ok {
				return
			}
		}
	})
	b.remove(c)
	wg.Wait()
	b.add([]byte("x"), false)
	if b.frames != nil {
		t.Error("kept without readers")
	}
}

func TestHostileWriter(t *testing.T) {
	bus := NewBus(0)
	s := serve(t, bus, masterSockets(t), testOptions)
	sub := bus.Subscribe(10)
	for _, junk := range []string{"\xc1", "GET / HTTP/1.1\r\n\r\n", "\x81\xa4head\x80", "\x82\xa4head\x80\xa4body\x05", "\xdf\xff\xff\xff\xff" +
		strings.Repeat("\x00", 100)} {
		c, err := net.Dial("unix", s.Sockets().Pull)
		must(t, err)
		c.Write([]byte(junk))
		c.(*net.UnixConn).CloseWrite()
		io.ReadAll(c)
		c.Close()
	}
	c, err := net.Dial("unix", s.Sockets().Pull)
	must(t, err)
	defer c.Close()
	for _, body := range []string{"", "no end", "\n\n\x80", "tag\n\n\xc0", "tag\n\n\x81", "tag\n\n\xc1", "\xff\n\n\x80", "nostamp\n\n\x80",
		"good\n\n\x81\xa6_stamp\xa1x"} {
		if _, err := c.Write(appendFrame(nil, []byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	if e := <-sub.C; e.Tag != "nostamp" || !e.Data.Has("_stamp") {
		t.Error(e.Tag)
	}
	if e := <-sub.C; e.Tag != "good" || e.Data.Str("_stamp") != "x" {
		t.Error(e.Tag)
	}
}

// stockPython starts a Python that has Salt.
func stockPython(t *testing.T, script string, args ...string) *exec.Cmd {
	stock, python := tools.StockSalt(t)
	cmd := exec.CommandContext(t.Context(), python, append([]string{"-u", "-W", "ignore", "-c", script}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stock)
	cmd.Stderr = os.Stderr
	return cmd
}

// TestSaltUsesOurBus makes Salt's own event classes read and send.
func TestSaltUsesOurBus(t *testing.T) {
	for _, mode := range []string{"ipc", "tcp"} {
		t.Run(mode, func(t *testing.T) {
			at := masterSockets(t)
			if mode == "tcp" {
				at = tcpSockets(0, 0)
			}
			cmd := stockPython(t, `
import sys, salt.config, salt.utils.event
opts = salt.config.master_config(None)
opts["sock_dir"], opts["ipc_mode"] = sys.argv[1], sys.argv[2]
if opts["ipc_mode"] == "tcp":
    opts["tcp_master_pub_port"], opts["tcp_master_pull_port"] = int(sys.argv[3]), int(sys.argv[4])
with salt.utils.event.get_event("master", sock_dir=opts["sock_dir"], opts=opts, listen=True) as ev:
    assert ev.connect_pub(timeout=10)
    print("ready")
    for i in range(3):
        got = ev.get_event(wait=20, tag="salt/test", full=True)
        print(got["tag"], got["data"]["n"], got["data"]["bin"] == b"\xff\x00", "_stamp" in got["data"])
    for i in range(3):
        assert ev.fire_event({"n": i, "bin": b"\xfe", "text": "\u00e9"}, "from/python/%d" % i)
    big = ev.get_event(wait=20, tag="salt/big")
    print(big["text"], big["small"])
`, filepath.Dir(at.Pub), mode)
			bus := NewBus(10_000)
			s := serve(t, bus, at, testOptions)
			if mode == "tcp" {
				_, pub, _ := net.SplitHostPort(s.Sockets().Pub)
				_, pull, _ := net.SplitHostPort(s.Sockets().Pull)
				cmd.Args = append(cmd.Args, pub, pull)
			}
			sub := bus.Subscribe(100, "from/python/")
			out, err := cmd.StdoutPipe()
			must(t, err)
			must(t, cmd.Start())
			lines := bufio.NewScanner(out)
			want := func(text string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != text {
					t.Fatalf("Salt says %q, want %q", lines.Text(), text)
				}
			}
			want("ready")
			waitReaders(t, s, 1)
			for i := range 3 {
				must(t, bus.Fire(fmt.Sprint("salt/test/", i), value.DictOf("n", i, "bin", []byte{0xff, 0})))
				must(t, bus.Fire("other", nil))
			}
			for i := range 3 {
				want(fmt.Sprintf("salt/test/%d %d True True", i, i))
			}
			for i := range 3 {
				e := <-sub.C
				if e.Tag != fmt.Sprint("from/python/", i) || e.Data.Int("n") != int64(i) || e.Data.Str("text") != "é" ||
					string(e.Data.Bytes("bin")) != "\xfe" || len(e.Data.Str("_stamp")) < 19 {
					t.Error(e.Tag, value.Repr(e.Data))
				}
			}
			must(t, bus.Fire("salt/big", value.DictOf("text", strings.Repeat("x", 20_000), "small", 1)))
			want("VALUE_TRIMMED 1")
			must(t, cmd.Wait())
		})
	}
}

// TestWeUseSaltsBus reads from and sends to a bus that Salt serves.
func TestWeUseSaltsBus(t *testing.T) {
	at := masterSockets(t)
	must(t, os.MkdirAll(filepath.Dir(at.Pub), 0o755))
	cmd := stockPython(t, `
import sys, asyncio, salt.config, salt.utils.event, salt.transport.base
import tornado.ioloop
opts = salt.config.master_config(None)
opts["sock_dir"], opts["ipc_mode"] = sys.argv[1], "ipc"
loop = tornado.ioloop.IOLoop()
loop.asyncio_loop.set_debug(False)
asyncio.set_event_loop(loop.asyncio_loop)
server = salt.transport.base.ipc_publish_server("master", opts)
async def payload(p, *a):
    await server.publish_payload(p)
loop.add_callback(server.publisher, payload, io_loop=loop)
loop.call_later(0.3, print, "ready")
loop.start()
`, filepath.Dir(at.Pub))
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("Salt says %q", lines.Text())
	}
	r, err := Dial(t.Context(), at)
	must(t, err)
	defer r.Close()
	r.SetDeadline(time.Now().Add(time.Minute))
	// The server does not report when it knows a reader: send until it does.
	ctx, cancel := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	sending.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if err := Push(ctx, at, "from/us", value.DictOf("n", i, "bin", []byte{0xff})); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	e, err := r.Next()
	cancel()
	sending.Wait()
	must(t, err)
	if e.Tag != "from/us" || string(e.Data.Bytes("bin")) != "\xff" || !e.Data.Has("_stamp") {
		t.Error(e.Tag, value.Repr(e.Data))
	}
}

func BenchmarkToReaders(b *testing.B) {
	bus := NewBus(1 << 20)
	s := serve(b, bus, masterSockets(b), testOptions)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 4 {
		r := dialReader(b, s)
		r.SetDeadline(time.Time{})
		wg.Go(func() { io.Copy(io.Discard, r.conn) })
		defer r.Close()
	}
	data := value.DictOf("cmd", "_return", "id", "web1", "success", true, "return", true, "retcode", 0, "jid", "20261121041024915335", "fun", "test.ping")
	b.ReportAllocs()
	for b.Loop() {
		bus.Fire("salt/job/20261121041024915335/ret/web1", data)
	}
}
