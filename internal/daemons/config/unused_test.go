package config

import (
	"testing"

	"brine/internal/py/value"
)

// TestAddUnused checks that options which Salt has and Brine does not use have Salt's defaults, that
// what is set or declared comes before, and that no daemon shares a mapping with another one.
func TestAddUnused(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		given *value.Dict
		want  string
	}{
		{MasterKind, value.DictOf("renderer", "py", "nodegroups", nil), "['py', False, {}, 'localfs', None, None]"},
		{MinionKind, value.DictOf("fips_mode", true, "nodegroups", nil), "[None, True, None, None, 'localfs', '0.0.0.0']"},
	} {
		d := c.given.Clone()
		if err := AddUnused(c.kind, d); err != nil {
			t.Fatal(err)
		}
		got := value.Repr(value.ListOf(d.At("renderer"), d.At("fips_mode"), d.At("nodegroups"), d.At("eauth_tokens"), d.At("cache"), d.At("interface")))
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.kind, got, c.want)
		}
		if d.Str("user") == "" {
			t.Errorf("%s: no user", c.kind)
		}
		again := value.NewDict(0)
		if err := AddUnused(c.kind, again); err != nil {
			t.Fatal(err)
		}
		d.At("features").(*value.Dict).Set("x", true)
		if again.At("features").(*value.Dict).Len() != 0 {
			t.Errorf("%s: two daemons have one mapping", c.kind)
		}
		for name := range d.All() {
			if s := value.Str(name); !isKnown(s) {
				t.Errorf("%s: %s is no option of Salt", c.kind, s)
			}
		}
	}
	d := value.DictOf("user", "salt")
	if err := AddUnused(MasterKind, d); err != nil || d.Str("user") != "salt" {
		t.Errorf("the user that is set: %s, %v", d.Str("user"), err)
	}
}
