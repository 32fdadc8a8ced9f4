package netif

import (
	"strings"
	"testing"
)

func TestSockets(t *testing.T) {
	for _, c := range []struct {
		parse func([]string) (Socket, bool)
		line  string
		want  Socket
		ok    bool
	}{
		{parseNetstat, "tcp        0      2 127.0.0.1:25            0.0.0.0:*               LISTEN      33         149752     16144/master: idle",
			Socket{"tcp", "0", "2", "127.0.0.1:25", "0.0.0.0:*", "LISTEN", "33", "149752", "16144/master:"}, true},
		{parseNetstat, "udp6 0 0 :::123 :::* 0 18 -", Socket{"udp6", "0", "0", ":::123", ":::*", "", "0", "18", "-"}, true},
		{parseNetstat, "udp 0 0 10.0.0.1:68 10.0.0.2:67 ESTABLISHED 0 18 -", Socket{"udp", "0", "0", "10.0.0.1:68", "10.0.0.2:67", "", "0", "18", "-"}, true},
		{parseNetstat, "tcp 0 0 a b LISTEN 0 1", Socket{}, false},
		{parseNetstat, "tcp 0", Socket{}, false},
		{parseSS, `tcp   ESTAB  0 36 192.0.2.2:22 192.0.2.9:5000 users:(("sshd",pid=7,fd=4),("x",pid=8,fd=4)) uid:33 ino:99 sk:1 <->`,
			Socket{"tcp", "0", "36", "192.0.2.2:22", "192.0.2.9:5000", "ESTABLISHED", "33", "99", "sshd"}, true},
		{parseSS, "udp UNCONN 0 0 *:123 *:* ino:5 sk:2", Socket{"udp", "0", "0", "*:123", "*:*", "", "0", "5", ""}, true},
		{parseSS, "tcp LISTEN", Socket{}, false},
	} {
		if got, ok := c.parse(strings.Fields(c.line)); got != c.want || ok != c.ok {
			t.Errorf("%s\ngot  %+v, %v\nwant %+v, %v", c.line, got, ok, c.want, c.ok)
		}
	}
}
