package api

import (
	linked "container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/ratelimit"
)

const (
	// maxConnections and maxPerAddress are the defaults of max_connections and
	// max_connections_per_address.
	maxConnections = 4096
	maxPerAddress  = 512
	// reserved is how many connections are allowed in addition for peers on this machine
	// and trusted proxies.
	reserved = 64
	// otherFiles is how many file descriptors are reserved for logs, sessions and the
	// connection to the master.
	otherFiles = 128
)

// admission is a listener that limits its open connections, in total and per address. At a
// limit it closes the oldest connection that has not presented a valid session, token or
// password, so that unauthenticated peers cannot keep others out. If there is none, it
// closes the new connection before a TLS handshake.
//
// Connections from this machine and from trusted proxies have no limit per address.
// Requests that such a proxy forwards have one, see forwarded.
type admission struct {
	net.Listener
	total, each int // 0: no limit
	settings    *Settings
	log         *ratelimit.Log

	mu       sync.Mutex
	open     int
	trusted  int // open connections from this machine and trusted proxies
	perHost  map[netip.Prefix]*peerHost
	unproven [2]linked.List // of *connection, oldest first; the second list has the trusted ones
	requests map[netip.Prefix]int

	refused, evicted atomic.Int64
}

// peerHost has the connections of one address.
type peerHost struct {
	open     int
	unproven linked.List // of *connection, oldest first
}

// connection is a connection that admission counts until it is closed.
type connection struct {
	net.Conn
	of     *admission
	key    netip.Prefix
	host   *peerHost // nil for a trusted one
	proven atomic.Bool

	// in and inHost are the positions in the lists of unproven connections, nil once the
	// connection is in none; protected by of.mu.
	in, inHost *linked.Element
	gone       bool
}

// newAdmission limits the connections of l by the settings and by the file descriptor limit
// of this process.
func newAdmission(l net.Listener, s *Settings, log *slog.Logger) *admission {
	a := &admission{
		Listener: l, total: s.MaxConnections, each: s.MaxPerAddress, settings: s, log: ratelimit.NewLog(log, 1, 10*time.Second),
		perHost: map[netip.Prefix]*peerHost{}, requests: map[netip.Prefix]int{},
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err == nil && files.Cur <= math.MaxInt32 {
		if room := max(int(files.Cur)-reserved-otherFiles, int(files.Cur)/4, 1); room < a.total {
			log.Warn("admitting fewer connections than max_connections: raise the limit of open files", "limit", files.Cur,
				"max_connections", a.total, "admitted", room)
			a.total = room
		}
	}
	return a
}

// Accept implements net.Listener.
func (a *admission) Accept() (net.Conn, error) {
	for {
		c, err := a.Listener.Accept()
		if err != nil {
			return nil, err
		}
		k, victim := a.admit(c)
		if victim != nil {
			victim.Conn.Close() // ends its handler
		}
		if k != nil {
			return k, nil
		}
		if t, ok := c.(*net.TCPConn); ok {
			t.SetLinger(0) // a refused connection leaves no state in the kernel
		}
		c.Close()
	}
}

// admit counts a connection. It returns nil if there is no room. If it makes room by
// dropping an older connection, it returns that one to be closed.
func (a *admission) admit(c net.Conn) (k, victim *connection) {
	addr := addrOf(c.RemoteAddr())
	trusted := a.settings.local(addr, addrOf(c.LocalAddr())) || a.settings.trusts(addr)
	k = &connection{Conn: c, of: a, key: network(addr)}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !trusted {
		if k.host = a.perHost[k.key]; k.host == nil {
			k.host = &peerHost{}
			a.perHost[k.key] = k.host
		}
	}
	used := a.open - min(a.trusted, reserved)
	switch {
	case k.host != nil && a.each > 0 && k.host.open >= a.each:
		if victim = first(&k.host.unproven); victim == nil {
			a.refuse("connection refused: too many authenticated ones from its address (max_connections_per_address)", addr)
			return nil, nil
		}
	case used >= a.total && (!trusted || a.trusted >= reserved):
		// Remote peers do not displace connections within the reserve.
		if victim = first(&a.unproven[0]); victim == nil && (trusted || a.trusted > reserved) {
			victim = first(&a.unproven[1])
		}
		if victim == nil {
			if k.host != nil && k.host.open == 0 {
				delete(a.perHost, k.key)
			}
			a.refuse("connection refused: authenticated peers use all connections (max_connections)", addr)
			return nil, nil
		}
	}
	if victim != nil {
		a.evicted.Add(1)
		a.leave(victim)
		a.log.Log(slog.LevelWarn, "closed the oldest connection without a valid session to admit another one", "addr", addrOf(victim.RemoteAddr()))
	}
	a.open++
	in := &a.unproven[1]
	if k.host == nil {
		a.trusted++
	} else {
		// If the victim was the only connection of this host, its entry was deleted.
		a.perHost[k.key] = k.host
		k.host.open++
		k.inHost = k.host.unproven.PushBack(k)
		in = &a.unproven[0]
	}
	k.in = in.PushBack(k)
	return k, victim
}

func (a *admission) refuse(why string, addr netip.Addr) {
	a.refused.Add(1)
	a.log.Log(slog.LevelWarn, why, "addr", addr)
}

// first returns the oldest connection of a list, or nil.
func first(l *linked.List) *connection {
	if e := l.Front(); e != nil {
		return e.Value.(*connection)
	}
	return nil
}

// leave ends the counting of a connection. A second call has no effect. mu must be held.
func (a *admission) leave(k *connection) {
	if k.gone {
		return
	}
	k.gone = true
	a.settle(k)
	a.open--
	if k.host == nil {
		a.trusted--
		return
	}
	if k.host.open--; k.host.open == 0 {
		delete(a.perHost, k.key)
	}
}

// settle removes a connection from the lists of unproven ones; mu must be held.
func (a *admission) settle(k *connection) {
	if k.in == nil {
		return
	}
	if k.host == nil {
		a.unproven[1].Remove(k.in)
	} else {
		a.unproven[0].Remove(k.in)
		k.host.unproven.Remove(k.inHost)
	}
	k.in, k.inHost = nil, nil
}

// Close implements net.Conn.
func (k *connection) Close() error {
	k.of.mu.Lock()
	k.of.leave(k)
	k.of.mu.Unlock()
	return k.Conn.Close()
}

// count returns the number of open connections.
func (a *admission) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// withConnection is the ConnContext of the http.Server.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	return context.WithValue(ctx, connectionKey{}, c)
}

// proven records that the sender of a request presented a valid session, token or password.
// Other peers do not displace its connection any more.
func proven(r *http.Request) {
	k, ok := r.Context().Value(connectionKey{}).(*connection)
	if !ok || k.proven.Swap(true) {
		return
	}
	k.of.mu.Lock()
	defer k.of.mu.Unlock()
	k.of.settle(k)
}

// forwarded counts a request of a client behind a trusted proxy until done is called. It
// counts requests because the connections are the proxy's. It reports false if the client
// has as many requests in progress as other clients may have connections.
func (a *admission) forwarded(client string) (done func(), ok bool) {
	addr, err := netip.ParseAddr(client)
	if a == nil || err != nil || a.each == 0 || a.settings.trusts(addr) {
		return func() {}, true
	}
	key := network(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.requests[key] >= a.each {
		a.refuse("request refused: too many at once from one address behind a trusted proxy (max_connections_per_address)", addr)
		return nil, false
	}
	a.requests[key]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.requests[key]--; a.requests[key] == 0 {
			delete(a.requests, key)
		}
	}, true
}

// network returns the network that counts as one address. The owner of an IPv6 address
// usually owns its /64 network.
func network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	bits := addr.BitLen()
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	if err != nil { // only for the zero address
		return netip.Prefix{}
	}
	return p
}

// addrOf returns the IP address of a remote or local endpoint.
func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// localPeer reports whether a connection comes from this machine.
func localPeer(remote, local netip.Addr) bool { return remote.IsLoopback() || remote == local }
