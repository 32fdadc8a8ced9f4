package channel

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
	"brine/internal/py/value"
	"brine/test/tools"
)

// returnLoad is the return of a job, with about 300 bytes of output.
func returnLoad(seal *sealer) *value.Dict {
	return seal.load("cmd", "_return", "success", true, "return", strings.Repeat("output ", 43), "retcode", 0,
		"jid", "20261121035835876743", "fun", "cmd.run", "fun_args", []any{"uptime"}, "user", "root",
		"_stamp", "2026-11-21T03:58:35.988668")
}

// eventLoad is an event with 5 KB of data in 50 values.
func eventLoad(seal *sealer) *value.Dict {
	data := value.NewDict(50)
	for i := range 50 {
		data.Set(fmt.Sprintf("value %02d", i), strings.Repeat("x", 90))
	}
	return seal.load("cmd", "_minion_event", "pretag", nil, "tag", "some/event", "data", data)
}

// manyRequests is the number of prepared requests of a benchmark.
const manyRequests = nonceBurst / 2

// handling returns a function that makes a server handle one of n requests, and
// then a new server, which does not consider the first a replay.
func handling(t testing.TB, n int, load func(*sealer) *value.Dict) func() {
	t.Helper()
	var s *testServer
	seal := newSealer(t, vecSession, "minion")
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = seal.request(t, load(seal))
	}
	var size, i int
	req := &transport.Request{Reply: func(b []byte) { size = len(b) }}
	return func() {
		if i%n == 0 {
			s = newVecServer(t, func(c *Call) { c.Reply(nil) })
		}
		req.Body = append(req.Body[:0], bodies[i%n]...) // the server may write to it
		i++
		size = 0
		s.Handle(req)
		if size < crypt.Overhead {
			t.Fatal("refused")
		}
	}
}

func BenchmarkHandleReturn(b *testing.B) { benchmarkHandle(b, returnLoad) }

func BenchmarkHandleEvent(b *testing.B) { benchmarkHandle(b, eventLoad) }

func benchmarkHandle(b *testing.B, load func(*sealer) *value.Dict) {
	handle := handling(b, manyRequests, load)
	b.ReportAllocs()
	for b.Loop() {
		handle()
	}
}

func BenchmarkHandleReturnParallel(b *testing.B) {
	var mu sync.Mutex
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		mu.Lock()
		handle := handling(b, manyRequests, returnLoad)
		mu.Unlock()
		for pb.Next() {
			handle()
		}
	})
}

// publishing returns a function that publishes a small job.
func publishing(t testing.TB, sign bool) func() {
	t.Helper()
	s := newServer(t, echo)
	p, err := NewPublishServer(PublishOptions{SignPubMessages: sign, PublishSigningAlgorithm: crypt.PKCS1v15SHA1},
		s.auth.Identity(), []transport.Publisher{nowhere{}})
	if err != nil {
		t.Fatal(err)
	}
	job := value.DictOf("fun", "test.ping", "arg", []any{}, "tgt", "*", "jid", "20261121035835876743", "ret", "",
		"tgt_type", "glob", "user", "root")
	return func() {
		if err := p.Publish(job, nil); err != nil {
			t.Fatal(err)
		}
	}
}

type nowhere struct{ transport.Publisher }

func (nowhere) Publish(transport.Publication) {}

func BenchmarkPublish(b *testing.B) {
	for name, sign := range map[string]bool{"signed": true, "unsigned": false} {
		b.Run(name, func(b *testing.B) {
			publish := publishing(b, sign)
			b.ReportAllocs()
			for b.Loop() {
				publish()
			}
		})
	}
}

// signingIn returns a function that signs in a known minion.
func signingIn(t testing.TB) func() {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion").Public())
	body := signInBody(t, "one", "minion")
	return func() { s.ask(t, body, false) }
}

func BenchmarkSignIn(b *testing.B) {
	signIn := signingIn(b)
	b.ReportAllocs()
	for b.Loop() {
		signIn()
	}
}

// TestAllocations limits the allocations of the hot paths.
func TestAllocations(t *testing.T) {
	if tools.Race {
		t.Skip("the race detector allocates, too")
	}
	const runs = 200
	for _, c := range []struct {
		name string
		f    func()
		max  float64
	}{
		{"Handle of a return", handling(t, runs+1, returnLoad), 85},
		{"Handle of an event of 5 KB", handling(t, runs+1, eventLoad), 260},
		{"Publish, signed", publishing(t, true), 18},
		{"a sign-in", signingIn(t), 170},
	} {
		if got := testing.AllocsPerRun(runs, c.f); got > c.max {
			t.Errorf("%s: %.0f allocations, at most %.0f were meant", c.name, got, c.max)
		}
	}
}
