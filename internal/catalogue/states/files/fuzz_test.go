package files

import (
	"testing"

	"brine/test/fuzztest"
)

// FuzzStrptime parses file names with formats of Python's strptime. A parsed time
// must have a year that the format can represent, and must parse the same again.
func FuzzStrptime(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, c := range [][2]string{{"backup-%Y-%m-%d.tar", "backup-2026-11-22.tar"}, {"%d.%m.%y %H:%M:%S.%f", "22.11.26 10:00:59.123"}, {"%j %Y", "366 2024"},
		{"%b %d %I%p", "Feb 29 12AM"}, {"%A %B %a", "Sunday February Sun"}, {"100%%", "100%"}, {"%Y%m%d%H", "2026112210"}, {"%", "x"}, {"%Q", "x"},
		{"%d %d", "1 2"}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, format, text string) {
		p, err := newStrptime(format)
		if err != nil {
			if err.Error() == "" {
				t.Fatal("an error without a message")
			}
			return
		}
		at, ok := p.parse(text)
		if !ok {
			return
		}
		if y := at.Year(); y < 0 || y > 10000 {
			t.Fatalf("%q in %q is in the year %d", text, format, y)
		}
		if again, ok := p.parse(text); !ok || !again.Equal(at) {
			t.Fatalf("%q in %q is %v, then %v", text, format, at, again)
		}
	})
}
