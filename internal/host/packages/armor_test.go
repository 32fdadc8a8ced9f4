package packages

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestDearmor(t *testing.T) {
	body := []byte(strings.Repeat("\x99\x01key ", 30))
	text := base64.StdEncoding.EncodeToString(body)
	armored := "words\r\n-----BEGIN PGP PUBLIC KEY BLOCK-----\r\nVersion: 1\r\n\r\n" + text[:64] + "\r\n" + text[64:] +
		"\r\n=AbCd\r\n-----END PGP PUBLIC KEY BLOCK-----\r\n"
	for name, c := range map[string]struct{ in, want, err string }{
		"armored": {armored, string(body), ""},
		"two":     {armored + armored, string(body) + string(body), ""},
		"plain":   {string(body), string(body), ""},
		"cut off": {armored[:150], "", "the key has no end line"},
		"no key":  {"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n<html>\n-----END PGP PUBLIC KEY BLOCK-----", "", "the key is not base64"},
	} {
		got, err := Dearmor([]byte(c.in))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if string(got) != c.want || text != c.err {
			t.Errorf("%s: %q, %q", name, got, text)
		}
	}
}
