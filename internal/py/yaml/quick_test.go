package yaml

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// sameAsGeneral fails if quickLoad accepts a document and its value differs
// from that of the general loader. It returns whether quickLoad accepts it.
func sameAsGeneral(t *testing.T, doc string) bool {
	t.Helper()
	got, ok := quickLoad(doc)
	if !ok {
		return false
	}
	want, _, err := load([]byte(doc), "")
	if err != nil {
		t.Errorf("%q: quickLoad reads %s, the general loader fails: %v", doc, value.Repr(got), err)
	} else if value.Repr(got) != value.Repr(want) || reflect.TypeOf(got) != reflect.TypeOf(want) {
		t.Errorf("%q: quickLoad reads %s, the general loader %s", doc, value.Repr(got), value.Repr(want))
	}
	return true
}

// words are parts of generated documents.
var words = []string{
	"a", "b", "key", "a b", "0", "-1", "0644", "1.5", "10.0.0.1", "true", "No", "~", "null", "'q'", "'it''s'", `"d"`, `"x\ny"`, `"\q"`, "x#y", "x #y",
	"salt://x/y", "-x", "--", "---", "...", "%",
	":", ": ", "- ", "-", "\n", "\n", "\n  ", "\n  ", "\n    ", "\n- ", "\n  - ", "\n    - ", " ", "  ", "# c", " # c", "|", "|-", "|+", ">", "[]", "{}",
	"[a, b]", "{a: 1}", "[a,", "]", "}", "{", "[", ",", "?", "? ", "&a ", "*a", "!!str ", "<<", "=", "\t", "ä", "\u2028", "2020-01-01", "1:30", "@", "`",
	"\\", "'", `"`,
	"a:", "a: ", "b: ", "c: x", "\na: ", "\nb:", "\n  c: ", "\n  d:", "\n    e: ", "|\n   text", "|\n\n      x\n     y\n", "\n\n", "\n   \n",
}

func TestQuickAgreesWithGeneral(t *testing.T) {
	docs, taken := 0, 0
	try := func(doc string) {
		docs++
		if sameAsGeneral(t, doc) {
			taken++
		}
	}
	for _, g := range readGolden(t, "load.json") {
		try(g.Doc)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60000 {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(words[r.IntN(len(words))])
		}
		b.WriteString([]string{"", "\n"}[r.IntN(2)])
		try(b.String())
	}
	if taken < docs/20 {
		t.Errorf("quickLoad accepted %[2]d of %[1]d documents", docs, taken)
	}
}

// TestQuickAcceptsUsualFiles checks that quickLoad accepts usual SLS files.
func TestQuickAcceptsUsualFiles(t *testing.T) {
	for _, doc := range []string{
		"vim:\n  pkg.installed: []\n\n/etc/motd:\n  file.managed:\n    - source: salt://motd\n    - mode: 0644\n    - require:\n      - pkg: vim\n",
		"base:\n  '*':\n    - core\n  web*:\n  - web # flush\n  - match: glob\n",
		"a:\n  file.managed:\n    - name: /x\n    - contents: |\n        one\n\n          two\n    - user: root\n",
		"- 1\n- [a, 'b', 2]\n- {x: 1, y: {z: null}}\n- \"q\\n\"\n-\n  - deep\n",
	} {
		if !sameAsGeneral(t, doc) {
			t.Errorf("quickLoad does not accept %q", doc)
		}
	}
}

func FuzzQuick(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, g := range readGolden(f, "load.json") {
		f.Add(g.Doc)
	}
	found, err := filepath.Glob("../render/testdata/bench/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range found {
		b, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Fuzz(func(t *testing.T, doc string) { sameAsGeneral(t, doc) })
}
