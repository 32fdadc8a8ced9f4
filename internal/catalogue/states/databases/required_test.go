package databases

import "testing"

// TestGrantNamesTheFirstMissingArgument fails if errors follow the random order of a map.
func TestGrantNamesTheFirstMissingArgument(t *testing.T) {
	for range 50 {
		if err := (grantArgs{}).complete(); err == nil || err.Error() != "grant must be given" {
			t.Fatal(err)
		}
	}
}
