// Package named returns transports by the values of the option transport.
package named

import (
	"crypto/tls"
	"log/slog"

	"brine/internal/base/salt"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/ws"
	"brine/internal/net/transport/zeromq"
)

// Names are the values of the option. Salt's word detect means zeromq.
var Names = []string{"zeromq", "tcp", "ws", "detect"}

// ClientTLS returns the TLS configuration of a client by the options transport and ssl; nil if there is none, or
// the transport has no TLS.
func ClientTLS(name string, ssl any) (*tls.Config, error) {
	o, err := transport.ParseTLS(ssl)
	if err != nil || o == nil {
		return nil, err
	}
	t, err := New(name, slog.New(slog.DiscardHandler))
	if err != nil || !t.Traits().TLS {
		return nil, err
	}
	return transport.ClientTLS(*o)
}

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
