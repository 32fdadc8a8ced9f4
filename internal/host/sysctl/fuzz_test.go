package sysctl

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzLine(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"net.ipv4.ip_forward = 1", "-kernel.x=1", "; off=1", "a=b=c", "=", " = ", "\u2003=x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parse(line)
		if !ok {
			return
		}
		again, ok := parse(e.Name + "=" + e.Value)
		if (!ok || again != e) && !strings.ContainsAny(e.Name, "#;") {
			t.Errorf("%q: %+v, then %+v", line, e, again)
		}
	})
}
