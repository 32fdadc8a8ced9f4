package api

import (
	"fmt"
	"testing"
	"time"

	"brine/test/eventually"
)

// TestCheckLive: the self-check passes while the server answers on its own port, with and without
// TLS, whatever the state of its master and of its sessions; it fails while no request is answered.
func TestCheckLive(t *testing.T) {
	cert, key := pair(t)
	for _, more := range []string{"", "authorized_ips: [192.0.2.1], root_prefix: /salt", "max_connections: 1"} {
		for _, plain := range []bool{false, true} {
			s := settings(t, "ssl_crt: "+cert+", ssl_key: "+key+", "+more)
			s.Plain = plain
			r := serve(t, s)
			r.master.dead.Store(true)
			eventually.Nil(t, time.Minute, "an answer", func() error { return r.Server.askItself(t.Context()) })
			r.itself.Limit = 500 * time.Millisecond
			live := func() error { return r.CheckLive(t.Context()) }
			eventually.Nil(t, time.Minute, "it lives", live)
			r.stats.mu.Lock()
			eventually.True(t, "the self-check fails", func() bool { return live() != nil })
			r.stats.mu.Unlock()
			eventually.Nil(t, time.Minute, fmt.Sprintf("it lives again (%s, plain: %v)", more, plain), live)
		}
	}
}
