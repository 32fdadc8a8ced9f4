package render

import (
	"context"

	"brine/internal/base/salt"
)

// Decrypt passes data, instead of a string, to one renderer such as gpg, which
// may modify it. Of req only Opts and Path are used.
func (r *Renderer) Decrypt(ctx context.Context, name string, data any, req Request) (any, error) {
	do, ok := steps.Lookup(name)
	if !ok {
		return nil, salt.Errorf(salt.Invalid, "Decryption renderer '%s' is not available", name)
	}
	return do(ctx, r, &req, data, "")
}
