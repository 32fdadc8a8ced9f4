package network

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

type hostArgs struct {
	Host string `salt:"host" doc:"name or address"`
}

func (n network) dig(ctx context.Context, _ *fn.Call, a hostArgs) (string, error) {
	if err := n.needs("dig"); err != nil {
		return "", err
	}
	return n.about(ctx, "dig", a.Host)
}

// about runs a program with a host name as the argument.
func (n network) about(ctx context.Context, program, name string) (string, error) {
	host := sanitize(name)
	if host == "" {
		return "", fn.Invalidf("%q is no name of a host", name)
	}
	out, err := n.Machine.Do(ctx, program, host)
	if err != nil {
		return "", fn.Errorf("cannot run %s: %w", program, err)
	}
	return strings.TrimSpace(out.Stdout + "\n" + out.Stderr), nil
}

func (n network) traceroute(ctx context.Context, c *fn.Call, a hostArgs) (*value.List, error) {
	if err := n.needs("traceroute"); err != nil {
		return nil, err
	}
	text, err := n.about(ctx, "traceroute", a.Host)
	if err != nil {
		return nil, err
	}
	version, err := n.Machine.Do(ctx, "traceroute", "--version")
	if err != nil {
		return nil, fn.Errorf("cannot run traceroute: %w", err)
	}
	read := oldHop
	if modern(version.Stdout + "\n" + version.Stderr) {
		read = hop
	}
	out := &value.List{}
	for line := range strings.SplitSeq(text, "\n") {
		if !strings.Contains(line, " ") || strings.HasPrefix(line, "traceroute") {
			continue
		}
		d := read(line)
		if d.Len() == 0 {
			c.Log.Warn("cannot parse a line of traceroute output", "line", line)
		}
		out.Append(d)
	}
	return out, nil
}

var tracerVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[Vv]ersion (\d+)\.(\d+)\.*(\d*)`) })

// modern reports whether traceroute is the one of Linux since 2.0.14.
func modern(text string) bool {
	m := tracerVersion().FindStringSubmatch(text)
	if m == nil {
		return false
	}
	var v [3]int
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1])
	}
	return v[0] >= 2 && (v[1] > 0 || v[2] >= 14)
}

// hop parses a line such as " 1  gw (192.0.2.1)  0.031 ms  0.012 ms  0.009 ms".
func hop(line string) *value.Dict {
	parts := strings.Split(line, "  ")
	count, err := strconv.Atoi(strings.TrimSpace(parts[0]))
	switch {
	case err != nil:
	case len(parts) >= 2 && strings.TrimSpace(parts[1]) == "* * *":
		return value.DictOf("count", count, "hostname", "*")
	case len(parts) >= 5:
		name, ip, _ := strings.Cut(parts[1], " ")
		d := value.DictOf("count", count, "hostname", name, "ip", strings.Trim(ip, "()"))
		for i, key := range []string{"ms1", "ms2", "ms3"} {
			word, _, _ := strings.Cut(strings.TrimSpace(parts[i+2]), " ")
			ms, err := strconv.ParseFloat(word, 64)
			if err != nil {
				return value.NewDict(0)
			}
			d.Set(key, ms)
		}
		return d
	}
	return value.NewDict(0)
}

// oldHop parses the lines of other traceroute programs, word by word.
func oldHop(line string) *value.Dict {
	f := strings.Fields(line)
	if len(f) < 9 {
		return value.NewDict(0)
	}
	return value.DictOf("count", f[0], "hostname", f[1], "ip", f[2], "ms1", f[4], "ms2", f[6], "ms3", f[8], "ping1", f[3], "ping2", f[5], "ping3", f[7])
}

type wakeArgs struct {
	MAC       string `salt:"mac" doc:"hardware address, with or without colons or dashes"`
	Broadcast string `salt:"bcast" doc:"address to send to" default:"255.255.255.255"`
	Port      int    `salt:"destport" doc:"port to send to" default:"9"`
}

func (network) wake(ctx context.Context, _ *fn.Call, a wakeArgs) (bool, error) {
	digits := a.MAC
	if len(digits) == 17 {
		digits = strings.ReplaceAll(digits, digits[2:3], "")
	}
	mac, err := hex.DecodeString(digits)
	if err != nil || len(mac) != 6 {
		return false, fn.Invalidf("Invalid MAC address")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp4", net.JoinHostPort(a.Broadcast, strconv.Itoa(a.Port)))
	if err != nil {
		return false, fn.Errorf("cannot send to %s: %w", a.Broadcast, err)
	}
	defer conn.Close()
	packet := append(bytes.Repeat([]byte{0xff}, 6), bytes.Repeat(mac, 16)...)
	if _, err := conn.Write(packet); err != nil {
		return false, fn.Errorf("cannot send to %s: %w", a.Broadcast, err)
	}
	return true, nil
}
