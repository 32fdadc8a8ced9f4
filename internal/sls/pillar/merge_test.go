package pillar

import (
	"testing"

	"brine/internal/py/value"
)

// TestMergeLists has the results of salt.utils.dictupdate.update with
// merge_lists: duplicates within the second list stay.
func TestMergeLists(t *testing.T) {
	a := value.DictOf("l", value.ListOf("a", "b", "b"), "d", value.DictOf("x", value.ListOf(int64(1))))
	b := value.DictOf("l", value.ListOf("c", "b", "c", nil, nil), "d", value.DictOf("x", value.ListOf(int64(1), int64(2), int64(2))))
	want := value.DictOf("l", value.ListOf("a", "b", "b", "c", "c", nil, nil), "d", value.DictOf("x", value.ListOf(int64(1), int64(2), int64(2))))
	if got := Merge(a, b, true); !value.Equal(got, want) {
		t.Errorf("got %s", value.Repr(got))
	}
	got, err := value.Merge(a, b, "recurse", "yaml", true)
	if err != nil || !value.Equal(got, want) {
		t.Errorf("value.Merge: %s, %v", value.Repr(got), err)
	}
}
