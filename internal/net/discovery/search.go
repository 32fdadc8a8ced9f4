package discovery

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// Bounds of one search.
const (
	// searchTime is how long to wait for answers, as in Salt.
	searchTime = 3 * time.Second
	// othersTime is how long to wait for further masters after the first answer.
	othersTime = 500 * time.Millisecond
	// maxFound bounds the masters of one search.
	maxFound = 32
)

// Search asks once for masters and returns those with an acceptable mapping, in the order of their answers.
// It is not an error if none answers.
func Search(ctx context.Context, o *Options, log *slog.Logger) ([]Found, error) {
	return search(ctx, o, broadcasts(), log)
}

func search(ctx context.Context, o *Options, to []netip.Addr, log *slog.Logger) (found []Found, err error) {
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	asked := 0
	for _, a := range to {
		if _, failed := c.WriteToUDPAddrPort(question(time.Now()), netip.AddrPortFrom(a, uint16(o.Port))); failed != nil {
			err = failed // for example of a network that is down
			continue
		}
		asked++
	}
	if asked == 0 && err != nil {
		return nil, err
	}
	end := time.Now().Add(searchTime)
	buf := make([]byte, 64<<10)
	for len(found) < maxFound {
		c.SetReadDeadline(end)
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return found, ctx.Err() // timeout
		}
		f, mapping, err := parse(buf[:n])
		switch {
		case err != nil:
			log.Debug("ignoring an invalid answer to a search for masters", "addr", from.String(), "err", err)
		case !o.fits(mapping):
			log.Debug("ignoring a master with another discovery mapping", "addr", from.String(), "master", f.String())
		default:
			if len(found) == 0 {
				end = earlier(end, time.Now().Add(othersTime))
			}
			found = enter(found, f)
		}
	}
	return found, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// broadcasts returns the broadcast addresses of this machine's networks, its own last.
func broadcasts() []netip.Addr {
	out := []netip.Addr{netip.AddrFrom4([4]byte{255, 255, 255, 255})}
	var here []netip.Addr
	ifaces, _ := net.Interfaces()
	for _, i := range ifaces {
		if i.Flags&net.FlagUp == 0 || i.Flags&(net.FlagBroadcast|net.FlagLoopback) == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || n.IP.To4() == nil {
				continue
			}
			ip, ones := n.IP.To4(), len(n.Mask)-4
			for k := range ip {
				ip[k] |= ^n.Mask[ones+k]
			}
			b := netip.AddrFrom4([4]byte(ip))
			if i.Flags&net.FlagLoopback != 0 {
				here = append(here, b)
			} else {
				out = append(out, b)
			}
		}
	}
	return append(out, here...)
}
