package value

import (
	"strings"
	"testing"
)

func TestWeight(t *testing.T) {
	text := strings.Repeat("x", 1000)
	v := DictOf("a", ListOf(text, []byte(text), 7, 1.5, true, nil), "b", DictOf(text, text))
	if n := Weight(v, 1<<20); n < 4000 || n > 4100 {
		t.Errorf("weighs %d", n)
	}
	if n := Weight(v, 1500); n <= 1500 || n > 3100 {
		t.Errorf("counted to %d", n)
	}
	if n := Weight(nil, 0); n != 1 {
		t.Error(n)
	}
}
