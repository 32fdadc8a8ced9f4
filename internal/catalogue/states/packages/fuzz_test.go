package packages

import (
	"testing"

	"brine/test/fuzztest"
)

func FuzzRequirement(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"pep8", "Django >=1.4, !=1.5, <2", "x[y]==1", "git+https://h/x.git#egg=name", "a b", "x===1", "./x.whl", "x~=1,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := readRequirement(text)
		if err == nil && (len(r.name) > len(text) || len(r.specs) > len(text)) {
			t.Errorf("%q: %+v", text, r)
		}
	})
}
