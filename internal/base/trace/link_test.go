package trace

import "testing"

// TestLink: a link is read as it was written, and anything else is no link.
func TestLink(t *testing.T) {
	l := Link{"20260101120000000000", OfRun("20260101120000000000")}
	if got := ParseLink(l.String()); got != l {
		t.Errorf("%v instead of %v", got, l)
	}
	for _, s := range []string{"", "/", l.Root, l.Root + "/", l.String() + "0", "x/" + l.String()[21:], l.Root + "/zzzzzzzzzzzzzzzz", "../" + l.String()} {
		if got := ParseLink(s); got != (Link{}) {
			t.Errorf("%q is %v", s, got)
		}
	}
	if got := From(With(t.Context(), l)); got != l || From(t.Context()) != (Link{}) {
		t.Errorf("in a context: %v", got)
	}
}
