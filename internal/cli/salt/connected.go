package salt

import (
	"bufio"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"brine/internal/py/value"
	"brine/internal/store/cache"
)

// notConnected reports whether a minion that did not return is not connected to the master: the
// master said so, or other minions are connected, and none of the minion's known addresses is among
// theirs. It returns false if this cannot be determined.
func (p *program) notConnected(id string) bool {
	if _, away := p.away[id]; away {
		return true
	}
	if p.peers == nil {
		p.peers = map[netip.Addr]bool{}
		for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if f, err := os.Open(path); err == nil {
				addPeers(p.peers, f, p.session.Conf.Network.PublishPort)
				f.Close()
			}
		}
		addLocal(p.peers)
	}
	grains := cache.New(p.session.Conf.Files.CacheDir, p.session.Conf.Cache, p.session.Log.Logger).MinionData(id).Grains
	if len(p.peers) == 0 || grains == nil {
		return false
	}
	for _, key := range []string{"ipv4", "ipv6"} {
		for _, v := range grains.List(key) {
			if a, err := netip.ParseAddr(value.Str(v)); err == nil && p.peers[a] {
				return false
			}
		}
	}
	return true
}

// established is the state of a connection in the kernel's table.
const established = "01"

// addPeers adds the remote addresses connected to a local port, from one of the kernel's tables of
// TCP connections.
func addPeers(peers map[netip.Addr]bool, table io.Reader, port uint16) {
	sc := bufio.NewScanner(table)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || f[3] != established {
			continue
		}
		_, local, ok := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(local, 16, 16); !ok || err != nil || uint16(n) != port {
			continue
		}
		remote, _, _ := strings.Cut(f[2], ":")
		if a, ok := kernelAddr(remote); ok {
			peers[a] = true
		}
	}
}

// kernelAddr parses an address of the kernel's tables: four-byte words in host byte order.
func kernelAddr(text string) (netip.Addr, bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 4 && len(b) != 16 {
		return netip.Addr{}, false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	a, ok := netip.AddrFromSlice(b)
	return a.Unmap(), ok
}

// addLocal replaces loopback addresses, which every minion has, by those of this machine.
func addLocal(peers map[netip.Addr]bool) {
	local := false
	for a := range peers {
		if a.IsLoopback() {
			delete(peers, a)
			local = true
		}
	}
	if !local {
		return
	}
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() {
			peers[p.Addr()] = true
		}
	}
}
