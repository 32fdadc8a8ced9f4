package key

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// canceller is a stdout that cancels the context when a question is printed.
type canceller struct {
	*bytes.Buffer
	cancel context.CancelFunc
}

func (c canceller) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if strings.Contains(c.String(), "Proceed?") {
		c.cancel()
	}
	return n, err
}

func cancelWhenAsked(t *testing.T, out *bytes.Buffer) (context.Context, canceller) {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return ctx, canceller{out, cancel}
}
