package zeromq

import (
	"log/slog"
	"testing"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestConformance(t *testing.T) {
	transporttest.Run(t, func() transport.Transport { return New(quiet()) })
}
