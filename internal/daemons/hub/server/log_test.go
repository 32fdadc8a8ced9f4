package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"brine/internal/base/ratelimit"
)

// TestNatsLog: what clients repeat over further connections is logged once.
func TestNatsLog(t *testing.T) {
	var out bytes.Buffer
	l := &natsLog{log: slog.New(slog.NewTextHandler(&out, nil)), causes: ratelimit.Keys{Most: 10, Every: time.Hour}}
	for _, port := range []string{"4000", "4001"} {
		l.Errorf(`127.0.0.1:%s - cid:%s - "v1.55.0:go:us" - Publish Violation - Subject "brine.up.us"`, port, port)
		l.Errorf("127.0.0.1:%s - cid:%s - TLS handshake error: read tcp 127.0.0.1:4515->127.0.0.1:%[1]s: read: connection reset by peer", port, port)
		l.Errorf("the disk is full")
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
