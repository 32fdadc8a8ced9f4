package zeromq

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"brine/internal/base/wait"
	"brine/internal/net/transport"
	"brine/test/eventually"
)

// connectBench connects n peers that subscribe to prefix and returns them.
func connectBench(b testing.TB, p *publisher, n int, prefix string) []net.Conn {
	conns := make([]net.Conn, n)
	for i := range conns {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		c.Write(appendCommand(appendReady(greeting(), ready{socket: "SUB"}), cmdSubscribe, []byte(prefix)))
		if _, err := readPeer(newDecoder(c, 512, wide)); err != nil {
			b.Fatal(err)
		}
		conns[i] = c
	}
	eventually.True(b, "all have subscribed", func() bool { return len(p.Peers()) == n })
	return conns
}

// BenchmarkPublish publishes to 1000 subscribers; one operation is one
// publication, delivered to all. The subscribers' reading is part of the time.
// "alone" awaits every delivery before the next publication, so that each costs
// a system call; "burst" allows 100 at once, which are batched.
func BenchmarkPublish(b *testing.B) {
	b.Run("alone", func(b *testing.B) { benchmarkPublish(b, 0) })
	b.Run("burst", func(b *testing.B) { benchmarkPublish(b, 100) })
}

func benchmarkPublish(b *testing.B, ahead int64) {
	const subscribers = 1000
	p := servePublisher(b, transport.ListenOptions{}, nil)
	var delivered, target atomic.Int64
	reached := wait.NewWakeup()
	payload := make([]byte, 1024)
	size := len(appendFrame(nil, 0, payload))
	var wg sync.WaitGroup
	conns := connectBench(b, p, subscribers, "")
	for _, c := range conns {
		wg.Go(func() {
			buf := make([]byte, 16<<10)
			for got := 0; ; {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				got += n
				if delivered.Add(int64(got/size)) >= target.Load() {
					reached.Wake()
				}
				got %= size
			}
		})
	}
	reach := func(n int64) {
		for target.Store(n); delivered.Load() < n; {
			<-reached.C()
		}
	}
	b.ReportAllocs()
	sent := int64(0)
	for b.Loop() {
		p.Publish(transport.Publication{Payload: payload})
		sent++
		reach((sent - ahead) * subscribers)
	}
	reach(sent * subscribers)
	b.ReportMetric(float64(sent*subscribers)/b.Elapsed().Seconds(), "deliveries/s")
	for _, c := range conns {
		c.Close()
	}
	wg.Wait()
}

// BenchmarkPublishFiltered queues for one of 1000 subscribers by its topic.
func BenchmarkPublishFiltered(b *testing.B) {
	p := servePublisher(b, transport.ListenOptions{Filter: true}, nil)
	own := connectBench(b, p, 1000, topicAll)[0]
	own.Write(appendCommand(nil, cmdSubscribe, p.messages(transport.Publication{Minions: []string{"web1"}})[0].topic))
	go io.Copy(io.Discard, own)
	eventually.True(b, "the topic is known", func() bool { return subscriptions(p) >= 2 })
	b.ReportAllocs()
	for b.Loop() {
		p.Publish(transport.Publication{Payload: make([]byte, 1024), Minions: []string{"web1"}})
	}
}

// BenchmarkRequests makes round trips over 100 connections.
func BenchmarkRequests(b *testing.B) {
	s := serveRequests(b, transport.ListenOptions{}, echo)
	body := make([]byte, 600)
	const conns = 100
	message := request(string(body))
	var left atomic.Int64
	peers := make([]net.Conn, conns)
	for i := range peers {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		c.Write(appendReady(greeting(), ready{socket: "REQ"}))
		if _, err := readPeer(newDecoder(c, 512, wide)); err != nil {
			b.Fatal(err)
		}
		peers[i] = c
	}
	b.ReportAllocs()
	b.ResetTimer()
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for _, c := range peers {
		wg.Go(func() {
			reply := make([]byte, len(message))
			for left.Add(-1) >= 0 {
				c.Write(message)
				if _, err := io.ReadFull(c, reply); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "roundtrips/s")
}

// BenchmarkRequester makes round trips with our own client, from one caller.
func BenchmarkRequester(b *testing.B) {
	s := serveRequests(b, transport.ListenOptions{}, echo)
	r := newRequester(s.Addr().String(), transport.DialOptions{})
	defer r.Close()
	body := make([]byte, 600)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Request(context.Background(), body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdleMemory measures the memory of an idle connection in this
// process, without the kernel's part and without the other end, which is a bare
// socket.
func BenchmarkIdleMemory(b *testing.B) {
	const n = 2000
	memory := func() uint64 {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	p := servePublisher(b, transport.ListenOptions{}, nil)
	s := serveRequests(b, transport.ListenOptions{}, echo)
	before := memory()
	conns := connectBench(b, p, n, "")
	perSubscriber := float64(memory()-before) / n
	before = memory()
	for range n {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		c.Write(appendReady(greeting(), ready{socket: "REQ"}))
		conns = append(conns, c)
	}
	eventually.True(b, "all are connected", func() bool { return len(s.current()) == n })
	perRequester := float64(memory()-before) / n
	for b.Loop() {
	}
	b.ReportMetric(perSubscriber, "B/subscriber")
	b.ReportMetric(perRequester, "B/requester")
	runtime.KeepAlive(conns)
}
