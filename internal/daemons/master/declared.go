package master

import (
	"sync"

	"brine/internal/call/fn"
	"brine/internal/catalogue"
	"brine/internal/catalogue/states/orchestration"
	"brine/internal/daemons/minion"
	"brine/internal/sls/state"
)

// declared has the functions of minions, for documentation. It is built at first use. Where several
// modules have one name, it has the one for the master's machine.
type declared struct {
	grains fn.Reader

	once sync.Once
	all  *fn.Registry
	err  error
}

// functions returns the functions that minions run, or those of another kind.
func (d *declared) functions(kind string) (*fn.Registry, error) {
	d.once.Do(func() { d.err = d.build() })
	if d.err != nil || kind == "" {
		return d.all, d.err
	}
	return d.all.Kind(kind), nil
}

func (d *declared) build() error {
	states, err := state.NewRegistry(d.grains, catalogue.States(orchestration.Deps{})...)
	if err != nil {
		return err
	}
	if d.all, err = fn.NewRegistry(d.grains, minion.Catalogue()...); err != nil {
		return err
	}
	d.all.Document("states", states.Declarations)
	return nil
}
