package runners

import (
	"brine/internal/call/fn"
	actions "brine/internal/catalogue/actions/sdb"
)

func init() {
	runners.Register("sdb", func(Deps) fn.Module { return actions.Module("salt-run", false) })
}
