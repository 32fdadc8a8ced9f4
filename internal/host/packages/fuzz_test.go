package packages

import (
	"errors"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

func FuzzRepo(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"deb [arch=amd64,arm64 signed-by=/usr/share/keyrings/x.gpg] http://deb.example.com/debian trixie main contrib # ours",
		"# deb-src http://x y z", "deb [trusted=yes] cdrom:[Debian x]/ trixie main", "deb", "deb [", "deb x ./"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r, err := ParseRepo(line)
		if err != nil {
			if !errors.Is(err, ErrNoRepo) {
				t.Errorf("an error of no kind: %v", err)
			}
			return
		}
		again, err := ParseRepo(r.String())
		if err != nil || !again.Same(r) {
			t.Errorf("%q becomes %q: %v", line, r, err)
		}
	})
}

func FuzzRepoFile(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add("# head\n[base]\nname = Base $releasever\nbaseurl=http://a/\n http://b/\n# note\nenabled=1\n\n[up]\nGPGCheck=0\n")
	f.Add("[a]\n[a]\nx=1\nx=2\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r\v\f\u0085\u2028\u00a0") {
			return
		}
		once := parseRepoFile("x", text)
		again := parseRepoFile("x", once.String())
		if len(again.Sections) != len(once.Sections) {
			t.Errorf("%q: %d sections, then %d of %q", text, len(once.Sections), len(again.Sections), once)
		}
	})
}

// FuzzCompare checks that versions are ordered: of two, one is older or both are equal.
func FuzzCompare(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range [][3]string{{"1:2.3-4~rc1", "1:2.3-4", "2"}, {"1.0.el8", "1.0~1", "1.0^x"}, {"1.0rc1", "1.0.post2", "1!0"}, {"", "~", ":"},
		{"00001", "1", "a"}} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for name, cmp := range map[string]func(a, b string) int{"deb": compareDebian, "rpm": compareRPM, "python": ComparePython} {
			if cmp(a, a) != 0 {
				t.Errorf("%s: %q is not itself", name, a)
			}
			if x, y := cmp(a, b), cmp(b, a); sign(x) != -sign(y) {
				t.Errorf("%s: %q and %q: %d and %d", name, a, b, x, y)
			}
			if name == "deb" && cmp(a, b) < 0 && cmp(b, c) < 0 && cmp(a, c) >= 0 {
				t.Errorf("%s: %q < %q < %q", name, a, b, c)
			}
		}
	})
}

func sign(n int) int { return min(1, max(-1, n)) }
