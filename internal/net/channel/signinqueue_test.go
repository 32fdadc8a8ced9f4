package channel

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/net/handshake"
	"brine/internal/net/transport"
	"brine/internal/py/value"
)

// TestSignInQueueOrder: sign-ins that have not waited long are served first, in order of arrival;
// then the others, the latest first. Those that have waited too long are dropped.
func TestSignInQueueOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newSignInQueue(1, nil)
		first, _ := q.acquire()
		var mu sync.Mutex
		var in, out []int
		var wg sync.WaitGroup
		// They arrive 4.4, 3.3, 2.2, 1.1 and 0.5 seconds before the slot is free.
		for i, pause := range []time.Duration{1100, 1100, 1100, 600, 500} {
			wg.Go(func() {
				from, ok := q.acquire()
				mu.Lock()
				defer mu.Unlock()
				if !ok {
					out = append(out, i)
					return
				}
				in = append(in, i)
				q.release(from)
			})
			time.Sleep(pause * time.Millisecond)
		}
		q.release(first)
		wg.Wait()
		if !slices.Equal(in, []int{3, 4, 2, 1}) || !slices.Equal(out, []int{0}) {
			t.Errorf("served %v, left %v", in, out)
		}
		if _, ok := q.acquire(); !ok || q.free != 0 || q.young.Len()+q.old.Len() != 0 {
			t.Errorf("afterwards %d places are free and %d wait", q.free, q.young.Len()+q.old.Len())
		}
	})
}

// TestSignInQueueTimeout: if more sign-ins arrive than can be served in time,
// none is served after its timeout, and no time is wasted.
func TestSignInQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work, places, clients = 20 * time.Millisecond, 2, 1000
		q := newSignInQueue(places, nil)
		var mu sync.Mutex
		var worst time.Duration
		served := 0
		var wg sync.WaitGroup
		for range clients {
			wg.Go(func() {
				arrived := time.Now()
				from, ok := q.acquire()
				if !ok {
					return
				}
				time.Sleep(work)
				mu.Lock()
				worst, served = max(worst, time.Since(arrived)), served+1
				mu.Unlock()
				q.release(from)
			})
		}
		wg.Wait()
		if most := queueTimeout + work; worst > most {
			t.Errorf("one was served after %v", worst)
		}
		if want := places * int(queueTimeout/work); served < want || served > want+places {
			t.Errorf("%d were served, want %d", served, want)
		}
	})
}

// TestHints: clients that can wait return as fast as they can be served, and
// all are admitted in time.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const work, places, clients = 10 * time.Millisecond, 2, 2000
		q := newSignInQueue(places, nil)
		if q.hint() != 0 {
			t.Error("a hint with an empty queue")
		}
		var mu sync.Mutex
		late, asked := 0, 0
		var wg sync.WaitGroup
		start := time.Now()
		for range clients {
			wg.Go(func() {
				for {
					from, wait, ok := q.acquireOrHint(true)
					if wait > maxHint+time.Second {
						t.Errorf("come back in %v", wait)
					}
					if wait > 0 {
						mu.Lock()
						asked++
						mu.Unlock()
						time.Sleep(wait)
						continue
					}
					if !ok {
						mu.Lock()
						late++
						mu.Unlock()
						continue
					}
					time.Sleep(work)
					q.release(from)
					return
				}
			})
		}
		wg.Wait()
		ideal := clients * work / places
		if took := time.Since(start); late > 0 || took > ideal*3/2 || asked > 4*clients {
			t.Errorf("took %v where %v is ideal; %d were late, %d times one was put off", took, ideal, late, asked)
		}
	})
}

// TestRateLimit: with any number of clients and queues, no second exceeds the
// rate, and the rate is reached.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate, clients = 40, 400
		p := &ratelimit.Pace{Rate: func() int { return rate }}
		queues := []*signInQueue{newSignInQueue(3, p), newSignInQueue(2, p)}
		var mu sync.Mutex
		var served []time.Time
		late := 0
		var wg sync.WaitGroup
		start := time.Now()
		for i := range clients {
			wg.Go(func() {
				q := queues[i%len(queues)]
				for {
					from, wait, ok := q.acquireOrHint(true)
					if wait > 0 {
						time.Sleep(wait)
						continue
					}
					mu.Lock()
					if ok {
						served = append(served, time.Now())
					} else {
						late++
					}
					mu.Unlock()
					if ok {
						time.Sleep(time.Millisecond)
						q.release(from)
						return
					}
				}
			})
		}
		wg.Wait()
		for i, at := range served {
			if j := i + rate + int(rate*ratelimit.CatchUp/time.Second) + 1; j < len(served) && served[j].Sub(at) <= time.Second {
				t.Fatalf("%d in %v", j-i+1, served[j].Sub(at))
			}
		}
		if took := time.Since(start); took > clients*time.Second/rate*3/2 || late > clients/10 {
			t.Errorf("%d clients took %v, %d were late", clients, took, late)
		}
	})
}

// TestClientComesBack: a client follows the hint of a busy master, up to a
// limit.
func TestClientComesBack(t *testing.T) {
	s := newServer(t, echo)
	s.book.accept("one", private(t, "minion_other").Public())
	var loads []*value.Dict
	busy := 2
	tr := wire{req: direct(func(_ context.Context, body []byte) ([]byte, error) {
		load := decode(t, body).(*value.Dict).Dict("load")
		loads = append(loads, load)
		if load.At("takes_hints") == true && busy > 0 {
			busy--
			return encode(t, handshake.ComeBack(time.Hour)), nil
		}
		return s.ask(t, body, false), nil
	})}
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, tr)
		c.SetAddress("master")
		start := time.Now()
		for i := range 2 {
			if err := c.SignIn(t.Context()); err != nil {
				t.Fatalf("sign-in %d: %v", i, err)
			}
		}
		if since := time.Since(start); since != 60*time.Second {
			t.Errorf("two requests to come back took %v", since)
		}
	})
	if len(loads) != 4 || loads[0].Has("takes_hints") {
		t.Errorf("%d sign-ins, the first with %v", len(loads), loads[0].Keys())
	}
}

// TestServerHints: a master with a long queue postpones only clients that
// support hints.
func TestServerHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, echo)
		s.book.accept("one", private(t, "minion").Public())
		q := s.acceptedQueue
		q.each = time.Second
		for range q.places {
			q.acquire()
		}
		var wg sync.WaitGroup
		for range 2 * q.places {
			wg.Go(func() { q.acquire() })
		}
		synctest.Wait()
		env := decode(t, signInBody(t, "one", "minion")).(*value.Dict)
		env.Dict("load").Set("takes_hints", true)
		var reply []byte
		s.Handle(&transport.Request{Body: encode(t, env), Reply: func(b []byte) { reply = b }})
		wait := decode(t, reply).(*value.Dict).Dict("load").Int("come_back")
		if wait < 2000 || wait > 4000 {
			t.Errorf("come back in %d ms", wait)
		}
		start := time.Now()
		s.Handle(&transport.Request{Body: signInBody(t, "one", "minion"), Reply: func([]byte) {}})
		if since := time.Since(start); since != queueTimeout {
			t.Errorf("one that takes no hints waited %v", since)
		}
		wg.Wait()
	})
}
