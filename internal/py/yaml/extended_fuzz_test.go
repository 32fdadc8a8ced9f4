package yaml

import (
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzExtended reads documents of YAMLEX: without its tags, and with each key once,
// they mean what they mean in YAML.
func FuzzExtended(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, doc := range []string{
		"a: 1\nb: [1, 2]\na: 3\n", "a: !aggregate {x: 1}\na: !aggregate {y: 2}\n", "!aggregate a: [1]\n!aggregate a: [2]\n", "a: [1]\n!reset a: [2]\n",
		"x: &x {a: 1}\ny: {<<: *x, b: 2}\n", "!aggregate\n- 1\n- !aggregate [2]\n", "a: !!python/object:x {}\n", "&a [*a]\n",
		"placeholder: !aggregate foo\nplaceholder: !aggregate bar\n", "l: &l [1,1,1,1]\nm: &m [*l,*l,*l]\nn: [*m,*m,*m]\n",
	} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := LoadExtended(data, "doc")
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		plain, err := Load(data, "doc")
		if err == nil && !value.Equal(v, plain) && value.Repr(v) != value.Repr(plain) {
			t.Fatalf("YAMLEX reads %.500s, YAML %.500s", value.Repr(v), value.Repr(plain))
		}
	})
}
