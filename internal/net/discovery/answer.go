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

// maxRate bounds the answers per second: the sender of a question can be
// somebody else than who gets the answer.
const maxRate = 500

// Answerer is the master's side.
type Answerer struct {
	conn     *net.UDPConn
	o        Options
	at       netip.AddrPort // of the request port
	instance string
	log      *slog.Logger
}

// Listen binds the port for questions. at is where this master takes requests;
// without an address in it, minions are told the one by which they are reached.
func Listen(o Options, at netip.AddrPort, log *slog.Logger) (*Answerer, error) {
	// Broadcasts reach only who listens at no particular address; masters on
	// one machine share the port and get all of them.
	lc := net.ListenConfig{Control: shared}
	c, err := lc.ListenPacket(context.Background(), "udp4", fmt.Sprintf(":%d", o.Port))
	if err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot listen for minions that look for a master (option discovery, port): %w", err)
	}
	a := &Answerer{conn: c.(*net.UDPConn), o: o, at: at, instance: rand.Text(), log: log}
	text, err := a.answer(netip.AddrFrom4([4]byte{255, 255, 255, 255}))
	if err != nil {
		c.Close()
		return nil, salt.Errorf(salt.Invalid, "option discovery, mapping: %w", err)
	}
	if len(text) > maxAnswer {
		log.Warn("the mapping of the option discovery is too long for Salt's minions", "bytes", len(text), "most", maxAnswer)
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
			a.log.Debug("cannot answer a minion that looks for a master", "minion", from.String(), "err", err)
		}
	}
}

// Close ends an Answerer that does not serve.
func (a *Answerer) Close() { a.conn.Close() }

func (a *Answerer) reply(to netip.AddrPort) error {
	text, err := a.answer(a.address(to))
	if err == nil {
		_, err = a.conn.WriteToUDPAddrPort([]byte(text), to)
	}
	return err
}

// address is the one of this master that a peer can reach.
func (a *Answerer) address(peer netip.AddrPort) netip.Addr {
	if ip := a.at.Addr(); ip.IsValid() && !ip.IsUnspecified() {
		return ip.Unmap()
	}
	// Nothing is sent; the system only says which address it would use.
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
