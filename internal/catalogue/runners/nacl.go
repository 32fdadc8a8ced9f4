package runners

import (
	"context"

	"brine/internal/call/fn"
	"brine/internal/catalogue/actions/naclboxes"
)

func init() {
	runners.Register("nacl", func(Deps) fn.Module {
		read := func(_ context.Context, _ *fn.Call, name string) ([]byte, error) { return naclboxes.ReadLocal(name) }
		return naclboxes.Module(naclboxes.Boxes{Command: "salt-run", Read: read})
	})
}
