package engine

import (
	"testing"

	"brine/test/fuzztest"
)

func FuzzSlot(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"test.echo(a, 'b, c', k=[1, 2], d={'x': (1)}).x.y ~ z", `f("a\"b", x=y=z)`, "f(", "f)", "f((()", "f(]", "(x)", "f(a=)(b)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		fun, args, kwargs, rest, ok := parseCall(s)
		if !ok {
			if fun != "" || args != nil || kwargs.Len() > 0 || rest != "" {
				t.Errorf("%q: half a call", s)
			}
			return
		}
		n := len(fun) + len(rest)
		for _, a := range args {
			text, isText := a.(string)
			if !isText {
				t.Errorf("%q: %T", s, a)
			}
			n += len(text)
		}
		if fun == "" || n > len(s) || len(args)+kwargs.Len() > len(s) {
			t.Errorf("%q: %q %v %v %q", s, fun, args, kwargs, rest)
		}
	})
}
