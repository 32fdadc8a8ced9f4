//go:build !race

package zeromq

import (
	"testing"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

func TestWaitingPeersTakeSmallStacks(t *testing.T) {
	const peers = 200
	connect := func(addr string, self ready, accept string, talk func(*dialled) error) {
		for range peers {
			d, err := dial(t.Context(), addr, dialDefaults(transport.DialOptions{}), self, limits{command: maxCommand, message: 1 << 20, frames: 2}, accept)
			if err == nil {
				t.Cleanup(func() { d.conn.Close() })
				err = talk(d)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	s := serveRequests(t, transport.ListenOptions{}, transporttest.Deep)
	transporttest.SmallStacks(t, peers, func() {
		connect(s.Addr().String(), ready{socket: "REQ"}, "ROUTER", func(d *dialled) error {
			if err := d.write([]byte{flagMore, 0, 0, 1}, []byte{0xc0}); err != nil {
				return err
			}
			if _, err := d.message(); err != nil {
				return err
			}
			_, err := d.message()
			return err
		})
	})
	p := servePublisher(t, transport.ListenOptions{}, nil)
	transporttest.SmallStacks(t, peers, func() {
		connect(p.Addr().String(), ready{socket: "SUB"}, "PUB", func(d *dialled) error {
			return d.write(appendSubscribe(nil, 1, ""), nil)
		})
	})
}
