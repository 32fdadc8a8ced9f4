package fntest

import (
	"context"
	"errors"

	"brine/internal/call/fn"
)

// Templates implements fn.Templates by functions. A nil function returns an error.
type Templates struct {
	OfText func(ctx context.Context, t fn.Template) (string, error)
	OfData func(ctx context.Context, pipe string, t fn.Template) (any, error)
}

var errNoFunction = errors.New("this test renders no such template")

// Text implements fn.Templates.
func (x Templates) Text(ctx context.Context, _ *fn.Call, t fn.Template) (string, error) {
	if x.OfText == nil {
		return "", errNoFunction
	}
	return x.OfText(ctx, t)
}

// Data implements fn.Templates.
func (x Templates) Data(ctx context.Context, _ *fn.Call, pipe string, t fn.Template) (any, error) {
	if x.OfData == nil {
		return nil, errNoFunction
	}
	return x.OfData(ctx, pipe, t)
}
