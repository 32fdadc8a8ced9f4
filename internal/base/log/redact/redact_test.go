package redact

import (
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":           "",
		"plain a@b":  "plain a@b",
		"a://b":      "a://b",
		"http://h/x": "http://h/x",
		"https://u:S3CRET@h/x and http://S3CRET@h:80/y":    "https://<redacted>@h/x and http://<redacted>@h:80/y",
		"https://u:S3@CRET@h/x":                            "https://<redacted>@h/x",
		"https://u:S3/CR?E#T@h/x":                          "https://<redacted>@h/x",
		"git+https://S3CRET@h/x.git@v1":                    "git+https://<redacted>@h/x.git@v1",
		"git+https://h/x.git@v1":                           "git+https://h/x.git@v1",
		"git+https://h:8443/x.git@v1":                      "git+https://h:8443/x.git@v1",
		"http://[::1]:80/a@b":                              "http://[::1]:80/a@b",
		"ssh://git@h/x":                                    "ssh://git@h/x",
		"ftp://u:S3CRET@h/x":                               "ftp://<redacted>@h/x",
		"redis://:S3CRET@h":                                "redis://<redacted>@h",
		"http://u:S3CRET@a:1,http://u:S3CRET@b:2":          "http://<redacted>@a:1,http://<redacted>@b:2",
		"postgres://h/d?user=a&password=S3CRET&sslmode=a":  "postgres://h/d?user=a&password=<redacted>&sslmode=a",
		"https://h/x?private_token=S3CRET#a":               "https://h/x?private_token=<redacted>#a",
		"https://h/x?X-Amz-Signature=S3CRET":               "https://h/x?X-Amz-Signature=<redacted>",
		"https://h/x?tokens=a&passage=b":                   "https://h/x?tokens=a&passage=b",
		`Get "https://u:S3CRET@h/x": refused`:              `Get "https://<redacted>@h/x": refused`,
		"u:S3CRET@tcp(h:3306)/d and u:S3@CRET@unix(/s)/d":  "u:<redacted>@tcp(h:3306)/d and u:<redacted>@unix(/s)/d",
		"['--index-url', 'https://u:S3CRET@h/simple']\nok": "['--index-url', 'https://<redacted>@h/simple']\nok",
		"mail to a@b, see https://h/":                      "mail to a@b, see https://h/",
		"https://h/, mail to a@b":                          "https://h/, mail to a@b",
	} {
		if got := Text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// FuzzText checks that masking twice changes nothing.
func FuzzText(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("https://u:p@h/x?token=a b ssh://a@b u:p@tcp(h)")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<12 || strings.Contains(text, Mask) {
			return
		}
		once := Text(text)
		if twice := Text(once); twice != once {
			t.Errorf("%q: %q, then %q", text, once, twice)
		}
	})
}
