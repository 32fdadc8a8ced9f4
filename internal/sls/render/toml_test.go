package render

import (
	"errors"
	"testing"

	"brine/internal/py/value"
)

func TestTOMLAndYamlex(t *testing.T) {
	for _, c := range []struct{ source, want string }{
		{"#!toml\n[a.\"file.managed\"]\nmode = '600'\nwhen = 2020-01-01\n", "{'a': {'file.managed': {'mode': '600', 'when': '2020-01-01'}}}"},
		{"#!jinja|yamlex\na: !aggregate {{ 1 + 1 }}\na: !aggregate [3, 2]\n", "{'a': [2, 3]}"},
		{"#!yamlex\na: !aggregate [1]\n!reset a: [2]\n", "{'a': [2]}"},
		{"#!yamlex\n# nothing\n", "{}"},
	} {
		v, err := New(Options{}).Render(t.Context(), Request{Source: []byte(c.source), Path: "/f.sls"})
		if err != nil || value.Repr(v) != c.want {
			t.Errorf("%s became %s (%v), want %s", c.source, value.Repr(v), err, c.want)
		}
	}
	for _, source := range []string{"#!toml\na\n", "#!yamlex\na: [\n"} {
		_, err := New(Options{}).Render(t.Context(), Request{Source: []byte(source), Path: "/f.sls"})
		if e := (*Error)(nil); !errors.As(err, &e) || e.Name != "/f.sls" {
			t.Errorf("%q: %v", source, err)
		}
	}
}
