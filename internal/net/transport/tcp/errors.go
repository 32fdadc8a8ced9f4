package tcp

import (
	"errors"
	"io"
	"net"
	"syscall"

	"brine/internal/base/salt"
)

var (
	errClosed = errors.New("closed")
	errSilent = errors.New("no sign of life for two heartbeats")
)

// isDisconnect reports whether err only means that a connection has ended.
func isDisconnect(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// lost returns the error that the user of a dialled connection gets.
func lost(addr string, err error) error {
	if errors.Is(err, io.EOF) {
		return salt.Errorf(salt.Unavailable, "connection to %s: closed by the peer: %w", addr, err)
	}
	return salt.Errorf(salt.Unavailable, "connection to %s: %w", addr, err)
}
