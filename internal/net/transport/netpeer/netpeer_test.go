package netpeer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/salt"
	"brine/internal/host/freeport"
	"brine/internal/net/transport"
)

func TestQueueKeepsOrderAndBounds(t *testing.T) {
	release := make(chan struct{})
	var got []string
	q := &Queue{Limit: 5, Write: func(ms []Message) error {
		<-release
		for _, m := range ms {
			got = append(got, string(m.Head)+string(m.Body))
		}
		return nil
	}}
	for i := range 8 {
		if ok := q.Push(Message{Body: fmt.Append(nil, i)}); ok != (i < 5) {
			t.Errorf("push %d: %v", i, ok)
		}
	}
	if q.Dropped() != 3 {
		t.Errorf("dropped %d, want 3", q.Dropped())
	}
	close(release)
	q.Wait()
	if s := strings.Join(got, ""); s != "01234" {
		t.Errorf("wrote %s", s)
	}
	if !q.Push(Message{Head: []byte("h"), Body: []byte("b")}) {
		t.Error("an emptied queue refuses")
	}
	q.Wait()
	if got[5] != "hb" {
		t.Errorf("wrote %q", got[5])
	}
}

func TestQueueRemove(t *testing.T) {
	release := make(chan struct{})
	var got []string
	q := &Queue{Write: func(ms []Message) error {
		<-release
		for _, m := range ms {
			got = append(got, string(m.Head))
		}
		return nil
	}}
	heads := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
	q.Push(Message{Head: heads[0], Body: make([]byte, batchBytes)}) // a batch of its own
	for {
		q.mu.Lock()
		taken := q.writing == 1
		q.mu.Unlock()
		if taken {
			break
		}
		time.Sleep(time.Millisecond)
	}
	q.Push(Message{Head: heads[1]})
	q.Push(Message{Head: heads[2]})
	if q.Remove(heads[0]) || !q.Remove(heads[1]) || q.Remove(heads[1]) {
		t.Error("Remove does not tell the waiting from the rest")
	}
	close(release)
	q.Wait()
	if s := strings.Join(got, ""); s != "ac" {
		t.Errorf("wrote %s", s)
	}
}

func TestQueueStopsAfterAnError(t *testing.T) {
	calls := 0
	q := &Queue{Limit: 100, Write: func([]Message) error { calls++; return errors.New("gone") }}
	q.Push(Message{Body: []byte("x")})
	q.Wait()
	for range 200 {
		if !q.Push(Message{Body: []byte("y")}) {
			t.Fatal("a closed queue counts drops")
		}
	}
	q.Wait()
	if calls != 1 {
		t.Errorf("%d writes after the error", calls-1)
	}
}

func TestWriteAll(t *testing.T) {
	for _, size := range []int{0, 1, 1000, writeStep, 3 * writeStep} {
		var want strings.Builder
		ms := []Message{{Head: []byte("first")}, {Body: make([]byte, size)}, {Head: []byte("h"), Body: []byte("b")}}
		for _, m := range ms {
			want.Write(m.Head)
			want.Write(m.Body)
		}
		for _, wrap := range []bool{true, false} {
			a, b := net.Pipe()
			conn := a
			if wrap {
				conn = Wrap(a)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := WriteAll(conn, ms); err != nil {
					t.Error(err)
				}
				a.Close()
			})
			var got strings.Builder
			buf := make([]byte, 1<<20)
			for {
				n, err := b.Read(buf)
				got.Write(buf[:n])
				if err != nil {
					break
				}
			}
			wg.Wait()
			if got.String() != want.String() {
				t.Errorf("size %d: wrote %d bytes, want %d", size, got.Len(), want.Len())
			}
		}
	}
}

func TestDialFromAPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: ports[0]}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	for range 2 { // the server closes each connection, so that the port is free again
		c, live, err := Dial(context.Background(), l.Addr().String(), transport.DialOptions{LocalAddr: local})
		if err != nil {
			t.Fatal(err)
		}
		if c != live || c.LocalAddr().String() != local.String() {
			t.Errorf("dialled from %v, want %v", c.LocalAddr(), local)
		}
		c.Read(make([]byte, 1))
		c.Close()
	}
}

func TestDialErrors(t *testing.T) {
	_, _, err := Dial(context.Background(), "127.0.0.1:1", transport.DialOptions{})
	if salt.KindOf(err) != salt.Unavailable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("got %v", err)
	}
}

func TestKeepAliveFollowsHeartbeat(t *testing.T) {
	k := keepAlive(transport.DialOptions{Heartbeat: 10 * time.Second})
	if !k.Enable || k.Idle != 10*time.Second || k.Interval != 10*time.Second || k.Count != 2 {
		t.Errorf("got %+v", k)
	}
	if k := keepAlive(transport.DialOptions{Heartbeat: 10 * time.Second, KeepAlive: net.KeepAliveConfig{Idle: -1}}); k.Enable {
		t.Error("off became on")
	}
	if k := keepAlive(transport.DialOptions{}); k.Idle != 300*time.Second {
		t.Errorf("got %+v", k)
	}
}
