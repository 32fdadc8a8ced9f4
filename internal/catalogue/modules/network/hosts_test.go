package network

import (
	"os"
	"path/filepath"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/stocktest"
	"brine/internal/host"
	"brine/internal/py/value"
)

// TestHostsLikeSalt edits copies of one file with Salt and with Brine.
func TestHostsLikeSalt(t *testing.T) {
	write := func() string {
		path := filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(path, []byte("# top\n127.0.0.1\t\tlocalhost lo\t\t# self\n10.0.0.1\t\ta b\n::1\t\tlocalhost\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	theirs, ours := write(), write()
	jobs := [][]any{{"hosts.list_hosts"}, {"hosts.get_ip", "b"}, {"hosts.get_ip", "no"}, {"hosts.get_alias", "10.0.0.1"}, {"hosts.get_alias", "10.0.0.9"},
		{"hosts.has_pair", "10.0.0.1", "a"}, {"hosts.has_pair", "10.0.0.1", []string{"a", "c"}}, {"hosts.has_pair", "10.0.0.8", "a"},
		{"hosts.set_host", "10.0.0.2", "x y"}, {"hosts.set_host", "10.0.0.1", "c", "new"}, {"hosts.add_host", "10.0.0.3", "z"}, {"hosts.rm_host", "10.0.0.2", "x"},
		{"hosts.rm_host", "10.0.0.3", "z"}, {"hosts.set_comment", "::1", "six"}, {"hosts.set_comment", "10.1.1.1", "six"}, {"hosts.list_hosts"}}
	recorded := stocktest.Ask(t, map[string]any{"hosts.file": theirs}, jobs...)
	r, err := fn.NewRegistry(nil, hostsModule(&host.Machine{}))
	if err != nil {
		t.Fatal(err)
	}
	for i, j := range recorded {
		c := &fn.Call{Config: fn.Tree{Dict: value.DictOf("hosts.file", ours)}}
		args := make([]any, 0, len(jobs[i]))
		for _, a := range jobs[i][1:] {
			args = append(args, value.From(a))
		}
		if got := r.Run(t.Context(), c, fn.Job{Fun: j.Str("fun"), Arg: args}); !value.Equal(got.Return, j.At("return")) {
			t.Errorf("%v: returns %s\nSalt: %s", jobs[i], value.Repr(got.Return), value.Repr(j.At("return")))
		}
	}
}
