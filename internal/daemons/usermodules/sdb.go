package usermodules

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// SDBKinds are the kinds that a helper loads for drivers of sdb:// references while the configuration is
// read.
var SDBKinds = []string{kindSDB, kindModules, "utils", "serializers"}

// SDB are the user's drivers for sdb:// references. They get the functions of the call.
func (m *Modules) SDB() SDB { return SDB{m, false} }

// SDBOfRunners are those for runners, in which drivers get execution functions as elsewhere.
func (m *Modules) SDBOfRunners() SDB { return SDB{m, true} }

// SDB implements fn.SDB.
type SDB struct {
	m       *Modules
	runners bool
}

// Has implements fn.SDB. It reads the source of the module only.
func (s SDB) Has(driver string) bool { return s.m != nil && s.m.has(kindSDB, driver) }

// Call implements fn.SDB.
func (s SDB) Call(ctx context.Context, c *fn.Call, driver, function string, args []any, profile *value.Dict) (any, error) {
	if s.runners {
		c = s.m.call()
	}
	v, _, err := s.m.pool.Call(ctx, s.m.env(c, nil), kindSDB, driver+"."+function, args, value.DictOf("profile", profile))
	return v, err
}
