package pillar

import (
	"context"
	"io/fs"
	"os"

	"brine/internal/call/fn"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// functions lets templates call functions.
type functions struct {
	reg  *fn.Registry
	call *fn.Call
}

func newFunctions(reg *fn.Registry, call *fn.Call) render.Functions { return functions{reg, call} }

func (f functions) Has(name string) bool { return f.reg.Has(name) }
func (f functions) Names() []string      { return f.reg.Names() }

func (f functions) Call(ctx context.Context, name string, args []any, kwargs *value.Dict) (any, error) {
	return f.reg.Call(ctx, f.call, name, args, kwargs)
}

// loader loads the templates that others import, below pillar_roots.
type loader struct{ files *fileserver.Server }

// local reads templates by absolute path below pillar_roots.
func (l loader) local(saltenv, path string) ([]byte, error) {
	f, ok := l.files.FindLocal(path, saltenv)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return os.ReadFile(f.Path)
}

// Load implements render.Loader.
func (l loader) Load(_ context.Context, saltenv, path string) ([]byte, error) {
	f, ok := l.files.Find("|"+path, saltenv)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return os.ReadFile(f.Path)
}
