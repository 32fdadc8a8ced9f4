package salt

import (
	"strings"
	"testing"
)

func TestCheckID(t *testing.T) {
	for _, id := range []string{"web1", "web1.example.com", "a b", "ä", "-", "a..b", "*", strings.Repeat("x", MaxIDLength)} {
		if err := CheckID(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
	for id, want := range map[string]string{
		"":                                 "is empty",
		strings.Repeat("x", MaxIDLength+1): "longer than 255 bytes",
		".":                                "begins with a dot",
		"..":                               "begins with a dot",
		".hidden":                          "begins with a dot",
		"a/b":                              "slash",
		"/":                                "slash",
		`a\b`:                              "backslash",
		"a\x00":                            "control character",
		"a\nb":                             "control character",
		"a\x1b[2J":                         "control character",
		"a\u0085":                          "control character",
		"a\xff":                            "not UTF-8",
	} {
		err := CheckID(id)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", id, err, want)
		}
		if err != nil && (len(err.Error()) > 200 || strings.ContainsAny(err.Error(), "\n\x00\x1b")) {
			t.Errorf("%q: the error is not a single log line: %q", id, err)
		}
	}
}

// TestNewIDs checks that new ids must not be patterns or look like other ids,
// and that existing ids stay valid.
func TestNewIDs(t *testing.T) {
	for _, bad := range []string{"*", "web[1]", "a?", "]", " a", "a ", "a\u00a0", "a\u202eb", "a\u2028b", "a\u200bb", "", "a/b"} {
		if CheckNewID(bad) == nil {
			t.Errorf("%q was accepted as a new id", bad)
		}
	}
	for _, good := range []string{"web1.example.com", "a b", "\u00e9", "web-1_x", "db:1", "m@x", "2001:db8::1"} {
		if err := CheckNewID(good); err != nil {
			t.Error(err)
		}
	}
}
