package event

import (
	"net"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

const ret = "salt/job/20260101000000000001/ret/m1"

// dialRaw is a reader that does not identify itself, like Salt's programs.
func dialRaw(t *testing.T, s *Server) (next func(within time.Duration) string) {
	t.Helper()
	conn, err := net.Dial("unix", s.Sockets().Pub)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	waitReaders(t, s, 1)
	frames := frameReader{r: conn}
	return func(within time.Duration) string {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(within))
		body, err := frames.next()
		if err != nil {
			return ""
		}
		e, err := parseBody(body)
		must(t, err)
		if !e.Data.Has("_stamp") {
			t.Errorf("%s has no time", e.Tag)
		}
		return e.Tag
	}
}

// TestWake: a reader that may be a stock program gets an event after the last
// return, and nothing otherwise.
func TestWake(t *testing.T) {
	bus := NewBus(1 << 20)
	s := serve(t, bus, masterSockets(t), testOptions)
	next := dialRaw(t, s)
	const soon, long = 20 * time.Second, 700 * time.Millisecond
	for _, tag := range []string{"salt/job/20260101000000000001/new", "salt/auth", "20260101000000000001", "salt/run/1/ret", "salt/x/salt/job"} {
		must(t, bus.Fire(tag, value.DictOf("text", "\n\nsalt/job/1/ret/")))
		if got := next(soon); got != tag {
			t.Fatal(got)
		}
	}
	if got := next(long); got != "" {
		t.Errorf("%s without a return", got)
	}

	sent := time.Now()
	must(t, bus.Fire(ret, value.DictOf("return", true)))
	for i, want := range []string{ret, tagWake, tagWake} {
		if got := next(soon); got != want {
			t.Fatalf("%d: %s, want %s", i, got, want)
		}
	}
	if took := time.Since(sent); took < wakeAfter[0]+wakeAfter[1] {
		t.Errorf("both after %v", took)
	}
	if got := next(long); got != "" {
		t.Errorf("%s once more", got)
	}
}

// TestWakeIsNotForBrine: Brine's readers are not woken, and would hide it.
func TestWakeIsNotForBrine(t *testing.T) {
	bus := NewBus(1 << 20)
	s := serve(t, bus, masterSockets(t), testOptions)
	r := dialReader(t, s)
	must(t, bus.Fire(ret, nil))
	if e, err := r.Next(); err != nil || e.Tag != ret {
		t.Fatal(e, err)
	}
	s.backlog.add(wakeFrame(), false)
	time.Sleep(wakeAfter[0] + wakeAfter[1] + 50*time.Millisecond)
	must(t, bus.Fire("salt/last", nil))
	if e, err := r.Next(); err != nil || e.Tag != "salt/last" {
		t.Error(e, err)
	}
	var w waker
	w.unneeded.Store(true)
	near, far := net.Pipe()
	defer near.Close()
	w.conn = near
	go func() {
		frame, _ := (&Event{Tag: ret, Data: value.NewDict(0)}).Frame()
		w.write([][]byte{frame})
	}()
	frames := frameReader{r: far}
	_, err := frames.next()
	must(t, err)
	if w.timer != nil {
		t.Error("a timer runs for a reader of Brine's")
	}
	r.SetDeadline(time.Now())
	if _, err := r.Next(); salt.KindOf(err) != salt.Unavailable {
		t.Error(err)
	}
}

func BenchmarkIsReturn(b *testing.B) {
	frame, err := (&Event{Tag: ret, Data: value.DictOf("return", true)}).Frame()
	must(b, err)
	for b.Loop() {
		if !isReturn(frame) {
			b.Fatal()
		}
	}
}
