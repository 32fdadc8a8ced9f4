package ws

import (
	"log/slog"
	"testing"

	"brine/internal/net/transport"
	"brine/internal/net/transport/transporttest"
)

func newTransport() transport.Transport { return New(slog.New(slog.DiscardHandler)) }

func TestTransport(t *testing.T) { transporttest.Run(t, newTransport) }

func TestTLS(t *testing.T) { transporttest.RunTLS(t, newTransport) }
