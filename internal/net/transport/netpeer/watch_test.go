package netpeer

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// drive calls a Watch on a schedule until its verdict is Dead, and returns when
// it pinged and when it gave up; -1: never. answer is the response time to a
// ping, -1: never; gap is the time between calls.
func drive(w *Watch, interval, until time.Duration, gap func(i int) time.Duration, answer func(ping int) time.Duration) (pings []time.Duration,
	dead time.Duration) {
	begin := time.Unix(1000, 0)
	now, sign := begin, int64(1)
	var due []time.Time
	for i := 0; now.Sub(begin) < until; i++ {
		now = now.Add(gap(i))
		for len(due) > 0 && !due[0].After(now) {
			sign++
			due = due[1:]
		}
		switch w.Judge(now, sign, interval) {
		case Ping:
			if d := answer(len(pings)); d >= 0 {
				due = append(due, now.Add(d))
			}
			pings = append(pings, now.Sub(begin))
		case Dead:
			return pings, now.Sub(begin)
		}
	}
	return pings, -1
}

func never(int) time.Duration { return -1 }

func every(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

const (
	interval = time.Second
	tick     = interval / Ticks
)

func TestWatchGivesUpInTime(t *testing.T) {
	var w Watch
	pings, dead := drive(&w, interval, time.Minute, every(tick), never)
	if len(pings) != 1 || pings[0] < interval || pings[0] > interval+tick || dead < 2*interval-tick || dead > 2*interval {
		t.Errorf("pinged at %v, gave up at %v", pings, dead)
	}
	// And after many answers.
	w = Watch{}
	pings, dead = drive(&w, interval, time.Hour, every(tick), func(n int) time.Duration {
		if n == 100 {
			return -1
		}
		return 10 * time.Millisecond
	})
	last := pings[len(pings)-1]
	if len(pings) != 101 || dead < 0 || dead-last > interval {
		t.Errorf("after %d pings, the last one at %v, gave up at %v", len(pings), last, dead)
	}
}

func TestWatchWaitsForAnswers(t *testing.T) {
	for _, answer := range []time.Duration{0, tick / 2, tick, 2 * tick} {
		var w Watch
		if _, dead := drive(&w, interval, time.Hour, every(tick), every(answer)); dead >= 0 {
			t.Errorf("a peer that answers within %v was given up at %v", answer, dead)
		}
	}
	// One that becomes slower gradually.
	var w Watch
	slower := func(n int) time.Duration { return min(time.Duration(n)*tick/4, 2*interval) }
	if _, dead := drive(&w, interval, time.Hour, every(tick), slower); dead >= 0 {
		t.Errorf("a peer that was ever slower was given up at %v", dead)
	}
	// It has the usual timeout again after it was fast for a while.
	pings, dead := drive(&w, interval, time.Hour, every(tick), func(n int) time.Duration {
		if n < 20 {
			return 0
		}
		return -1
	})
	if last := pings[len(pings)-1]; len(pings) != 21 || dead < 0 || dead-last > interval {
		t.Errorf("after %d pings, the last one at %v, given up at %v", len(pings), last, dead)
	}
}

// TestWatchOnABusyMachine makes calls late, as when this process gets no CPU
// time. The peer, equally slow, takes up to two of the late turns; it must not
// be given up, and a dead one must.
func TestWatchOnABusyMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		gap    func(int) time.Duration
		answer time.Duration
	}{
		{"all late", every(4 * tick), 8 * tick},
		{"very late", every(30 * interval), time.Minute},
		{"in pairs", func(i int) time.Duration { return []time.Duration{3 * tick, tick / 10}[i%2] }, 6 * tick},
		{"late once in a time", func(i int) time.Duration { return []time.Duration{tick, tick, tick, tick, 20 * interval}[i%5] }, 2 * tick},
	} {
		var w Watch
		if _, dead := drive(&w, interval, 24*time.Hour, c.gap, every(c.answer)); dead >= 0 {
			t.Errorf("%s: a living peer was given up at %v", c.name, dead)
		}
		w = Watch{}
		if _, dead := drive(&w, interval, 24*time.Hour, c.gap, never); dead < 0 {
			t.Errorf("%s: a dead peer is kept", c.name)
		}
	}
}

func TestWatchAgain(t *testing.T) {
	var w Watch
	_, first := drive(&w, interval, time.Minute, every(tick), never)
	w.Again()
	pings, second := drive(&w, interval, time.Minute, every(tick), never)
	if first < 0 || second < 0 || len(pings) != 1 {
		t.Errorf("first %v, then %v with pings at %v", first, second, pings)
	}
}

func TestSign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		c := Wrap(a)
		last := c.Sign()
		changed := func(what string, want bool) {
			t.Helper()
			if s := c.Sign(); (s != last) != want {
				t.Errorf("%s: a sign of life: %v", what, s != last)
			}
			last = c.Sign()
			time.Sleep(time.Minute)
		}
		changed("nothing", false)
		read := func() { // one byte from the peer
			go b.Write([]byte("x"))
			c.Read(make([]byte, 1))
		}
		read()
		changed("a byte", true)
		c.Heard()
		changed("a message", true)
		read()
		c.Discount()
		changed("its ping", false)
		read()
		c.Discount()
		c.Heard()
		c.Discount()
		changed("a pong between two pings", true)
		take := func(n int) {
			buf := make([]byte, writeStep)
			for n > 0 {
				m, _ := b.Read(buf)
				n -= m
			}
		}
		go take(10)
		c.Write(make([]byte, 10))
		changed("a small write", false)
		go take(2 * writeStep)
		c.Write(make([]byte, 2*writeStep))
		changed("progress in a long message", true)
	})
}

func TestUnread(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	peer, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := Wrap(accepted)
	defer c.Close()
	if !c.CanTry() {
		t.Skip("no such thing here")
	}
	if c.Unread() || c.Closed() {
		t.Error("a quiet connection has something to say")
	}
	peer.Write([]byte("x"))
	peer.Close()
	for deadline := time.Now().Add(time.Minute); !c.Unread(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what was sent is not seen")
		}
	}
	if c.Closed() {
		t.Error("closed before all was read")
	}
	c.Read(make([]byte, 1))
	for deadline := time.Now().Add(time.Minute); !c.Closed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the end is not seen")
		}
	}
}
