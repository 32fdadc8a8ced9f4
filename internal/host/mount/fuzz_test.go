package mount

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzEntry(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"UUID=0a1b / ext4 defaults,noatime 0 1", "/dev/sda1\t/mnt\\040x\tauto\tro", "# a comment x y z",
		"tmpfs /tmp tmpfs size=1g,nosuid 0 0 # why", "a b c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := parseEntry(line)
		if !ok {
			return
		}
		again, ok := parseEntry(e.String())
		if !ok && !strings.HasPrefix(e.String(), "#") || ok && !again.same(e) {
			t.Errorf("%q becomes %q", line, e)
		}
	})
}
