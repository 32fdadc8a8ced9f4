package ha

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestTwice checks that commands that ran more often than they have minions are found.
func TestTwice(t *testing.T) {
	tr := &trial{ran: filepath.Join(t.TempDir(), "ran"), sent: map[string]*sent{"1": {minions: []string{"a", "b"}}, "2": {minions: []string{"a", "b"}}}}
	if err := os.WriteFile(tr.ran, []byte("1\n2\n1\n2\n3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tr.twice(); len(got) != 0 {
		t.Error(got)
	}
	if err := os.WriteFile(tr.ran, []byte("1\n2\n1\n2\n2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := tr.twice(); !slices.Equal(got, []string{"2 3"}) {
		t.Error(got)
	}
}
