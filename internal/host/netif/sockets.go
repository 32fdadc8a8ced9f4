package netif

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"brine/internal/host"
)

// Socket is an open socket as shown by netstat(8) or ss(8): addresses have
// ports, and State is that of netstat.
type Socket struct {
	Proto, RecvQ, SendQ, Local, Remote string
	State                              string // "" for a protocol without connections
	User, Inode                        string // numbers
	Program                            string // "PID/name", or the name alone, or "-"
}

// Sockets returns the sockets of TCP and UDP, as shown by netstat or, on a
// machine without it, ss. Only root sees other users' programs.
func Sockets(ctx context.Context, m *host.Machine) ([]Socket, error) {
	program, parse := "netstat", parseNetstat
	if m.Which(program) == "" {
		program, parse = "ss", parseSS
	}
	out, err := m.Do(ctx, program, "-tulpnea")
	if err != nil {
		return nil, fmt.Errorf("cannot run %s: %w", program, err)
	}
	var list []Socket
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		if !strings.HasPrefix(line, "tcp") && !strings.HasPrefix(line, "udp") {
			continue
		}
		if s, ok := parse(strings.Fields(line)); ok {
			list = append(list, s)
		}
	}
	return list, nil
}

func parseNetstat(f []string) (Socket, bool) {
	if len(f) < 8 {
		return Socket{}, false
	}
	s := Socket{Proto: f[0], RecvQ: f[1], SendQ: f[2], Local: f[3], Remote: f[4]}
	rest := f[5:]
	if !isNumber(rest[0]) {
		if rest = rest[1:]; s.Proto[0] == 't' {
			s.State = f[5]
		}
	}
	if len(rest) < 3 {
		return Socket{}, false
	}
	s.User, s.Inode, s.Program = rest[0], rest[1], rest[2]
	return s, true
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func parseSS(f []string) (Socket, bool) {
	if len(f) < 6 {
		return Socket{}, false
	}
	s := Socket{Proto: f[0], RecvQ: f[2], SendQ: f[3], Local: f[4], Remote: f[5], User: "0", Inode: "0"}
	if s.Proto[0] == 't' {
		if s.State = f[1]; s.State == "ESTAB" {
			s.State = "ESTABLISHED"
		}
	}
	for _, word := range f[6:] {
		switch key, v, _ := strings.Cut(word, ":"); key {
		case "users":
			if _, after, ok := strings.Cut(v, `"`); ok {
				s.Program, _, _ = strings.Cut(after, `"`)
			}
		case "uid":
			s.User = v
		case "ino":
			s.Inode = v
		}
	}
	return s, true
}

// Neighbour is a machine on a directly connected network.
type Neighbour struct {
	Addr     netip.Addr
	Hardware string
}

// Neighbours returns the neighbours whose hardware address the kernel knows,
// as ip(8) lists them.
func Neighbours(ctx context.Context, m *host.Machine) ([]Neighbour, error) {
	out, err := m.Do(ctx, "ip", "neigh", "show")
	if err != nil {
		return nil, fmt.Errorf("cannot run ip: %w", err)
	}
	var list []Neighbour
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		f := strings.Fields(line)
		for i := 1; i+1 < len(f); i++ {
			if addr, err := netip.ParseAddr(f[0]); f[i] == "lladdr" && err == nil {
				list = append(list, Neighbour{addr, f[i+1]})
				break
			}
		}
	}
	return list, nil
}

// ARP returns the neighbours of IPv4, as listed by arp(8). One that does not
// answer has the hardware address "<incomplete>".
func ARP(ctx context.Context, m *host.Machine) ([]Neighbour, error) {
	out, err := m.Do(ctx, "arp", "-an")
	if err != nil {
		return nil, fmt.Errorf("cannot run arp: %w", err)
	}
	var list []Neighbour
	for line := range strings.SplitSeq(out.Stdout, "\n") {
		f := strings.Fields(line) // ? (192.0.2.1) at 02:fc:00:00:00:05 [ether] on eth0
		if len(f) < 4 {
			continue
		}
		if addr, err := netip.ParseAddr(strings.Trim(f[1], "()")); err == nil {
			list = append(list, Neighbour{addr, f[3]})
		}
	}
	return list, nil
}
