package interop

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVersions combines Brine with further versions of Salt, as master and as minion.
// BRINE_STOCK_SALTS names their source trees, separated by colons.
func TestVersions(t *testing.T) {
	trees := filepath.SplitList(os.Getenv("BRINE_STOCK_SALTS"))
	if len(trees) == 0 {
		t.Skip("BRINE_STOCK_SALTS does not name source trees of further versions of Salt, as in /opt/salt-3006.9:/opt/salt-3008.0")
	}
	for _, tree := range trees {
		b, err := os.ReadFile(filepath.Join(tree, "salt", "_version.txt"))
		if err != nil {
			t.Errorf("no source tree of Salt: %v", err)
			continue
		}
		for _, transport := range []string{"zeromq", "tcp"} { // 3006 has no ws
			for _, p := range []struct{ master, minion kind }{{brine, stock}, {stock, brine}} {
				t.Run(fmt.Sprintf("%s/%s/%s-master", strings.TrimSpace(string(b)), transport, p.master), func(t *testing.T) {
					t.Setenv("BRINE_STOCK_SALT", tree)
					testPair(t, p.master, p.minion, transport)
				})
			}
		}
	}
}
