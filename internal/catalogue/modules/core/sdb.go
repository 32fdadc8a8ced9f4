package core

import (
	"brine/internal/call/fn"
	actions "brine/internal/catalogue/actions/sdb"
)

func init() {
	units.Declare("sdb", func() fn.Module { return actions.Module("salt '*'", true) })
}
