package netserve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestServeClosesAndAwaitsItsConnections(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "ret_port", net.KeepAliveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	ended := make(chan struct{}, 1)
	started := make(chan struct{})
	s := &Server{Listener: l, Log: quiet(),
		Handle: func(ctx context.Context, c net.Conn) {
			close(started)
			io.Copy(io.Discard, c) // ends only because the server closes c
			if ctx.Err() == nil {
				t.Error("the context lives although the server closed the connection")
			}
			ended <- struct{}{}
		},
		Drain: func() {
			if len(ended) != 0 {
				t.Error("a connection was closed before the drain")
			}
			order = append(order, "drain")
		},
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-started
	if n := s.Len(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if len(ended) != 1 || len(order) != 1 || s.Len() != 0 {
		t.Errorf("after Serve: ended %d, drained %d, open %d", len(ended), len(order), s.Len())
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener still accepts")
	}
}

// flaky fails with the given errors before it returns the connection.
type flaky struct {
	net.Listener
	mu   sync.Mutex
	errs []error
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		f.mu.Unlock()
		return nil, err
	}
	f.mu.Unlock()
	return f.Listener.Accept()
}

func TestServeSurvivesAShortage(t *testing.T) {
	l, err := Listen("[::1]:0", "ret_port", net.KeepAliveConfig{})
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	shortage := &net.OpError{Op: "accept", Err: syscall.EMFILE}
	served := make(chan struct{})
	s := &Server{Listener: &flaky{Listener: l, errs: []error{shortage, shortage}}, Log: quiet(),
		Handle: func(context.Context, net.Conn) { close(served) }}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Serve(ctx) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-served
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestServeReportsALostListener(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "ret_port", net.KeepAliveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	lost := errors.New("lost")
	s := &Server{Listener: &flaky{Listener: l, errs: []error{lost}}, Log: quiet()}
	if err := s.Serve(context.Background()); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

func TestListenNamesAddressAndOption(t *testing.T) {
	l, err := Listen("127.0.0.1:0", "ret_port", net.KeepAliveConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for addr, reason := range map[string]error{l.Addr().String(): syscall.EADDRINUSE, "192.0.2.1:0": syscall.EADDRNOTAVAIL} {
		_, err = Listen(addr, "publish_port", net.KeepAliveConfig{})
		if !errors.Is(err, reason) {
			t.Fatalf("%s: got %v, want %v", addr, err, reason)
		}
		for _, want := range []string{addr, "publish_port"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
	}
}

func TestBudget(t *testing.T) {
	b := NewBudget(10)
	if !b.Acquire(7) || b.Acquire(4) || !b.Acquire(3) || b.Used() != 10 {
		t.Fatalf("wrong grants, used %d", b.Used())
	}
	b.Release(7)
	if !b.Acquire(4) || b.Used() != 7 {
		t.Errorf("used %d, want 7", b.Used())
	}
	var none *Budget
	if !none.Acquire(1<<60) || none.Used() != 0 {
		t.Error("the nil budget refuses")
	}
	none.Release(1)
}

func TestBudgetKeepsAPartForTheSmall(t *testing.T) {
	b := NewBudget(100 << 20)
	for b.Acquire(10 << 20) {
	}
	if b.Used() != 70<<20 {
		t.Errorf("%d MiB went to the large", b.Used()>>20)
	}
	if !b.Acquire(1<<20) || !b.Acquire(3<<20) {
		t.Error("nothing is left for the small")
	}
}

func TestBudgetIsNeverOverdrawn(t *testing.T) {
	b := NewBudget(100)
	var held atomic.Int64
	var most maximum
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if !b.Acquire(30) {
					continue
				}
				most.raise(held.Add(30))
				runtime.Gosched() // let the others try meanwhile
				held.Add(-30)
				b.Release(30)
			}
		})
	}
	wg.Wait()
	if most.n > 100 || b.Used() != 0 {
		t.Errorf("held %d at once, %d left over", most.n, b.Used())
	}
}

type maximum struct {
	mu sync.Mutex
	n  int64
}

func (m *maximum) raise(n int64) {
	m.mu.Lock()
	m.n = max(m.n, n)
	m.mu.Unlock()
}

func TestKeepAlive(t *testing.T) {
	if k := KeepAlive(net.KeepAliveConfig{}); !k.Enable || k.Idle != 300*time.Second || k.Count != -1 {
		t.Errorf("default is %+v", k)
	}
	if k := KeepAlive(net.KeepAliveConfig{Idle: -1}); k.Enable {
		t.Error("off became on")
	}
}
