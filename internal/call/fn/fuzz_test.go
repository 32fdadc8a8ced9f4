package fn

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzKwarg(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"a=b", "a==b", "=b", "a.b-c=x\n", "1a=b", "ä=1", "a=\n\n", "\xff=1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, val, ok := SplitKwarg(s)
		if ok && (name+"="+val != strings.TrimSuffix(s, "\n") || strings.ContainsAny(name, "= \n") || strings.Contains(val, "\n")) {
			t.Errorf("%q: %q %q", s, name, val)
		}
	})
}
