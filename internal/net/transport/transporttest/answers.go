package transporttest

import (
	"bytes"
	"sync"
	"sync/atomic"
	"testing"

	"brine/internal/net/transport"
	"brine/test/eventually"
)

// testAnswer answers many peers with the same large body, each with a different head, and counts
// the calls of Sent.
func testAnswer(t *testing.T, tr transport.Transport) {
	const peers, each = 10, 5
	shared := big(1 << 20)
	before := bytes.Clone(shared)
	var sent atomic.Int64
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) {
		head := append([]byte{0x92}, r.Body...)
		r.Answer(transport.Answer{Head: head, Body: shared, Sent: func(bool) { sent.Add(1) }})
		r.Reply(r.Body)                                                              // only one answer is allowed
		r.Answer(transport.Answer{Body: r.Body, Sent: func(bool) { sent.Add(100) }}) // is called at once
	})
	var wg sync.WaitGroup
	for i := range peers {
		r := requester(t, tr, s.addr, transport.DialOptions{})
		wg.Go(func() {
			for range each {
				body := Text(string(rune('a' + i)))
				want := append(append([]byte{0x92}, body...), shared...)
				if got, err := ask(r, body); err != nil || !bytes.Equal(got, want) {
					t.Errorf("got %s, %v", short(got), err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually.True(t, "Sent is called for all answers", func() bool { return sent.Load() == peers*each*101 })
	if !bytes.Equal(shared, before) {
		t.Error("the shared body has changed")
	}
}

// testAnswerGone answers a peer that has left, and one whose server ends.
func testAnswerGone(t *testing.T, tr transport.Transport) {
	requests := make(chan *transport.Request, 1)
	s := serveRequests(t, tr, "127.0.0.1:0", transport.ListenOptions{}, func(r *transport.Request) { requests <- r })
	var sent atomic.Int64
	answer := func(r *transport.Request) {
		r.Answer(transport.Answer{Body: big(16 << 20), Sent: func(bool) { sent.Add(1) }})
	}
	gone := tr.NewRequester(s.addr, transport.DialOptions{})
	go ask(gone, Text("hold"))
	held := <-requests
	gone.Close()
	answer(held)
	eventually.True(t, "an answer to a peer that is gone is given up", func() bool { return sent.Load() == 1 })
	go ask(requester(t, tr, s.addr, transport.DialOptions{}), Text("hold"))
	held = <-requests
	s.stop()
	answer(held)
	eventually.True(t, "an answer after the end of the server is given up", func() bool { return sent.Load() == 2 })
}
