package badinput

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/test/daemontest"
)

// dial opens a bare connection.
func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	for try := 0; ; try++ {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err == nil {
			return c
		}
		if try == 3 {
			t.Errorf("cannot connect: %v", err)
			a, _ := net.Pipe()
			a.Close()
			return a
		}
	}
}

// zmtpGreeting returns a ZMTP 3.0 greeting with a mechanism.
func zmtpGreeting(mechanism string) []byte {
	b := make([]byte, 64)
	copy(b, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00")
	copy(b[12:32], mechanism)
	return b
}

// zmtpHello returns what a peer sends before its first message.
func zmtpHello(socket string) []byte {
	ready := "\x05READY\x0bSocket-Type" + string(binary.BigEndian.AppendUint32(nil, uint32(len(socket)))) + socket
	return append(append(zmtpGreeting("NULL"), 4, byte(len(ready))), ready...)
}

func zmtpFrame(flags byte, body []byte) []byte {
	return append(append([]byte{flags | 2}, binary.BigEndian.AppendUint64(nil, uint64(len(body)))...), body...)
}

// zmtpRequest returns a request as a REQ or DEALER socket sends it.
func zmtpRequest(body []byte) []byte { return append([]byte{1, 0}, zmtpFrame(0, body)...) }

const httpUpgrade = "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " +
	"dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

// wsFrame returns the beginning of a masked binary message of size bytes.
func wsFrame(size uint64, body []byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, size)
	return append(append(b, 0, 0, 0, 0), body...) // a mask of zeros
}

// nested returns an array nested deep times.
func nested(deep int) []byte { return append(bytes.Repeat([]byte{0x91}, deep), 0xc0) }

// many returns an array of n small maps.
func many(n int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{0xdd}, uint32(n))
	return append(b, bytes.Repeat([]byte{0x81, 0xa1, 'a', 0x01}, n)...)
}

// envelopeOf puts raw msgpack into an envelope as its load.
func envelopeOf(enc string, load []byte) []byte {
	b := append([]byte{0x83, 0xa3}, "enc"...)
	b = append(append(b, 0xa0|byte(len(enc))), enc...)
	b = append(append(b, 0xa7), "version\x03"...)
	b = append(append(b, 0xa4), "load"...)
	return append(b, load...)
}

// bodies are requests that are expensive to decode.
func bodies() [][]byte {
	inCmd := func(cmd string, raw []byte) []byte {
		b := append([]byte{0x82, 0xa3}, "cmd"...)
		b = append(append(b, 0xa0|byte(len(cmd))), cmd...)
		return append(append(b, 0xa1, 'x'), raw...)
	}
	return [][]byte{
		{0xc1}, {0xdf, 0xff, 0xff, 0xff, 0xff}, {0xdd, 0xff, 0xff, 0xff, 0xff}, {0xc6, 0xff, 0xff, 0xff, 0xff},
		nested(1_000_000), many(1_000_000),
		envelopeOf("clear", nested(1_000_000)), envelopeOf("clear", many(250_000)), envelopeOf("aes", many(100_000)),
		envelopeOf("clear", inCmd("ping", many(60_000))), envelopeOf("clear", inCmd("_auth", many(60_000))),
		envelopeOf("clear", inCmd("publish", many(60_000))), envelopeOf("clear", inCmd("ping", nested(60))),
		envelopeOf("aes", []byte{0xc4, 0}), envelopeOf("aes", append([]byte{0xc6, 0, 1, 0, 0}, make([]byte, 1<<16)...)),
		envelopeOf("clear", []byte{0xdf, 0xff, 0xff, 0xff, 0xff}), envelopeOf("none", []byte{0xc0}),
	}
}

// hellos are a peer's first bytes on each transport, and frames that announce a body of size bytes.
var hellos = map[string]struct {
	hello []byte
	frame func(size uint64, body []byte) []byte
}{
	"zeromq": {zmtpHello("DEALER"), func(size uint64, body []byte) []byte {
		return append(append([]byte{1, 0, 2}, binary.BigEndian.AppendUint64(nil, size)...), body...)
	}},
	"tcp": {nil, func(size uint64, body []byte) []byte {
		return append(append([]byte("\x82\xa4head\x81\xa3mid\x01\xa4body\xc6"), binary.BigEndian.AppendUint32(nil, uint32(min(size, 1<<32-1)))...), body...)
	}},
	"ws": {[]byte(httpUpgrade), wsFrame},
}

// wirePorts are the ports of the master of TestHostileBytes, by transport: publications and
// requests.
var wirePorts = map[string][2]int{"zeromq": {24505, 24506}, "tcp": {24507, 24508}, "ws": {24509, 24510}}

// TestHostileBytes sends invalid data to every port of a master, while minions on every transport
// are commanded.
func TestHostileBytes(t *testing.T) {
	t.Parallel()
	m := master(t, "transport_opts: {tcp: {publish_port: 24507, ret_port: 24508}, ws: {publish_port: 24509, ret_port: 24510}}\n")
	ids := []string{"w-zeromq", "w-tcp", "w-ws"}
	for _, id := range ids {
		tr := id[2:]
		n := daemontest.NewMinion(t, brine, id, []string{m.Host}, "transport: "+tr+"\n")
		b := strings.NewReplacer("24505", fmt.Sprint(wirePorts[tr][0]), "24506", fmt.Sprint(wirePorts[tr][1])).Replace(read(t, n.Path("minion")))
		put(t, n.Path("minion"), []byte(b), 0o600)
		n.Start()
	}
	answers(t, m, ids...)
	h := examine(t, m)
	for name, attack := range map[string]func(*testing.T, string, string){
		"garbage": garbage, "truncated": truncated, "huge lengths": hugeLengths, "bombs": bombs, "slow and silent": slow, "unfinished": unfinished,
	} {
		during(t, m, ids, func() {
			var wg sync.WaitGroup
			for tr, ports := range wirePorts {
				for _, port := range ports {
					wg.Go(func() { attack(t, tr, fmt.Sprintf("%s:%d", m.Host, port)) })
				}
			}
			wg.Wait()
		})
		_, peak := memory(t, m)
		t.Logf("%s: at most %d MiB", name, peak)
		if t.Failed() {
			return
		}
	}
	h.bounded(500)
	h.recovers(50)
	if !m.Alive() {
		t.Error("the master has ended")
	}
	if n := len(m.Log()); n > 5<<20 {
		t.Errorf("the log has %d bytes", n)
	}
}

// tell sends bytes and waits a little for the server to close the connection.
func tell(t *testing.T, addr string, b []byte, wait time.Duration) {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	done := make(chan struct{})
	go func() { defer close(done); c.Write(b) }()
	c.SetReadDeadline(time.Now().Add(wait))
	io.Copy(io.Discard, io.LimitReader(c, 64<<20))
	c.SetDeadline(time.Now()) // ends a write that is not read
	<-done
}

// together runs f for each, some at a time.
func together[T any](at int, all []T, f func(T)) {
	var wg sync.WaitGroup
	next := make(chan T)
	for range at {
		wg.Go(func() {
			for x := range next {
				f(x)
			}
		})
	}
	for _, x := range all {
		next <- x
	}
	close(next)
	wg.Wait()
}

// garbage is not the beginning of any valid message of this protocol.
func garbage(t *testing.T, _, addr string) {
	all := [][]byte{
		{}, {0}, {0xc1}, []byte("\n"), []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), []byte(httpUpgrade),
		[]byte("POST / HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n" + strings.Repeat("x", 100_000)),
		[]byte("GET /" + strings.Repeat("x", 1<<20) + " HTTP/1.1\r\n\r\n"), []byte("GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", 100_000)),
		[]byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), []byte("SSH-2.0-x\r\n"), []byte("* LIST\r\nEHLO x\r\n"),
		zmtpGreeting("CURVE"), zmtpGreeting("PLAIN"), zmtpGreeting("GSSAPI"), zmtpGreeting(""), zmtpHello("NOTHING"), zmtpHello(strings.Repeat("x", 200)),
		zmtpHello("PUB"), append(zmtpHello("REQ"), 1, 0, 1, 0, 1, 0), append(zmtpHello("SUB"), bytes.Repeat([]byte{0, 2, 1, 'x'}, 10_000)...),
		append(zmtpGreeting("NULL"), 4, 255), append(zmtpGreeting("NULL"), 6, 255, 255, 255, 255, 255, 255, 255, 255),
		append([]byte(httpUpgrade), 0x83, 0x80), append([]byte(httpUpgrade), 0x82, 0x05, 1, 2, 3, 4, 5), append([]byte(httpUpgrade), 0xff, 0xff),
		[]byte("\x82\xa4head\x80\xa4body"), []byte("\x82\xa4head\x81\xa3mid\xc0\xa4body\xc0"), nested(100_000), many(100_000),
		bytes.Repeat([]byte{0xff}, 1<<20), bytes.Repeat([]byte{0}, 1<<20), bytes.Repeat([]byte("\x82\xa4head\x80\xa4body\xc0"), 10_000),
	}
	together(8, all, func(b []byte) { tell(t, addr, b, 100*time.Millisecond) })
}

// truncated sends the beginning of a valid conversation.
func truncated(t *testing.T, tr, addr string) {
	body, err := msgpack.Marshal(clear(value.DictOf("cmd", "ping", "x", strings.Repeat("y", 300))), msgpack.Wire)
	must(t, err)
	w := hellos[tr]
	whole := append(bytes.Clone(w.hello), w.frame(uint64(len(body)), body)...)
	var all [][]byte
	for n := 1; n < len(whole); n += 1 + n/20 {
		all = append(all, whole[:n])
	}
	together(8, all, func(b []byte) { tell(t, addr, b, 20*time.Millisecond) })
}

// hugeLengths announces more data than it sends.
func hugeLengths(t *testing.T, tr, addr string) {
	w := hellos[tr]
	var all [][]byte
	for range 10 {
		for _, size := range []uint64{1 << 62, 1<<64 - 1, 1 << 40, 1<<32 - 1, 1 << 31, 129 << 20, 128 << 20, 100 << 20} {
			all = append(all, append(bytes.Clone(w.hello), w.frame(size, make([]byte, 1000))...))
		}
	}
	together(8, all, func(b []byte) { tell(t, addr, b, 50*time.Millisecond) })
}

// bombs sends messages that are small but large to decode.
func bombs(t *testing.T, tr, addr string) {
	w := hellos[tr]
	var all [][]byte
	for range 6 {
		for _, b := range bodies() {
			all = append(all, append(bytes.Clone(w.hello), w.frame(uint64(len(b)), b)...))
		}
	}
	together(8, all, func(b []byte) { tell(t, addr, b, 200*time.Millisecond) })
}

// slow opens connections that send little or nothing.
func slow(t *testing.T, tr, addr string) {
	w := hellos[tr]
	whole := append(bytes.Clone(w.hello), w.frame(1<<20, make([]byte, 1<<20))...)
	var conns []net.Conn
	for i := range 100 {
		c := dial(t, addr)
		conns = append(conns, c)
		if i%2 == 0 {
			c.Write(w.hello)
		}
	}
	for i := range 50 { // a byte at a time
		for _, c := range conns[:50] {
			c.SetWriteDeadline(time.Now().Add(time.Second))
			c.Write(whole[i : i+1])
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, c := range conns {
		c.Close()
	}
}

// unfinished sends most of each of many large messages: far more together than a master may keep in
// memory.
func unfinished(t *testing.T, tr, addr string) {
	w := hellos[tr]
	part := make([]byte, 1<<20)
	conns := make([]int, 8)
	together(len(conns), conns, func(int) {
		c := dial(t, addr)
		defer c.Close()
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Write(append(bytes.Clone(w.hello), w.frame(100<<20, nil)...)); err != nil {
			return
		}
		for range 32 {
			if _, err := c.Write(part); err != nil {
				return // refused, as expected in the end
			}
		}
		time.Sleep(500 * time.Millisecond)
	})
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}
