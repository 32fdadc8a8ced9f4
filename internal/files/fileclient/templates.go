package fileclient

import (
	"context"
	"io/fs"

	"brine/internal/base/salt"
)

// Templates loads the files that a template imports.
type Templates struct{ Files reader }

// reader reads a file of a file server.
type reader interface {
	Read(ctx context.Context, url, saltenv string) ([]byte, error)
}

// Load implements render.Loader.
func (t Templates) Load(ctx context.Context, saltenv, path string) ([]byte, error) {
	b, err := t.Files.Read(ctx, URL("|"+path), saltenv)
	if err != nil && salt.KindOf(err) == salt.NotFound {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return b, err
}
