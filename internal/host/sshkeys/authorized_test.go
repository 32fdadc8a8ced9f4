package sshkeys

import "testing"

// TestFingerprintBase64 checks that base64 accepted by Python's b64decode is
// accepted, so that keys written by Salt are valid.
func TestFingerprintBase64(t *testing.T) {
	for key, ok := range map[string]bool{
		"AAAAB3NzaCL0sQ9fJ5bYTEyY": true, "AAAAB3NzaCL0sQ9fJ5bYTEyY==": true, "AAAA=": true, "AAA=": true, "AA==": true, "AB==": true,
		"AAA": false, "AAA==": false, "AA": false, "AA=": false, "AA===": false, "A": false, "A===": false, "AA=A": false, "AA\nAA": false, "AAAA\n": false,
		"AA-_": false, "==": false, "": false,
	} {
		if print, err := Fingerprint(key, ""); (err == nil) != ok || ok && len(print) != 95 {
			t.Errorf("%q: %q, %v", key, print, err)
		}
	}
}
