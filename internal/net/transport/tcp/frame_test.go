package tcp

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/net/transport/netserve"
	"brine/internal/py/msgpack"
	"brine/test/fuzztest"
)

type recorded struct {
	Case    string `json:"case"`
	MID     string `json:"mid"`
	Request []byte `json:"request_wire_b64"`
	Reply   []byte `json:"reply_wire_b64"`
}

func readJSON(t testing.TB, name string, v any) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func requests(t testing.TB) []recorded {
	t.Helper()
	var f struct{ Exchanges []recorded }
	readJSON(t, "tcp_requests.json", &f)
	if len(f.Exchanges) == 0 {
		t.Fatal("no recordings")
	}
	return f.Exchanges
}

type publications struct {
	IDs []struct {
		Wire []byte `json:"wire_b64"`
	} `json:"subscriber_id_message"`
	Publications []struct {
		Wire    []byte `json:"wire_b64"`
		Payload []byte `json:"payload_b64"`
	}
}

func TestRecordedRequests(t *testing.T) {
	for _, x := range requests(t) {
		head, body, err := splitFrame(x.Request)
		if err != nil {
			t.Fatalf("%s: %v", x.Case, err)
		}
		mid, beat := readHead(head)
		if string(mid) != x.MID || beat != noBeat {
			t.Errorf("%s: mid %q, beat %d, want mid %q", x.Case, mid, beat, x.MID)
		}
		// Our encoding of this request, and of its answer.
		if got := append(requestHead(x.MID, false), body...); !bytes.Equal(got, x.Request) {
			t.Errorf("%s: our request is\n%q, Salt's\n%q", x.Case, got, x.Request)
		}
		_, answer, err := splitFrame(x.Reply)
		if err != nil {
			t.Fatalf("%s: %v", x.Case, err)
		}
		if got := append(replyHead(x.Request, head, body), answer...); !bytes.Equal(got, x.Reply) {
			t.Errorf("%s: our reply is\n%q, Salt's\n%q", x.Case, got, x.Reply)
		}
	}
}

func TestRecordedPublications(t *testing.T) {
	var f publications
	readJSON(t, "publish_tcp.json", &f)
	if len(f.Publications) == 0 || len(f.IDs) == 0 {
		t.Fatal("no recordings")
	}
	for _, p := range f.Publications {
		if got := append(publishHead(p.Payload), p.Payload...); !bytes.Equal(got, p.Wire) {
			t.Errorf("our publication is\n%q, Salt's\n%q", got, p.Wire)
		}
	}
	for _, id := range f.IDs {
		_, body, err := splitFrame(id.Wire)
		if err != nil {
			t.Fatal(err)
		}
		if got := append([]byte(emptyHead), body...); !bytes.Equal(got, id.Wire) {
			t.Errorf("our registration is\n%q, Salt's\n%q", got, id.Wire)
		}
	}
}

func TestBeatFrames(t *testing.T) {
	for frame, want := range map[string]int{string(pingFrame): pingBeat, string(pongFrame): pongBeat, string(helloFrame): pingBeat} {
		head, _, err := splitFrame([]byte(frame))
		if err != nil {
			t.Fatal(err)
		}
		if mid, beat := readHead(head); mid != nil || beat != want {
			t.Errorf("%q: mid %q, beat %d, want %d", frame, mid, beat, want)
		}
	}
	head, _, err := splitFrame(append(requestHead("m", true), 0xc0))
	if err != nil {
		t.Fatal(err)
	}
	if mid, beat := readHead(head); string(mid) != "m" || beat != pingBeat {
		t.Errorf("mid %q, beat %d", mid, beat)
	}
}

func TestSplitFrame(t *testing.T) {
	for in, want := range map[string]string{
		"\x82\xa4body\x07\xa4head\x80":                          "\x80 \x07",
		"\x83\xa1x\x92\x01\x02\xa4head\x80\xa4body\x07":         "\x80 \x07",
		"\xde\x00\x02\xc4\x04head\x80\xd9\x04body\xa1x":         "\x80 \xa1x",
		"\xdf\x00\x00\x00\x02\xa4head\xc0\xa4body\x81\xa1a\x01": "\xc0 \x81\xa1a\x01",
	} {
		head, body, err := splitFrame([]byte(in))
		if got := string(head) + " " + string(body); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", in, got, err, want)
		}
		if got, want := string(replyHead([]byte(in), head, body))+"!", "\x82\xa4head"+string(head)+"\xa4body!"; !strings.HasPrefix(in, "\x82\xa4head") &&
			got != want {
			t.Errorf("%q: reply begins %q, want %q", in, got, want)
		}
	}
	for _, in := range []string{"", "\xc0", "\x80", "\x81\xa4head\x80", "\x81\xa4body\x80", "\x92\xa4head\xa4body"} {
		if _, _, err := splitFrame([]byte(in)); err == nil {
			t.Errorf("%q is taken for a frame", in)
		}
	}
}

// pieces is a connection that delivers a stream in pieces.
type pieces struct {
	net.Conn
	rest []byte
	size func() int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), max(1, p.size()))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func (p *pieces) SetReadDeadline(time.Time) error { return nil }

func TestFrameReaderPieces(t *testing.T) {
	var stream []byte
	var frames [][]byte
	add := func(f []byte) {
		frames = append(frames, f)
		stream = append(stream, f...)
	}
	for _, n := range []int{0, 1, 5, smallBuffer - 30, smallBuffer, smallBuffer + 1, 2 * smallBuffer, 10, 100_000, 10, 10, 10} {
		add(append(publishHead(make([]byte, n)), make([]byte, n)...))
	}
	// A map of many small values, whose size is unknown in advance, followed by
	// enough small frames to fill its buffer.
	many := msgpack.AppendArrayHeader([]byte(emptyHead), 50_000)
	for range 50_000 {
		many = append(many, 7)
	}
	add(many)
	for range 5000 {
		add([]byte("\x82\xa4head\x80\xa4body\x07"))
	}
	for name, size := range map[string]func() int{
		"one byte":   func() int { return 1 },
		"all":        func() int { return 1 << 30 },
		"random":     func() int { return rand.IntN(5000) },
		"an ip pack": func() int { return 1448 },
	} {
		budget := netserve.NewBudget(1 << 20)
		r := newFrameReader(&pieces{rest: bytes.Clone(stream), size: size}, 1<<20, budget)
		for i, want := range frames {
			got, err := r.next()
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: frame %d of %d bytes: got %d bytes, %v", name, i, len(want), len(got), err)
			}
		}
		if _, err := r.next(); err != io.EOF {
			t.Errorf("%s: after the end: %v", name, err)
		}
		if r.release(); budget.Used() != 0 {
			t.Errorf("%s: %d bytes of the budget are not given back", name, budget.Used())
		}
	}
}

func TestFrameReaderBounds(t *testing.T) {
	all := func() int { return 1 << 30 }
	large := append(publishHead(make([]byte, 50_000)), make([]byte, 50_000)...)
	r := newFrameReader(&pieces{rest: bytes.Clone(large), size: all}, 20_000, nil)
	if _, err := r.next(); !errors.Is(err, msgpack.ErrLimit) {
		t.Errorf("over the limit: %v", err)
	}
	if len(r.buf) > smallBuffer {
		t.Errorf("a buffer of %d bytes for a message that is refused by its head", len(r.buf))
	}
	budget := netserve.NewBudget(40_000)
	r = newFrameReader(&pieces{rest: bytes.Clone(large), size: all}, 1<<20, budget)
	if _, err := r.next(); err == nil || !strings.Contains(err.Error(), "unfinished") {
		t.Errorf("over the budget: %v", err)
	}
	r.release()
	if budget.Used() != 0 {
		t.Errorf("%d bytes of the budget are not given back", budget.Used())
	}
	deep := append([]byte(emptyHead), bytes.Repeat([]byte{0x91}, 2000)...)
	r = newFrameReader(&pieces{rest: deep, size: all}, 1<<20, nil)
	if _, err := r.next(); !errors.Is(err, msgpack.ErrLimit) {
		t.Errorf("too deep: %v", err)
	}
}

func FuzzFrames(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, x := range requests(f) {
		f.Add(x.Request, 7)
		f.Add(x.Reply, 1448)
	}
	var p publications
	readJSON(f, "publish_tcp.json", &p)
	f.Add(append(bytes.Clone(p.IDs[0].Wire), p.Publications[0].Wire...), 100)
	f.Add(append(append(bytes.Clone(pingFrame), pongFrame...), helloFrame...), 3)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		budget := netserve.NewBudget(1 << 20)
		r := newFrameReader(&pieces{rest: bytes.Clone(stream), size: func() int { return size }}, 1<<20, budget)
		var all []byte
		for {
			frame, err := r.next()
			if err != nil {
				break
			}
			all = append(all, frame...)
			head, body, err := splitFrame(frame)
			if err != nil {
				break
			}
			readHead(head)
			again := append(replyHead(frame, head, body), body...)
			h, b, err := splitFrame(again)
			if err != nil || !bytes.Equal(h, head) || !bytes.Equal(b, body) {
				t.Fatalf("%q becomes %q: %v", frame, again, err)
			}
		}
		if !bytes.HasPrefix(stream, all) {
			t.Fatal("the frames are not the stream")
		}
		if r.release(); budget.Used() != 0 {
			t.Fatal("the budget is not given back")
		}
	})
}

func BenchmarkFrameReader(b *testing.B) {
	frame := requests(b)[2].Request
	stream := bytes.Repeat(frame, 100)
	p := &pieces{size: func() int { return 1 << 30 }}
	r := newFrameReader(p, 1<<20, nil)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%100 == 0 {
			p.rest = stream
		}
		f, err := r.next()
		if err != nil {
			b.Fatal(err)
		}
		head, _, _ := splitFrame(f)
		readHead(head)
	}
}
