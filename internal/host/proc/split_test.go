package proc

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"brine/test/fuzztest"
)

// TestSplit compares with the results of Python's shlex.split.
func TestSplit(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want []string
		err  error
	}{
		{"", []string{}, nil},
		{"  a  b\tc\n", []string{"a", "b", "c"}, nil},
		{`a 'b c' "d e"`, []string{"a", "b c", "d e"}, nil},
		{`a''b '' ""`, []string{"ab", "", ""}, nil},
		{`a\ b "c\"d" "e\nf" 'g\h'`, []string{"a b", `c"d`, `e\nf`, `g\h`}, nil},
		{`echo # no comment`, []string{"echo", "#", "no", "comment"}, nil},
		{`"a\\b" "$x"`, []string{`a\b`, "$x"}, nil},
		{`'a`, nil, ErrQuote},
		{`"a`, nil, ErrQuote},
		{`a\`, nil, ErrEscape},
		{`"a\`, nil, ErrEscape},
	} {
		got, err := Split(tt.in)
		if !errors.Is(err, tt.err) || !slices.Equal(got, tt.want) {
			t.Errorf("Split(%q) = %q, %v; want %q, %v", tt.in, got, err, tt.want, tt.err)
		}
	}
}

// TestQuote checks that a real shell and Split both parse what Quote writes.
func TestQuote(t *testing.T) {
	words := []string{"", "plain", "a b", "it's", `"`, "$HOME", "`id`", "a\nb", `\`, "é"}
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = Quote(w)
	}
	line := strings.Join(quoted, " ")
	if got, err := Split(line); err != nil || !slices.Equal(got, words) {
		t.Errorf("Split(%q) = %q, %v", line, got, err)
	}
	out, err := exec.Command("sh", "-c", `printf '%s|' `+line).Output()
	if want := strings.Join(words, "|") + "|"; err != nil || string(out) != want {
		t.Errorf("the shell reads %q, want %q (%v)", out, want, err)
	}
}

func FuzzSplit(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	f.Add(`a 'b c' "d\"e" f\ g`)
	f.Add(`'`)
	f.Fuzz(func(t *testing.T, s string) {
		words, err := Split(s)
		if err != nil {
			return
		}
		for i, w := range words {
			words[i] = Quote(w)
		}
		again, err := Split(strings.Join(words, " "))
		if err != nil || len(again) != len(words) {
			t.Fatalf("%q: %q, %v", s, again, err)
		}
	})
}
