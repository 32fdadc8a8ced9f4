package ws

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"brine/internal/base/httpclient"
	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/netpeer"
)

// dial opens a connection and completes the upgrade, within o.DialTimeout.
func (l *link) dial(ctx context.Context, addr, path string, o transport.DialOptions) error {
	ctx, cancel := context.WithTimeout(ctx, netpeer.DialTimeout(o))
	defer cancel()
	conn, live, err := netpeer.Dial(ctx, addr, o)
	if err != nil {
		return err
	}
	// TLS is complete, so HTTP runs over it as over a plain connection.
	client := httpclient.New(httpclient.Options{
		Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }, MaxHeader: maxHeader, Once: true,
	})
	ws, _, err := websocket.Dial(ctx, "ws://"+addr+path, &websocket.DialOptions{
		HTTPClient: client,
		HTTPHeader: http.Header{"User-Agent": {userAgent}},
		OnPingReceived: func(context.Context, []byte) bool {
			live.Discount()
			return true
		},
	})
	if err != nil {
		conn.Close()
		return salt.Errorf(salt.Unavailable, "cannot connect to %s: %w", addr, err)
	}
	max := o.MaxMessage
	if max <= 0 {
		max = transport.DefaultMaxMessage
	}
	ws.SetReadLimit(int64(max))
	l.init(ws, live, 1)
	return nil
}

// ahead is how many publications a subscription reads ahead of Receive. It
// reads at all times, so that it can answer pings while its user is busy.
const ahead = 16

// subscription is a connection to a publisher.
type subscription struct {
	link
	addr     string
	messages chan []byte // closed after err was set
	err      error
	done     chan struct{} // closed by Close
	stop     func()
	readers  sync.WaitGroup
}

func subscribe(ctx context.Context, addr string, o transport.DialOptions) (*subscription, error) {
	s := &subscription{addr: addr, messages: make(chan []byte, ahead), done: make(chan struct{})}
	if err := s.dial(ctx, addr, "/ws", o); err != nil {
		return nil, err
	}
	s.stop = sync.OnceFunc(func() {
		close(s.done)
		s.close()
	})
	s.readers.Go(func() { s.whileBeating(o.Heartbeat, s.run) })
	return s, nil
}

// whileBeating calls read, with heartbeats while it runs, and ends the link.
func (l *link) whileBeating(interval time.Duration, read func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	if interval > 0 {
		l.ping(true)
		wg.Go(func() { everyTick(interval, ended, func() { l.pulse(interval) }) })
	}
	read()
	close(ended)
	wg.Wait()
	l.end()
}

// run puts publications into the channel until the connection ends.
func (s *subscription) run() {
	defer close(s.messages)
	for {
		b, err := s.read(nil)
		if err == nil {
			b, err = unwrap(b)
		}
		if err == nil {
			select {
			case s.messages <- b:
				continue
			case <-s.done:
			}
		}
		select {
		case <-s.done:
			err = errClosed
		default:
		}
		s.err = s.why(s.addr, err)
		return
	}
}

func (s *subscription) Receive() ([]byte, error) {
	if m, ok := <-s.messages; ok {
		return m, nil
	}
	return nil, s.err
}

// Beats reports whether the publisher has answered a ping.
func (s *subscription) Beats() bool { return s.mayDrop.Load() }

func (s *subscription) Close() error {
	s.stop()
	s.readers.Wait()
	return nil
}
