package cluster

import (
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/ha/cluster/keys"
)

// markPath returns the file that marks a master as a Brine master in a shared directory before the first
// connection.
func markPath(pkiDir, id string) string {
	return filepath.Join(pkiDir, keys.PeersDir, "."+id+".brine")
}

// announce writes the mark of a master. The master removes it when it stops, since a stock master may
// replace it.
func announce(pkiDir, id string) error {
	return atomicfile.Write(markPath(pkiDir, id), nil, 0o644, false)
}
