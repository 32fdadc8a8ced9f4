package netserve

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"brine/internal/base/salt"
)

// keepAliveIdle is Salt's default of tcp_keepalive_idle.
const keepAliveIdle = 300 * time.Second

// KeepAlive replaces the zero value of the option by Salt's defaults: on, 300 s idle, and the
// system's own interval and count. A configuration with Enable false and any other field set means
// off.
func KeepAlive(c net.KeepAliveConfig) net.KeepAliveConfig {
	if c == (net.KeepAliveConfig{}) {
		return net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: -1, Count: -1}
	}
	return c
}

// Listen binds addr (host:port or [v6]:port) for TCP. An error names the address and the option of
// the port, so that it says what to change; its kind is Unavailable or, for an unusable address,
// Invalid.
func Listen(addr, option string, ka net.KeepAliveConfig) (net.Listener, error) {
	lc := net.ListenConfig{KeepAliveConfig: KeepAlive(ka)}
	if !lc.KeepAliveConfig.Enable {
		lc.KeepAlive = -1 // otherwise the net package sets its own default
	}
	// Multipath sockets are slower and have no benefit here.
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(context.Background(), "tcp", addr)
	switch {
	case err == nil:
		return l, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, salt.Errorf(salt.Unavailable,
			"cannot listen on %s (option %s): the address is in use; check for another running master: %w", addr, option, cause(err))
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, salt.Errorf(salt.Invalid,
			"cannot listen on %s (options interface, %s): this machine does not have that address: %w", addr, option, cause(err))
	case errors.Is(err, syscall.EACCES):
		return nil, salt.Errorf(salt.Denied, "cannot listen on %s (option %s): %w", addr, option, cause(err))
	}
	return nil, salt.Errorf(salt.Invalid, "cannot listen on %s (options interface, %s): %w", addr, option, cause(err))
}

// cause strips the address that the net package puts before the reason.
func cause(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}
