package sshkeys

import (
	"reflect"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzLines(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"ssh-rsa AAAAB3NzaC1yc2E= ann@example.com", `command="echo \"a, b\"",no-pty ssh-ed25519 AAAAC3Nz x y`, "# ssh-rsa AAAA",
		"ecdsa-sha2-nistp256 AAAA",
		"|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg= ssh-rsa AAAA", "[host]:2222,10.0.0.1 ssh-ed25519 AAAA", "@revoked * ssh-rsa AAAA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\r\n\v\f") {
			return
		}
		if k, ok := ParseKey(line); ok {
			again, ok := ParseKey(k.String())
			if ok && !reflect.DeepEqual(again, k) {
				t.Errorf("%q: %+v, then %+v", line, k, again)
			}
			if _, err := Fingerprint(k.Key, ""); err != nil && err.Error() == "" {
				t.Error("an error without words")
			}
		}
		if h, ok := ParseHost(line); ok {
			if again, ok := ParseHost(h.String()); !ok || again != h {
				t.Errorf("%q: %+v, then %+v", line, h, again)
			}
			if len(h.String()) > len(strings.TrimSpace(line)) && !strings.ContainsAny(line, "\u0085\u00a0") && len(strings.Fields(line)) == 3 {
				t.Errorf("%q grows", line)
			}
		}
	})
}
