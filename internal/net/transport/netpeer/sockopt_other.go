//go:build !linux

package netpeer

import (
	"net"
	"syscall"
	"time"
)

func setUserTimeout(*net.TCPConn, time.Duration) {}

func reuseAddr(_, _ string, _ syscall.RawConn) error { return nil }
