package account

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzLines(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"root:x:0:0:root:/root:/bin/bash", "_apt:x:42:65534::/nonexistent:/usr/sbin/nologin", "sudo:x:27:ann,bob", "users:x:100:",
		"ann:$y$j9T$x$y:19700:0:99999:7:::", "bob:!:19700:0:99999:7:30:20000:", "+::::::", "x:x:-1:99999999999999999999::/:/", ":::::::::", "\x00:\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		u, ok := parseUser(line)
		if n := len(u.Name) + len(u.Comment) + len(u.Home) + len(u.Shell); ok && n > len(line) || strings.Contains(u.Name+u.Home+u.Shell, ":") {
			t.Errorf("%q: %+v", line, u)
		}
		g, _ := parseGroup(line)
		for _, m := range g.Members {
			if strings.ContainsAny(m, ",:") {
				t.Errorf("%q: member %q", line, m)
			}
		}
		if s, ok := parseShadow(line); ok && !strings.HasPrefix(line, s.Name+":") {
			t.Errorf("%q: %+v", line, s)
		}
	})
}
