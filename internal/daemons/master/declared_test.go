package master

import (
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// TestDeclaredFunctions: the master describes every function of minions, also those that need a
// running minion, and the states.
func TestDeclaredFunctions(t *testing.T) {
	d := declared{grains: fn.Tree{Dict: value.DictOf("os_family", "Debian", "os", "Debian", "kernel", "Linux")}}
	for _, c := range []struct{ kind, name, param, want string }{
		{"", "cmd.run", "rstrip", "{'name': 'rstrip', 'kind': 'bool', 'doc': 'remove white space at the end of the output', 'default': True}"},
		{"", "saltutil.kill_job", "jid", ""},
		{"", "schedule.add", "name", ""},
		{"", "beacons.list", "return_yaml", ""},
		{"", "mine.get", "tgt", ""},
		{"", "state.apply", "mods", ""},
		{"states", "file.managed", "name", ""},
	} {
		all, err := d.functions(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		f, err := all.Lookup(c.name)
		if err != nil {
			t.Error(err)
			continue
		}
		var got *value.Dict
		for _, p := range f.Form().Items {
			if p := p.(*value.Dict); p.Str("name") == c.param {
				got = p
			}
		}
		if got == nil || c.want != "" && value.Repr(got) != c.want {
			t.Errorf("%s: %s, want %s", c.name, value.Repr(f.Form()), c.want)
		}
	}
}
