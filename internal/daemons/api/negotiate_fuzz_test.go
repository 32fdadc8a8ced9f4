package api

import (
	"slices"
	"testing"

	"brine/test/fuzztest"
)

func FuzzAccept(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"", "*/*", "application/json;q=0.5, application/x-yaml", "text/*;q=0", `a/b;x="q, \" ;";q=1`, "application/*;q=NaN", ";;;,,,",
		"*/*;q=1e999"} {
		f.Add(s)
	}
	offer := []string{typeJSON, typeYAML}
	f.Fuzz(func(t *testing.T, header string) {
		if got := choose(header, offer...); got != "" && !slices.Contains(offer, got) {
			t.Errorf("%q: %q", header, got)
		}
	})
}
