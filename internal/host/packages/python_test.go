package packages

import "testing"

func TestComparePython(t *testing.T) {
	order := []string{"0.9", "1.0.dev3", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.2", "1.10", "2"}
	for i, a := range order {
		for j, b := range order {
			if got := ComparePython(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s and %s compare as %d", a, b, got)
			}
		}
	}
	if c := ComparePython("1.0.0", "1"); c != 0 {
		t.Errorf("1.0.0 and 1 compare as %d", c)
	}
}
