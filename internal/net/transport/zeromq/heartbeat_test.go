package zeromq

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"testing"
	"time"
)

// beaten is a peer of a host whose heartbeat rounds are called by the test.
type beaten struct {
	*link
	rounds
	now  time.Time
	peer *bufio.Reader // reads what is sent to it
}

func newBeaten(t *testing.T, every time.Duration) *beaten {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	peer, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{links: map[*link]struct{}{}}
	b := &beaten{link: &link{conn: conn}, now: time.Now(), peer: bufio.NewReader(peer)}
	b.rounds = rounds{host: h, every: every, ping: &packet{head: appendPing(nil, misses*every)}, last: b.now}
	b.pulse.start = b.now
	b.link.peer.minor = 1
	b.answers.Store(true)
	b.out.init(conn, &b.pulse, 100, time.Minute, &h.drains)
	h.links[b.link] = struct{}{}
	t.Cleanup(func() {
		peer.Close()
		b.out.shut(io.EOF)
		h.drains.Wait()
	})
	return b
}

// pings returns the number of PINGs sent since the last call.
func (b *beaten) pings(t *testing.T) int {
	b.out.send(&packet{head: []byte("!")}) // a byte that no PING contains
	got, err := b.peer.ReadBytes('!')
	if err != nil {
		t.Fatal(err)
	}
	b.out.spoke()
	return bytes.Count(got, b.ping.head)
}

// after runs a round so long after the last one, and reports whether the peer
// has been dropped.
func (b *beaten) after(d time.Duration) (dropped bool) {
	b.now = b.now.Add(d)
	if b.round(b.now) {
		b.last = b.now
	}
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	return b.out.closed
}

// answer is a new sign of life.
func (b *beaten) answer() { b.link.pulse.last.Add(1) }

func TestSilentPeerIsDropped(t *testing.T) {
	b := newBeaten(t, time.Hour)
	for range 10 {
		b.answer()
		if b.after(time.Hour) {
			t.Fatal("a peer that answers is dropped")
		}
	}
	for n := 1; n <= misses; n++ {
		if dropped := b.after(time.Hour); dropped != (n == misses) {
			t.Fatalf("after %d rounds of silence: dropped %v", n, dropped)
		}
	}
}

// TestNobodyIsDroppedForOurSleep: after this machine was suspended all peers
// have been silent for long, and the next tick comes before they can answer.
func TestNobodyIsDroppedForOurSleep(t *testing.T) {
	b := newBeaten(t, time.Hour)
	for range 5 {
		b.answer()
		b.after(time.Hour)
		b.after(time.Hour)
		for _, gap := range []time.Duration{10 * time.Hour, time.Minute, 7 * time.Hour, time.Second, time.Second, time.Hour, time.Hour} {
			if b.after(gap) {
				t.Fatalf("dropped %v after the last round, with no time to answer in", gap)
			}
		}
	}
	if !b.after(time.Hour) {
		t.Error("a peer that has had time enough is kept")
	}
}

func TestPublicationSparesThePing(t *testing.T) {
	b := newBeaten(t, time.Hour)
	for range 3 {
		b.answer()
		b.after(time.Hour)
		if n := b.pings(t); n != 1 {
			t.Fatalf("%d PINGs for a quiet peer", n)
		}
	}
	b.out.send(&packet{head: []byte("a publication")})
	b.answer()
	b.after(time.Hour)
	if n := b.pings(t); n != 0 {
		t.Errorf("%d PINGs right after a publication", n)
	}
	b.after(time.Hour)
	if n := b.pings(t); n != 1 {
		t.Errorf("%d PINGs in the round after", n)
	}
}
