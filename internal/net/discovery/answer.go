package discovery

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"brine/internal/base/salt"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// maxRate bounds the answers per second, since the sender address of a question may be forged.
const maxRate = 500

// Answerer answers the questions of minions for a master.
type Answerer struct {
	conn     *net.UDPConn
	o        Options
	at       netip.AddrPort // of the request port
	instance string
	log      *slog.Logger
}

// Listen binds the port for questions. at is this master's address for requests. If it has no IP address, the
// answer names the one by which the minion reaches this master.
func Listen(o Options, at netip.AddrPort, log *slog.Logger) (*Answerer, error) {
	// Only listeners without a particular address receive broadcasts. Masters on one machine share the port,
	// and each receives all of them.
	lc := net.ListenConfig{Control: shared}
	c, err := lc.ListenPacket(context.Background(), "udp4", fmt.Sprintf(":%d", o.Port))
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot listen for minions that search for a master (option discovery, port): %w", err)
	}
	a := &Answerer{conn: c.(*net.UDPConn), o: o, at: at, instance: rand.Text(), log: log}
	text, err := a.answer(netip.AddrFrom4([4]byte{255, 255, 255, 255}))
	if err != nil {
		c.Close()
		return nil, salt.Errorf(salt.Invalid, "option discovery, mapping: %w", err)
	}
	if len(text) > maxAnswer {
		log.Warn("mapping of the option discovery is too long for stock minions", "bytes", len(text), "most", maxAnswer)
	}
	return a, nil
}

// Serve answers until ctx ends.
func (a *Answerer) Serve(ctx context.Context) error {
	defer a.conn.Close()
	defer context.AfterFunc(ctx, func() { a.conn.Close() })()
	buf := make([]byte, 1<<10)
	var second int64
	given := 0
	for {
		n, from, err := a.conn.ReadFromUDPAddrPort(buf)
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil || !isQuestion(buf[:n]) {
			continue
		}
		if now := time.Now().Unix(); now != second {
			second, given = now, 0
		}
		if given++; given > maxRate {
			continue
		}
		if err := a.reply(from); err != nil {
			a.log.Debug("cannot answer a minion that searches for masters", "addr", from.String(), "err", err)
		}
	}
}

// Close closes an Answerer that does not serve.
func (a *Answerer) Close() { a.conn.Close() }

func (a *Answerer) reply(to netip.AddrPort) error {
	text, err := a.answer(a.address(to))
	if err == nil {
		_, err = a.conn.WriteToUDPAddrPort([]byte(text), to)
	}
	return err
}

// address returns the address of this master that a peer can reach.
func (a *Answerer) address(peer netip.AddrPort) netip.Addr {
	if ip := a.at.Addr(); ip.IsValid() && !ip.IsUnspecified() {
		return ip.Unmap()
	}
	// No packet is sent; the system only selects the local address.
	c, err := net.Dial("udp4", netip.AddrPortFrom(peer.Addr().Unmap(), peer.Port()).String())
	if err != nil {
		return peer.Addr()
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

func (a *Answerer) answer(ip netip.Addr) (string, error) {
	text, err := json.Dump(value.DictOf("mapping", a.o.Mapping, "master", ip.String(),
		"ret_port", int64(a.at.Port()), "instance", a.instance), json.Format{ASCII: true})
	return signature + ":@:" + text, err
}
