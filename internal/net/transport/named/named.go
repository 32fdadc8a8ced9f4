// Package named returns transports by the values of the option transport.
package named

import (
	"log/slog"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/ws"
	"brine/internal/net/transport/zeromq"
)

// New returns the transport with a name; "" and detect mean zeromq, the default of Salt's masters.
func New(name string, log *slog.Logger) (transport.Transport, error) {
	switch name {
	case "", "zeromq", "detect":
		return zeromq.New(log), nil
	case "tcp":
		return tcp.New(log), nil
	case "ws":
		return ws.New(log), nil
	}
	return nil, salt.Errorf(salt.Invalid, "transport %q is unknown; use zeromq, tcp or ws", name)
}
