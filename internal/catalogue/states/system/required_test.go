package system

import "testing"

// TestMountNamesTheFirstMissingArgument fails if errors follow the random order of a map.
func TestMountNamesTheFirstMissingArgument(t *testing.T) {
	for range 50 {
		if _, err := mounted(t.Context(), nil, mountedArgs{}); err == nil || err.Error() != "Must provide name to mount.mounted" {
			t.Fatal(err)
		}
	}
}
