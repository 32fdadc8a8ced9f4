package zeromq

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/test/eventually"
	"brine/test/tools"
)

// The tests in this file use the real libzmq, through Python.

// libzmq is a Python program with pyzmq. Its output reports its progress; it
// ends when its standard input is closed.
type libzmq struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
}

const prelude = `
import sys, threading, os, hashlib, time
import zmq
from zmq.utils.monitor import recv_monitor_message
def say(*a):
    print(*a, flush=True)
def die():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=die, daemon=True).start()
ctx = zmq.Context()
ADDR = sys.argv[1]
def sock(kind, **opts):
    s = ctx.socket(kind)
    s.linger = 0
    s.rcvtimeo = s.sndtimeo = 20000
    for k, v in opts.items():
        s.setsockopt(getattr(zmq, k), v)
    return s
def losses(s):
    m = s.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    m.rcvtimeo = 20000
    return m
`

func startLibzmq(t *testing.T, addr, script string) *libzmq {
	t.Helper()
	python := tools.NeedPython(t, "python3-zmq", "zmq")
	p := &libzmq{t, exec.Command(python, "-c", prelude+script, addr), make(chan string, 1000)}
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGCONT)
		in.Close()
		<-read
		p.cmd.Wait()
	})
	return p
}

// line returns the next line of output.
func (p *libzmq) line() string {
	p.t.Helper()
	select {
	case s, ok := <-p.lines:
		if !ok {
			p.t.Fatal("the Python program has ended")
		}
		return s
	case <-time.After(waitLimit):
		p.t.Fatal("the Python program says nothing")
	}
	return ""
}

func (p *libzmq) expect(want string) {
	p.t.Helper()
	if got := p.line(); got != want {
		p.t.Fatalf("the Python program says %q, want %q", got, want)
	}
}

// tcp returns the address in libzmq's form.
func tcp(addr fmt.Stringer) string { return "tcp://" + addr.String() }

const interopBeat = 250 * time.Millisecond

func TestLibzmqREQToOurServer(t *testing.T) {
	t.Parallel()
	s := serveRequests(t, transport.ListenOptions{Heartbeat: interopBeat}, func(r *transport.Request) {
		if string(r.Body) == "slow" {
			time.AfterFunc(5*interopBeat, func() { r.Reply(r.Body) })
			return
		}
		r.Reply(r.Body)
	})
	p := startLibzmq(t, tcp(s.Addr()), `
s = sock(zmq.REQ, HEARTBEAT_IVL=250, HEARTBEAT_TIMEOUT=750)
m = losses(s)
s.connect(ADDR)
for n in [0, 1, 255, 256, 2047, 2048, 8192, 8193, 3000000] + [300] * 200:
    body = os.urandom(n)
    s.send(body)
    assert s.recv() == body, n
s.send(b'slow')
assert s.recv() == b'slow'
assert not m.poll(0), recv_monitor_message(m)
say('req')
d = sock(zmq.DEALER, ROUTING_ID=b'dealer')
d.connect(ADDR)
for i in range(500):
    d.send_multipart([b'', b'%d' % i])
for i in range(500):
    assert d.recv_multipart() == [b'', b'%d' % i], i
say('dealer')
# As a proxy between minions and the master.
front, back = sock(zmq.ROUTER), sock(zmq.DEALER)
front.bind('inproc://front')
back.connect(ADDR)
threading.Thread(target=zmq.proxy, args=(front, back), daemon=True).start()
rs = [sock(zmq.REQ) for i in range(5)]
for i, r in enumerate(rs):
    r.connect('inproc://front')
    r.send(b'%d' % i)
for i, r in enumerate(rs):
    assert r.recv() == b'%d' % i
say('proxy')
`)
	p.expect("req")
	p.expect("dealer")
	p.expect("proxy")
}

func TestLibzmqSUBToOurPublisher(t *testing.T) {
	t.Parallel()
	p := servePublisher(t, transport.ListenOptions{Heartbeat: interopBeat}, nil)
	py := startLibzmq(t, tcp(p.Addr()), `
every = sock(zmq.SUB, HEARTBEAT_IVL=250, HEARTBEAT_TIMEOUT=750, ROUTING_ID=b'minion-one')
every.subscribe(b'')
some = sock(zmq.SUB)
some.subscribe(b'a'); some.subscribe(b'bb'); some.subscribe(b'c'); some.unsubscribe(b'c')
ms = [losses(every), losses(some)]
for s in every, some:
    s.connect(ADDR)
say('ready')
def read(s):
    while True:
        b = s.recv()
        say(len(b), hashlib.sha1(b).hexdigest())
        if b.endswith(b'end'):
            return
read(every)
say('some')
read(some)
read(every)
for m in ms:
    assert not m.poll(0), recv_monitor_message(m)
say('quiet')
`)
	py.expect("ready")
	eventually.True(t, "both have subscribed", func() bool { return len(p.Peers()) == 2 })
	messages := []string{"", "x", "a" + strings.Repeat("y", 300), "b", "bb", "c", "bb" + strings.Repeat("z", 2_000_000), "a end"}
	// Every subscription of the second one must be known, not just the first.
	eventually.True(t, "all is subscribed", func() bool { return subscriptions(p) == 3 })
	for _, m := range messages {
		p.say(m)
	}
	check := func(wanted func(string) bool) {
		t.Helper()
		for _, m := range messages {
			if wanted(m) {
				py.expect(digest(m))
			}
		}
	}
	check(func(string) bool { return true })
	py.expect("some")
	check(func(m string) bool { return strings.HasPrefix(m, "a") || strings.HasPrefix(m, "bb") })
	time.Sleep(5 * interopBeat) // longer than any timeout
	p.say("the end")
	py.expect(digest("the end"))
	py.expect("quiet")
}

func digest(m string) string {
	sum := sha1.Sum([]byte(m))
	return fmt.Sprint(len(m), " ", hex.EncodeToString(sum[:]))
}

func TestLibzmqSUBFiltered(t *testing.T) {
	t.Parallel()
	p := servePublisher(t, transport.ListenOptions{Filter: true}, nil)
	py := startLibzmq(t, tcp(p.Addr()), `
s = sock(zmq.SUB)
topic = hashlib.sha1(b'vecminion').hexdigest().encode()
s.subscribe(b'broadcast'); s.subscribe(topic)
s.connect(ADDR)
say('ready')
for _ in range(2):
    t, b = s.recv_multipart()
    say('broadcast' if t == b'broadcast' else 'own' if t == topic else t, b.decode())
`)
	py.expect("ready")
	eventually.True(t, "both topics are subscribed", func() bool { return subscriptions(p) == 2 })
	p.Publish(transport.Publication{Payload: []byte("not for you"), Minions: []string{"other"}})
	p.Publish(transport.Publication{Payload: []byte("for you"), Minions: []string{"other", "vecminion"}})
	p.say("for all")
	py.expect("own for you")
	py.expect("broadcast for all")
}

// TestLibzmqNoticesOurEnd has a master that sends one PING and then nothing:
// the TTL lets a stock minion without heartbeat options detect that.
func TestLibzmqNoticesOurEnd(t *testing.T) {
	t.Parallel()
	s := newFakeServer(t)
	py := startLibzmq(t, tcp(s.Addr()), `
s = sock(zmq.SUB)
s.subscribe(b'')
m = losses(s)
s.connect(ADDR)
recv_monitor_message(m)
say('lost')
`)
	c := s.accept(1, "PUB")
	c.expectCommand(cmdSubscribe, "")
	c.say(appendPing(nil, 3*interopBeat))
	c.expectCommand(cmdPong, "")
	py.expect("lost")
}

func TestOurSubscriptionToLibzmqPUB(t *testing.T) {
	t.Parallel()
	py := startLibzmq(t, "tcp://127.0.0.1:*", `
s = sock(zmq.XPUB)
s.bind(ADDR)
say(s.last_endpoint.decode()[6:])
for _ in range(3):
    say(s.recv().decode())
time.sleep(1)
s.send_multipart([b'broadcast', b'first'])
s.send_multipart([b'other', b'missed'])
s.send_multipart([b'mine', b'z' * 2000000])
s.send(b'plain')
say('sent')
threading.Event().wait()
`)
	addr := py.line()
	all, err := subscribe(context.Background(), addr, transport.DialOptions{Identity: "web1", Heartbeat: interopBeat})
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	py.expect("\x01")
	some, err := subscribe(context.Background(), addr, transport.DialOptions{
		Identity: "web1", Topics: []string{"mine", "broadcast"}, Heartbeat: interopBeat})
	if err != nil {
		t.Fatal(err)
	}
	defer some.Close()
	py.expect("\x01mine")
	py.expect("\x01broadcast")
	for _, c := range []struct {
		sub  *sub
		want []string
	}{{some, []string{"first", strings.Repeat("z", 2_000_000)}}, {all, []string{"first", "missed", strings.Repeat("z", 2_000_000), "plain"}}} {
		for _, want := range c.want {
			if b, err := c.sub.Receive(); err != nil || string(b) != want {
				t.Fatalf("received %d bytes, %v, want %d", len(b), err, len(want))
			}
		}
	}
	py.expect("sent")
	// A live publisher answers; one whose process hangs does not.
	ended := make(chan error, 1)
	go func() {
		_, err := some.Receive()
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("a quiet connection ended: %v", err)
	case <-time.After(5 * interopBeat):
	}
	py.cmd.Process.Signal(syscall.SIGSTOP)
	if err := <-ended; salt.KindOf(err) != salt.Timeout {
		t.Errorf("got %v", err)
	}
}

func TestOurRequesterToLibzmqREP(t *testing.T) {
	t.Parallel()
	for socket, script := range map[string]string{
		"REP": `
while True:
    b = s.recv()
    if b == b'slow':
        time.sleep(1)
    s.send(b)
`,
		"ROUTER": `
while True:
    who, empty, b = s.recv_multipart()
    assert empty == b''
    if b == b'slow':
        time.sleep(1)
    s.send_multipart([who, b'', b])
`,
	} {
		t.Run(socket, func(t *testing.T) {
			t.Parallel()
			py := startLibzmq(t, "tcp://127.0.0.1:*", "s = sock(zmq."+socket+`, RCVTIMEO=-1)
s.bind(ADDR)
say(s.last_endpoint.decode()[6:])
`+script)
			r := newRequester(py.line(), transport.DialOptions{Identity: "web1", Heartbeat: interopBeat})
			defer r.Close()
			for _, n := range []int{0, 1, 255, 256, 10_000, 3_000_000} {
				mustEcho(t, r, strings.Repeat("x", n))
			}
			mustEcho(t, r, "slow")
			done := make(chan struct{})
			for i := range 8 {
				go func() {
					mustEcho(t, r, fmt.Sprint(i))
					done <- struct{}{}
				}()
			}
			for range 8 {
				<-done
			}
			time.Sleep(5 * interopBeat) // the idle connections' heartbeats
			r.mu.Lock()
			if len(r.idle) == 0 {
				t.Error("no connection is kept")
			}
			for _, c := range r.idle {
				if !c.good() {
					t.Errorf("an idle connection is lost: %v", c.err)
				}
			}
			r.mu.Unlock()
			py.cmd.Process.Signal(syscall.SIGSTOP)
			if _, err := ask(t, r, "anybody?"); salt.KindOf(err) != salt.Timeout {
				t.Errorf("a hanging server: %v", err)
			}
		})
	}
}
