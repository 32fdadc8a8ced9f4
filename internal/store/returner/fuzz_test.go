package returner

import (
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// FuzzRow decodes jobs and returns from a database, which others can write: accepted data can be
// stored and read again unchanged.
func FuzzRow(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, text := range []string{`{"jid": "20261122100000000000", "fun": "test.ping", "return": true, "id": "m1", "success": true}`,
		`{"load": {"a": [1, 2.5, null]}}`,
		`"text"`, `[1]`, `null`, ``, `{"a": 1e999}`, `{"a": "\ud800"}`, `{"a": NaN}`, `{"a": 123456789012345678901234567890}`} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, pack bool) {
		e := &etcd{pack: pack}
		if _, err := e.decode(text); err != nil && err.Error() == "" {
			t.Fatal("an error without a message")
		}
		d, err := loadDict(text)
		if err != nil || d == nil {
			return
		}
		again, err := dump(d, false)
		if err != nil {
			t.Fatalf("%.500s is read and cannot be written: %v", text, err)
		}
		if back, err := loadDict(again); err != nil || value.Repr(back) != value.Repr(d) {
			t.Fatalf("%.500s becomes %.500s: %v", text, again, err)
		}
	})
}
