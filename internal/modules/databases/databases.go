// Package databases holds the execution modules that manage the servers of
// databases: mysql. It is a skin over remote.
package databases

import "brine/internal/fn"

// Modules returns the modules of this family.
func Modules() []fn.Module { return []fn.Module{mysqlModule()} }
