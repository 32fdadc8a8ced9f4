package netpeer

import (
	"bytes"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"sync"
	"testing"
)

// TestFlushLeavesTheRest: the connection accepts odd numbers of bytes without
// waiting; all messages must be written, in order and once.
func TestFlushLeavesTheRest(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	var mu sync.Mutex
	var got bytes.Buffer
	written := 0
	q := &Queue{
		Try: func(ms []Message) int {
			mu.Lock()
			defer mu.Unlock()
			var all []byte
			for _, m := range ms {
				all = append(append(all, m.Head...), m.Body...)
			}
			n := len(all)
			if rnd.Intn(3) > 0 {
				n = rnd.Intn(n + 1)
			}
			got.Write(all[:n])
			return n
		},
		Write: func(ms []Message) error {
			mu.Lock()
			defer mu.Unlock()
			for _, m := range ms {
				got.Write(m.Head)
				got.Write(m.Body)
			}
			return nil
		},
		Written: func(messages, _ int) {
			mu.Lock()
			defer mu.Unlock()
			written += messages
		},
	}
	var want strings.Builder
	const messages = 5000
	for i := range messages {
		head, body := fmt.Sprintf("%d:", i), strings.Repeat("x", rnd.Intn(20))
		want.WriteString(head + body)
		if !q.Push(Message{Head: []byte(head), Body: []byte(body)}) {
			t.Fatal("dropped")
		}
	}
	q.Wait()
	if got.String() != want.String() {
		t.Errorf("got %d bytes, want %d, or in another order", got.Len(), want.Len())
	}
	if written != messages {
		t.Errorf("%d messages counted as written, want %d", written, messages)
	}
}

// TestTryOnAFullSocket fills a real connection whose peer does not read; then
// the peer must receive everything.
func TestTryOnAFullSocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := Wrap(accepted)
	if !c.CanTry() {
		t.Skip("no such thing here")
	}
	q := &Queue{Try: c.Try, Write: func(ms []Message) error { return WriteAll(c, ms) }}
	body := make([]byte, 100<<10)
	for i := range body {
		body[i] = byte(i * 7)
	}
	const messages = 200 // more than the kernel buffers
	for range messages {
		q.Push(Message{Body: body})
	}
	if q.Len() == 0 {
		t.Error("20 MB went into a connection that is not read")
	}
	var got bytes.Buffer
	if _, err := io.CopyN(&got, peer, int64(messages*len(body))); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), bytes.Repeat(body, messages)) {
		t.Error("other bytes came out than went in")
	}
	q.Wait()
	c.Close()
}

func TestCrew(t *testing.T) {
	var crew Crew
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[int]int{}
	queues := make([]*Queue, 100)
	for i := range queues {
		queues[i] = &Queue{Try: func(ms []Message) int {
			mu.Lock()
			defer mu.Unlock()
			counts[i] += len(ms)
			return sizeOf(ms)
		}}
	}
	crew.Add(nil)
	add := func() {
		var ready []*Queue
		for _, q := range queues {
			if _, rest := q.Put(Message{Body: []byte("x")}); rest {
				ready = append(ready, q)
			}
		}
		crew.Add(ready)
	}
	add() // before a worker runs
	for range 3 {
		wg.Go(crew.Work)
	}
	for range 50 {
		add()
	}
	crew.Stop() // earlier additions are still flushed
	wg.Wait()
	for i, q := range queues {
		q.Wait()
		if counts[i] != 51 {
			t.Errorf("queue %d wrote %d messages, want 51", i, counts[i])
		}
	}
}

func BenchmarkPush(b *testing.B) {
	a, peer := tcpPair(b)
	go io.Copy(io.Discard, peer)
	c := Wrap(a)
	q := &Queue{Try: c.Try, Write: func(ms []Message) error { return WriteAll(c, ms) }}
	m := Message{Head: []byte("head"), Body: make([]byte, 700)}
	b.ReportAllocs()
	for b.Loop() {
		q.Push(m)
	}
	q.Wait()
}

func tcpPair(b *testing.B) (net.Conn, net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}
