package refusal

import (
	"errors"
	"fmt"
	"testing"

	"brine/internal/py/value"
)

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name string
		d    *value.Dict
		want Code
	}{
		{"the code decides, not the text", value.DictOf("code", "clock", "reason", "x "+TextNotMember), Clock},
		{"a code of a newer version", value.DictOf("code", "moon", "reason", TextNotMember), "moon"},
		{"an empty code", value.DictOf("code", "", "reason", TextNotMember), ""},
		{"a code that is not a string", value.DictOf("code", 7, "reason", TextNotMember), ""},
		{"an old member: unknown there", value.DictOf("reason", `"b" is no member of the cluster (any more) in the eyes of a`), NotMember},
		{"an old member: clock", value.DictOf("reason", "the clock of b is 9s behind that of a; at most 5s are allowed: synchronize both with NTP"), Clock},
		{"an old member: shared directory",
			value.DictOf("reason", "b still shares a folder that others have left: stop it, run brine cluster unshare there, and start it"), Shares},
		{"an old member: anything else", value.DictOf("reason", "b was removed from the cluster"), Other},
		{"nothing", value.DictOf(), Other},
	} {
		if got := Read(c.d).Refusal().Code; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestRoundTrip: code and text arrive, and the text contains the parts by which releases without codes decide.
func TestRoundTrip(t *testing.T) {
	e := New(NotMember, "%q %s of a", "b", TextNotMember)
	got := Read(e.Dict()).Refusal()
	if *got != *e {
		t.Errorf("%+v, want %+v", got, e)
	}
	if codeOfText(got.From("a").Reason) != NotMember {
		t.Errorf("an old member cannot read %q", got.From("a").Reason)
	}
}

// TestSigned: only a receiver that knows codes gets a signature that covers the code.
func TestSigned(t *testing.T) {
	e := New(Clock, "late")
	if got := fmt.Sprintf("%s", e.Signed(0)); got != "[late]" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%s", e.Signed(Version)); got != "[late clock]" {
		t.Error(got)
	}
}

func TestIs(t *testing.T) {
	err := fmt.Errorf("TLS: %w", errors.Join(New(Clock, "late"), nil))
	if !Is(err, Clock) || Is(err, Key) || Is(errors.New("late"), Clock) || Is(nil, Clock) {
		t.Error("a code is not found in an error")
	}
}
