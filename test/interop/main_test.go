// Package interop sets real daemons against each other: Brine's, and stock
// Salt's where the environment says where to find it (see daemontest).
package interop

import (
	"testing"
	"time"

	"brine/test/daemontest"
)

func TestMain(m *testing.M) { daemontest.Main(m) }

type (
	kind = daemontest.Kind
	node = daemontest.Node
)

const (
	brine = daemontest.Brine
	stock = daemontest.Stock
)

func newMaster(t *testing.T, k kind, name, host, more string) *node {
	t.Helper()
	return daemontest.NewMaster(t, k, name, host, more)
}

func newMinion(t *testing.T, k kind, id string, masters []string, more string) *node {
	t.Helper()
	return daemontest.NewMinion(t, k, id, masters, more)
}

func stockTree(t *testing.T) string {
	t.Helper()
	return daemontest.StockTree(t)
}

// stockLimit is at least how long a test waits: stock daemons are slow to start.
const stockLimit = 3 * time.Minute
