package master

import (
	"context"

	"brine/internal/base/liveness"
	"brine/internal/net/channel"
	"brine/internal/net/transport"
	transports "brine/internal/net/transport/named"
)

// askItself returns the question whether the request server of a transport answers.
func askItself(l *Listen, s transport.RequestServer, ssl any) (*liveness.Question, error) {
	name := l.Transport.Name()
	conf, err := transports.ClientTLS(name, ssl)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) error {
		body, err := channel.PingRequest()
		if err != nil {
			return err
		}
		r := l.Transport.NewRequester(s.Addr().String(), transport.DialOptions{TLS: conf, MaxMessage: 1 << 10, DialTimeout: liveness.AnswerTime})
		defer r.Close()
		_, err = r.Request(ctx, body)
		return err
	}
	return &liveness.Question{What: "the request server of the master (" + name + ")", Ask: ask, Limit: liveness.AnswerTime}, nil
}
