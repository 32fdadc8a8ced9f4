// Package interop tests Brine and stock Salt daemons together, if the environment says where to
// find Salt (see daemontest).
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

// stockLimit is the minimum timeout of tests with stock daemons, which are slow to start.
const stockLimit = 3 * time.Minute
