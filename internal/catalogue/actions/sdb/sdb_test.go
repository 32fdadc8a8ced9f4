package sdb

import (
	"os"
	"path/filepath"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// TestYAMLMerge: the profile chooses how the files are merged.
func TestYAMLMerge(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")
	for path, text := range map[string]string{one: "a: {l: [1], x: 1}\n", two: "a: {l: [2], y: 2}\n", filepath.Join(dir, "bad.yaml"): "a: [\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile := func(merge *value.Dict, files ...any) *value.Dict {
		return value.DictOf("driver", "yaml", "files", value.ListOf(files...), "merge", merge)
	}
	for name, x := range map[string]struct {
		profile *value.Dict
		want    string
	}{
		"usual":     {profile(nil, one, two), "{'l': [2], 'x': 1, 'y': 2}"},
		"lists":     {profile(value.DictOf("merge_lists", true), one, two), "{'l': [1, 2], 'x': 1, 'y': 2}"},
		"aggregate": {profile(value.DictOf("strategy", "aggregate"), one, two), "{'l': [2], 'y': 2}"},
		"none":      {profile(nil), "None"},
	} {
		c := (&fn.Call{Config: fn.Tree{Dict: value.DictOf("p", x.profile)}}).Prepare()
		if got, err := Get(t.Context(), c, "sdb://p/a", true); err != nil || value.Repr(got) != x.want {
			t.Errorf("%s: %s, %v, want %s", name, value.Repr(got), err, x.want)
		}
	}
	for name, p := range map[string]*value.Dict{
		"malformed": profile(nil, filepath.Join(dir, "bad.yaml")),
		"encrypted": value.DictOf("driver", "yaml", "files", value.ListOf(one), "gpg", true), // no renderers here
	} {
		c := (&fn.Call{Config: fn.Tree{Dict: value.DictOf("p", p)}}).Prepare()
		if got, err := Get(t.Context(), c, "sdb://p/a", true); err == nil {
			t.Errorf("%s: %s", name, value.Repr(got))
		}
	}
}
