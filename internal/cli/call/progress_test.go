package call

import (
	"strings"
	"testing"

	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

func TestProgressLine(t *testing.T) {
	var b strings.Builder
	p := &progress{Line: frame.NewLine(&b, 40)}
	low := value.DictOf("state", "test", "fun", "nop", "__id__", "an id\x1b[2J\nof some length, and more")
	p.Started(low)
	p.Done(low, value.DictOf("result", true, "changes", value.DictOf("a", 1)), 1, 3)
	p.Started(low)
	p.Done(low, value.DictOf("result", false, "changes", value.NewDict(0)), 2, 3)
	p.Started(low)
	p.Done(low, value.DictOf("result", true, "changes", value.NewDict(0)), 3, 3)
	want := "\r\x1b[Krunning: test.nop an id [2J of some len\r" +
		"\r\x1b[K2/3, 1 changed: test.nop an id [2J of s\r" +
		"\r\x1b[K3/3, 1 changed, 1 failed: test.nop an i\r" +
		"\r\x1b[K"
	if b.String() != want {
		t.Errorf("got\n%q\nwant\n%q", b.String(), want)
	}
	p.Clear()
	if b.String() != want {
		t.Error("an empty line is cleared again")
	}
}
