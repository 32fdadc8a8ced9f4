package log

import (
	"context"
	"log/slog"
	"sync"
)

// Held buffers the records of a program until it has read its configuration,
// which sets the level and the log file.
type Held struct {
	mu      sync.Mutex
	records []func(slog.Handler)
	to      slog.Handler // nil until Release
}

// Logger returns a logger whose records are buffered.
func (h *Held) Logger() *slog.Logger {
	return slog.New(&heldHandler{held: h, derive: func(to slog.Handler) slog.Handler { return to }})
}

// Release passes the buffered records to a handler, and later ones immediately.
// To drop them, release to slog.DiscardHandler.
func (h *Held) Release(to slog.Handler) {
	h.mu.Lock()
	records := h.records
	h.records, h.to = nil, to
	h.mu.Unlock()
	for _, pass := range records {
		pass(to)
	}
}

// heldHandler is a handler of Held with the attributes and groups of its
// logger.
type heldHandler struct {
	held   *Held
	derive func(slog.Handler) slog.Handler
}

// Enabled implements slog.Handler.
func (h *heldHandler) Enabled(ctx context.Context, l slog.Level) bool {
	h.held.mu.Lock()
	defer h.held.mu.Unlock()
	return h.held.to == nil || h.held.to.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *heldHandler) Handle(ctx context.Context, r slog.Record) error {
	h.held.mu.Lock()
	to := h.held.to
	if to == nil {
		r = r.Clone()
		h.held.records = append(h.held.records, func(to slog.Handler) {
			if to = h.derive(to); to.Enabled(context.Background(), r.Level) {
				_ = to.Handle(context.Background(), r) // slog formats errors in the same way
			}
		})
	}
	h.held.mu.Unlock()
	if to == nil {
		return nil
	}
	return h.derive(to).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *heldHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &heldHandler{h.held, func(to slog.Handler) slog.Handler { return h.derive(to).WithAttrs(attrs) }}
}

// WithGroup implements slog.Handler.
func (h *heldHandler) WithGroup(name string) slog.Handler {
	return &heldHandler{h.held, func(to slog.Handler) slog.Handler { return h.derive(to).WithGroup(name) }}
}
