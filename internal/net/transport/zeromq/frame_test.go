package zeromq

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"brine/internal/net/transport"
	"brine/internal/net/transport/netserve"
	"brine/test/fuzztest"
)

// recorded are the bytes of stock Salt with libzmq 4.3.4.
type recorded struct {
	Handshake []struct {
		Socket         string   `json:"socket"`
		ClientGreeting string   `json:"client_greeting_hex"`
		ServerGreeting string   `json:"server_greeting_hex"`
		ClientCommands []string `json:"client_commands_hex"`
		ServerCommands []string `json:"server_commands_hex"`
	} `json:"handshake"`
	Requests []struct {
		Case        string `json:"case"`
		Request     []byte `json:"request_b64"`
		Reply       []byte `json:"reply_b64"`
		RequestWire []byte `json:"request_wire_b64"`
		ReplyWire   []byte `json:"reply_wire_b64"`
	} `json:"requests"`
	Publications []struct {
		Payload []byte `json:"payload_b64"`
		Wire    []byte `json:"wire_b64"`
	} `json:"publications"`
	Filtered []struct {
		Target  any    `json:"tgt"`
		Type    string `json:"tgt_type"`
		Topic   string `json:"topic"`
		Payload []byte `json:"payload_b64"`
	} `json:"filtered"`
}

func load(t testing.TB) recorded {
	t.Helper()
	b, err := os.ReadFile("testdata/salt.json")
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var wide = limits{command: 1 << 16, message: 1 << 24, frames: 10}

func decode(b []byte, lim limits) *decoder { return newDecoder(bytes.NewReader(b), 512, lim) }

func TestHandshakeAsRecorded(t *testing.T) {
	for _, c := range load(t).Handshake {
		client, server, _ := strings.Cut(c.Socket, "->")
		for socket, said := range map[string][]string{
			client: append([]string{c.ClientGreeting}, c.ClientCommands...),
			server: append([]string{c.ServerGreeting}, c.ServerCommands...),
		} {
			d := decode(unhex(t, strings.Join(said, "")), wide)
			p, err := readPeer(d)
			if err != nil || p.minor != 1 || p.socket != socket || p.identity != "" {
				t.Errorf("%s of %s: %+v, %v", socket, c.Socket, p, err)
			}
			if len(said) < 3 {
				continue
			}
			f, err := d.frame()
			if err != nil || !bytes.Equal(appendFrame(nil, f.flags, f.body), appendCommand(nil, cmdSubscribe)) {
				t.Errorf("subscription: %+v, %v", f, err)
			}
		}
		if client == "REQ" && !bytes.Equal(greeting(), unhex(t, c.ClientGreeting)) {
			t.Errorf("our greeting is %x", greeting())
		}
		if client == "SUB" && !bytes.Equal(appendReady(nil, ready{socket: "SUB"}), unhex(t, c.ClientCommands[0])) {
			t.Errorf("our READY is %x", appendReady(nil, ready{socket: "SUB"}))
		}
	}
}

func TestMessagesAsRecorded(t *testing.T) {
	check := func(what string, wire []byte, want ...[]byte) {
		t.Helper()
		d := decode(wire, wide)
		for i, w := range want {
			f, err := d.frame()
			if err != nil || !bytes.Equal(f.body, w) || f.more() != (i+1 < len(want)) {
				t.Fatalf("%s: frame %d: flags %#x, %d bytes, %v", what, i, f.flags, len(f.body), err)
			}
		}
		if _, err := d.frame(); err != io.EOF {
			t.Errorf("%s: then %v", what, err)
		}
	}
	r := load(t)
	for _, c := range r.Requests {
		check(c.Case, c.RequestWire, nil, c.Request)
		check(c.Case, c.ReplyWire, nil, c.Reply)
		if got := request(string(c.Request)); !bytes.Equal(got, c.RequestWire) {
			t.Errorf("%s: we would send other bytes", c.Case)
		}
	}
	for _, p := range r.Publications {
		check("publication", p.Wire, p.Payload)
		pub := &publisher{host: &host{}}
		m := pub.messages(transport.Publication{Payload: p.Payload})
		if len(m) != 1 || !bytes.Equal(m[0].body, p.Wire) {
			t.Error("we would publish other bytes")
		}
	}
	for _, p := range r.Filtered {
		pub := &publisher{host: &host{opts: transport.ListenOptions{Filter: true}}}
		in := transport.Publication{Payload: p.Payload}
		if p.Topic != topicAll {
			in.Minions = []string{"vecminion"}
		}
		m := pub.messages(in)
		if len(m) != 1 || string(m[0].topic) != p.Topic {
			t.Errorf("tgt_type %s: %d messages, want one with topic %s", p.Type, len(m), p.Topic)
		}
	}
}

func TestDecoderRefuses(t *testing.T) {
	long := func(flags byte, n uint64) []byte { return append([]byte{flags | flagLong}, beUint64(n)...) }
	lim := limits{command: 100, message: 1000, frames: 3}
	more := appendFrame(nil, flagMore, []byte("x"))
	for name, c := range map[string]struct {
		in  []byte
		err string
	}{
		"unknown flags":        {[]byte{0x08, 0}, "unknown flags"},
		"command with more":    {[]byte{flagCommand | flagMore, 0}, "several frames"},
		"large command":        {[]byte{flagCommand, 101}, "a command of 101"},
		"large message":        {long(0, 1001), "more than 1000 bytes"},
		"huge message":         {long(0, 1<<63), "more than 1000 bytes"},
		"largest size":         {long(0, 1<<64-1), "more than 1000 bytes"},
		"large in sum":         {append(appendFrame(nil, flagMore, make([]byte, 600)), long(0, 401)...), "more than 1000 bytes"},
		"many frames":          {bytes.Repeat(more, 4), "more than 3 frames"},
		"cut between frames":   {more, io.ErrUnexpectedEOF.Error()},
		"cut in the flags":     {[]byte{0}, io.ErrUnexpectedEOF.Error()},
		"cut in the long size": {long(0, 5)[:5], io.ErrUnexpectedEOF.Error()},
		"cut in a small body":  {[]byte{0, 5, 'x'}, io.ErrUnexpectedEOF.Error()},
		"cut in a large body":  {append(long(0, 900), make([]byte, 800)...), io.ErrUnexpectedEOF.Error()},
	} {
		d := decode(c.in, lim)
		var err error
		for range 10 {
			if _, err = d.frame(); err != nil {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
	}
}

// chatter is a stream of frames of all kinds and boundary sizes.
func chatter() (stream []byte, frames []frame) {
	for i, n := range []int{0, 1, 255, 256, 511, 512, 513, smallBody - 1, smallBody, smallBody + 1, 100_000, 3} {
		f := frame{body: bytes.Repeat([]byte{byte(i + 1)}, n)}
		switch i % 3 {
		case 0:
			f.flags = flagMore
		case 1:
			f.flags = flagCommand
		}
		frames = append(frames, f)
		stream = appendFrame(stream, f.flags, f.body)
	}
	return stream, frames
}

func TestDecoderReadsHoweverItComes(t *testing.T) {
	stream, frames := chatter()
	for name, r := range map[string]io.Reader{
		"at once":         bytes.NewReader(stream),
		"byte by byte":    iotest.OneByteReader(bytes.NewReader(stream)),
		"in halves":       iotest.HalfReader(bytes.NewReader(stream)),
		"end with data":   iotest.DataErrReader(bytes.NewReader(stream)),
		"in small pieces": &pieces{stream, 77},
	} {
		budget := netserve.NewBudget(1 << 20)
		d := newDecoder(r, 512, limits{command: 1 << 20, message: 1 << 20, frames: 100})
		d.budget = budget
		for i, want := range frames {
			f, err := d.frame()
			if err != nil || f.flags&^flagLong != want.flags || !bytes.Equal(f.body, want.body) {
				t.Fatalf("%s: frame %d: %#x, %d bytes, %v; want %#x, %d bytes", name, i, f.flags, len(f.body), err, want.flags, len(want.body))
			}
		}
		d.close()
		if n := budget.Used(); n != 0 {
			t.Errorf("%s: %d bytes of the budget are lost", name, n)
		}
	}
}

type pieces struct {
	b []byte
	n int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(p.n, len(p.b))])
	p.b = p.b[n:]
	return n, nil
}

func TestAnnouncedSizeTakesNoMemory(t *testing.T) {
	in := append([]byte{flagLong}, beUint64(1<<30)...)
	in = append(in, make([]byte, 1000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := decode(in, limits{message: 1 << 30, frames: 1}).frame()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes were allocated for a message of which 1000 came", n)
	}
}

func TestBudgetBoundsUnfinishedMessages(t *testing.T) {
	budget := netserve.NewBudget(100_000)
	body := make([]byte, 90_000)
	begin := func(n int) (*decoder, error) {
		d := decode(appendFrame(nil, 0, body)[:n], wide)
		d.budget = budget
		_, err := d.frame()
		return d, err
	}
	first, err := begin(60_000)
	if !errors.Is(err, io.ErrUnexpectedEOF) || budget.Used() < 60_000 {
		t.Fatalf("%v with %d bytes charged", err, budget.Used())
	}
	second, err := begin(60_000)
	if !errors.Is(err, errBudget) {
		t.Errorf("a second one: %v", err)
	}
	second.close()
	if _, err := begin(5_000); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a small part: %v", err)
	}
	first.close()
	budget.Release(budget.Used()) // of the small part
	whole, err := begin(len(body) + 9)
	if err != nil || budget.Used() != 0 {
		t.Errorf("a whole one: %v, %d bytes stay charged", err, budget.Used())
	}
	whole.close()
}

func TestLargeBodiesHaveADeadlineThatTheirBytesExtend(t *testing.T) {
	var deadlines []time.Time
	d := newDecoder(&pieces{appendFrame(nil, 0, make([]byte, 1<<20)), 4096}, 512, wide)
	d.deadline = func(at time.Time) error {
		deadlines = append(deadlines, at)
		return nil
	}
	if _, err := d.frame(); err != nil {
		t.Fatal(err)
	}
	n := len(deadlines)
	if n < 3 || !deadlines[n-1].IsZero() {
		t.Fatalf("deadlines %v, the last must be none", deadlines)
	}
	extra := deadlines[n-2].Sub(deadlines[0])
	if want := 512 << 10 * time.Second / bodyRate; extra < want/2 || extra > want {
		t.Errorf("half a mebibyte gains %v", extra)
	}
}

func TestGreetingRefuses(t *testing.T) {
	with := func(at int, b ...byte) []byte {
		g := greeting()
		copy(g[at:], b)
		return g
	}
	for name, c := range map[string]struct {
		in  []byte
		err string
	}{
		"http":       {[]byte("G"), "not a ZeroMQ peer"},
		"zmtp 1":     {[]byte{1, 0}, "ZMTP 1"},
		"signature":  {with(9, 0x7E), "not a ZeroMQ peer"},
		"zmtp 2":     {with(10, 2)[:11], "uses ZMTP 2"},
		"curve":      {with(12, []byte("CURVE")...), `"CURVE"`},
		"plain":      {with(12, []byte("PLAIN")...), `"PLAIN"`},
		"null again": {with(12, []byte("NULLL")...), `"NULLL"`},
		"cut":        {greeting()[:40], "unexpected EOF"},
	} {
		_, err := readGreeting(decode(c.in, wide))
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
	}
	if _, err := readGreeting(decode(nil, wide)); err != io.EOF {
		t.Errorf("nothing: got %v", err)
	}
	for version, want := range map[[2]byte]int{{3, 0}: 0, {3, 1}: 1, {3, 7}: 7, {4, 0}: 1} {
		if minor, err := readGreeting(decode(with(10, version[:]...), wide)); err != nil || minor != want {
			t.Errorf("version %v: minor %d, %v", version, minor, err)
		}
	}
}

func TestReady(t *testing.T) {
	in := ready{socket: "DEALER", identity: "web1"}
	f, err := decode(appendReady(nil, in), wide).frame()
	if err != nil {
		t.Fatal(err)
	}
	name, data, err := parseCommand(f.body)
	if err != nil || name != cmdReady {
		t.Fatal(name, err)
	}
	if out, err := parseReady(data); err != nil || out != in {
		t.Errorf("got %+v, %v", out, err)
	}
	for n := range len(data) {
		if n == len("\x0bSocket-Type\x00\x00\x00\x06DEALER") {
			continue // whole without the identity
		}
		if _, err := parseReady(data[:n]); err == nil {
			t.Errorf("the first %d bytes are taken for whole", n)
		}
	}
	odd := appendProperty(appendProperty(nil, "X-Colour", "blue"), "SOCKET-type", "REQ")
	if out, err := parseReady(odd); err != nil || out.socket != "REQ" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestPing(t *testing.T) {
	if got := hex.EncodeToString(appendPing(nil, 30*time.Second)); got != "0407"+"0450494e47"+"012c" {
		t.Errorf("PING is %s", got)
	}
	if got := appendPing(nil, 1000*time.Hour); !bytes.HasSuffix(got, []byte{0xFF, 0xFF}) {
		t.Errorf("a TTL beyond the field is %x", got)
	}
	pong, err := appendPong(nil, []byte("\x00\x00context"))
	if err != nil || string(pong) != "\x04\x0c\x04PONGcontext" {
		t.Errorf("PONG is %q, %v", pong, err)
	}
	for _, n := range []int{0, 1, 2 + maxContext + 1} {
		if _, err := appendPong(nil, make([]byte, n)); err == nil {
			t.Errorf("a PING with %d bytes is answered", n)
		}
	}
}

func FuzzDecoder(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, c := range load(f).Requests {
		f.Add(c.RequestWire)
		f.Add(c.ReplyWire)
	}
	f.Add([]byte{flagMore | flagLong, 0, 0, 0, 0, 0, 0, 0, 1, 'x', flagCommand, 2, 1, 'X', 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		lim := limits{command: 300, message: 10_000, frames: 4}
		budget := netserve.NewBudget(20_000)
		d := decode(in, lim)
		d.budget = budget
		size, frames := 0, 0
		for {
			fr, err := d.frame()
			if err != nil {
				break
			}
			if fr.command() {
				if len(fr.body) > lim.command {
					t.Fatalf("a command of %d bytes", len(fr.body))
				}
				continue
			}
			size, frames = size+len(fr.body), frames+1
			if size > lim.message || frames > lim.frames {
				t.Fatalf("a message of %d bytes in %d frames", size, frames)
			}
			if !fr.more() {
				size, frames = 0, 0
			}
		}
		d.close()
		if budget.Used() != 0 {
			t.Fatal("the budget is not given back")
		}
	})
}

func FuzzHandshake(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, c := range load(f).Handshake {
		for _, s := range []string{c.ClientGreeting + c.ClientCommands[0], c.ServerGreeting + c.ServerCommands[0]} {
			f.Add(unhex(f, s))
		}
	}
	f.Add(appendError(greeting(), "no"))
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := readPeer(decode(in, limits{command: maxCommand, message: 10, frames: 1}))
		if err == nil && (p.socket == "" || len(p.socket)+len(p.identity) > maxCommand) {
			t.Fatalf("accepted %+v", p)
		}
	})
}

func FuzzCommand(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, b := range [][]byte{appendReady(nil, ready{"SUB", "id"}), appendPing(nil, time.Second), appendError(nil, "why"),
		appendCommand(nil, cmdSubscribe, []byte("topic"))} {
		f.Add(b[2:])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		name, data, err := parseCommand(body)
		if err != nil {
			return
		}
		if again := appendCommand(nil, name, data); !bytes.HasSuffix(again, body) {
			t.Fatalf("%x became %x", body, again)
		}
		if r, err := parseReady(data); err == nil {
			d, _ := decode(appendReady(nil, r), limits{command: 1 << 20}).frame()
			_, data, _ := parseCommand(d.body)
			if again, err := parseReady(data); err != nil || again != r {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		}
		if parseError(data) == nil {
			t.Fatal("an ERROR without error")
		}
		if pong, err := appendPong(nil, data); err == nil && len(pong) > 2+5+maxContext {
			t.Fatalf("a PONG of %d bytes", len(pong))
		}
		subscribes(data)
	})
}

func BenchmarkDecodeRequest(b *testing.B) {
	c := load(b).Requests[0]
	b.SetBytes(int64(len(c.RequestWire)))
	b.ReportAllocs()
	r := bytes.NewReader(nil)
	d := newDecoder(r, requestBuffer, wide)
	for b.Loop() {
		r.Reset(c.RequestWire)
		d.frame()
		if _, err := d.frame(); err != nil {
			b.Fatal(err)
		}
	}
}
