package salt

import (
	"testing"

	"brine/internal/py/value"
)

// TestIsTrue compares with the results of Salt 3007.10.
func TestIsTrue(t *testing.T) {
	for _, c := range []struct {
		v    any
		want bool
	}{
		{nil, false}, {true, true}, {false, false},
		{int64(0), false}, {int64(1), true}, {int64(-1), false}, {0.5, false}, {1.5, true}, {-0.5, false}, {0.0, false},
		{"", false}, {"true", true}, {"TRUE", true}, {"false", false}, {"yes", false}, {"True ", false},
		{"1", true}, {"0", false}, {"-1", false}, {" 2 ", true}, {"0.5", true}, {"inf", true}, {"nan", false}, {"0x1", false}, {"1e3", true},
		{[]byte("1"), true}, {[]byte("0"), false}, {[]byte("x"), true}, {[]byte(""), false},
		{&value.List{}, false}, {value.ListOf(int64(0)), true}, {value.NewDict(0), false}, {value.DictOf("a", nil), true},
	} {
		if got := IsTrue(c.v); got != c.want {
			t.Errorf("%#v is %v", c.v, got)
		}
	}
}
