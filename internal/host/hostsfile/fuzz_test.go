package hostsfile

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzLine(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"127.0.0.1\tlocalhost localhost.localdomain # ours", "::1 ip6-localhost", "# 10.0.0.1 off", "", "10.0.0.1#x", "\u00a0x y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l := parse(raw)
		if l.String() != raw {
			t.Errorf("%q becomes %q", raw, l)
		}
		if l.IP == "" || strings.ContainsAny(raw, "\r\n") {
			return
		}
		again := parse(lineOf(l.IP, l.Names, l.Comment).String())
		if again.IP != l.IP || strings.Join(again.Names, " ") != strings.Join(l.Names, " ") || again.Comment != l.Comment {
			t.Errorf("%q is written as %q", raw, again)
		}
	})
}
