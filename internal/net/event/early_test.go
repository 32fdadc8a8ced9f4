package event

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/eventually"
)

func returnTag(n int) string { return fmt.Sprintf("salt/job/20260101000000000001/ret/m%d", n) }

// TestReturnsBeforeReconnection: a program of Salt gets the returns that were fired between the
// start of the server and its connection, once and in order; a Brine program does not.
func TestReturnsBeforeReconnection(t *testing.T) {
	bus := NewBus(1 << 20)
	s := serve(t, bus, masterSockets(t), testOptions)
	s.KeepReturns()
	must(t, bus.Fire(returnTag(0), value.DictOf("return", true)))
	must(t, bus.Fire("salt/auth", value.NewDict(0)))
	s.Repeat(returnTag(1), value.DictOf("return", true))

	brine := dialReader(t, s)
	must(t, bus.Fire("salt/job/20260101000000000001/new", value.NewDict(0)))
	e, err := brine.Next()
	must(t, err)
	if e.Tag != "salt/job/20260101000000000001/new" {
		t.Errorf("a Brine program got %s, which was fired before it connected", e.Tag)
	}
	brine.Close()
	waitReaders(t, s, 0)

	next := dialRaw(t, s)
	must(t, bus.Fire(returnTag(2), value.DictOf("return", true)))
	for i := range 3 {
		for {
			got := next(time.Minute)
			if got == tagWake {
				continue
			}
			if got != returnTag(i) {
				t.Fatalf("%q came, want %s", got, returnTag(i))
			}
			break
		}
	}

	s.keeper.expire()
	s.Repeat(returnTag(3), value.DictOf("return", true))
	must(t, bus.Fire("last", value.NewDict(0)))
	for {
		got := next(time.Minute)
		if got == tagWake {
			continue
		}
		if got != "last" {
			t.Errorf("%q came after the returns of the start", got)
		}
		break
	}
}

// TestReturnsWithoutSyndic: on a master with a syndic returns are kept from the end of the last
// program of Salt until the next one connects, and programs of Brine do not count.
func TestReturnsWithoutSyndic(t *testing.T) {
	bus := NewBus(1 << 20)
	s := serve(t, bus, masterSockets(t), testOptions)
	s.KeepReturns()
	known := func(n int) {
		t.Helper()
		eventually.Nil(t, time.Minute, fmt.Sprintf("%d programs of Salt are known", n), func() error {
			s.keeper.mu.Lock()
			defer s.keeper.mu.Unlock()
			if s.keeper.known != n {
				return fmt.Errorf("%d are known", s.keeper.known)
			}
			return nil
		})
	}
	for round := range 3 {
		s.keeper.expire() // no syndic has connected: returns are still kept
		must(t, bus.Fire(returnTag(2*round), value.DictOf("return", true)))
		brine := dialReader(t, s)
		must(t, bus.Fire(returnTag(2*round+1), value.DictOf("return", true)))
		brine.Close()
		waitReaders(t, s, 0)

		conn, err := net.Dial("unix", s.Sockets().Pub)
		must(t, err)
		must(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		known(1)
		s.keeper.expire()
		must(t, bus.Fire("last", value.NewDict(0)))
		frames := frameReader{r: conn}
		var got []string
		for len(got) == 0 || got[len(got)-1] != "last" {
			body, err := frames.next()
			must(t, err)
			e, err := parseBody(body)
			must(t, err)
			if e.Tag != tagWake {
				got = append(got, e.Tag)
			}
		}
		if want := []string{returnTag(2 * round), returnTag(2*round + 1), "last"}; !slices.Equal(got, want) {
			t.Fatalf("round %d: a syndic got %v, want %v", round, got, want)
		}
		if s.backlog.keepsEarly() {
			t.Error("returns are kept while a program of Salt is connected")
		}
		conn.Close()
		waitReaders(t, s, 0)
		known(0)
	}

	// A syndic of Brine does not need that.
	brine := dialReader(t, s)
	must(t, brine.IsSyndic())
	eventually.Nil(t, time.Minute, "no syndic of Salt is expected", func() error {
		if s.keeper.syndic.Load() {
			return errors.New("one is")
		}
		return nil
	})
	s.keeper.expire()
	if s.backlog.keepsEarly() {
		t.Error("returns are kept although the syndic is one of Brine's")
	}
}

// TestKeptReturnsAreBounded: returns that are kept for programs that reconnect do not fill memory.
func TestKeptReturnsAreBounded(t *testing.T) {
	b := newBacklog(10, 1<<10)
	b.keepEarly(true)
	frame := []byte(strings.Repeat("x", 1<<20))
	for range 100 {
		b.add(frame, true)
	}
	if b.early.bytes > earlyBytes || len(b.early.frames) == 0 {
		t.Errorf("%d bytes are kept", b.early.bytes)
	}
	b.keepEarly(true)
	reports := 0
	for range earlyFrames + 10 {
		if b.add([]byte("x"), true) {
			reports++
		}
	}
	if len(b.early.frames) != earlyFrames || reports != 1 {
		t.Errorf("%d frames are kept, and %d reports that one is not", len(b.early.frames), reports)
	}
}

// TestEventsBeforeTheEnd: a server that is stopped sends its readers all events first, but does not
// wait for one that does not read.
func TestEventsBeforeTheEnd(t *testing.T) {
	bus := NewBus(1 << 20)
	s, err := Listen(bus, masterSockets(t), testOptions, quiet)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	stuck, err := net.Dial("unix", s.Sockets().Pub)
	must(t, err)
	defer stuck.Close()
	waitReaders(t, s, 1)
	r := dialReader(t, s)

	const n = 2000
	payload := strings.Repeat("x", 2000) // more than the buffers of a socket
	for i := range n {
		must(t, bus.Fire("e", value.DictOf("n", i, "p", payload)))
	}
	cancel()
	for i := range n {
		e, err := r.Next()
		if err != nil {
			t.Fatalf("after %d of %d events: %v", i, n, err)
		}
		if e.Data.Int("n") != int64(i) {
			t.Fatalf("event %d, want %d", e.Data.Int("n"), i)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
