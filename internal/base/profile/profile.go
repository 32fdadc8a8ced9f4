// Package profile lets a running daemon be looked into: where its time and its
// memory go, by the tools that come with Go (go tool pprof). It is off unless
// an address is set, and listens on loopback only, because a profile tells
// much and taking one costs time.
package profile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"brine/internal/base/salt"
)

// Options say where profiles can be had.
type Options struct {
	Address string `salt:"profiling_address" default:"" doc:"loopback address and port at which go tool pprof finds profiles of this daemon, such as 127.0.0.1:6060; empty: nowhere (Brine only)" change:"restart"`
}

// Server gives out profiles of its own process.
type Server struct {
	lis net.Listener
	log *slog.Logger
}

// New binds the address. It returns nil if there is none. The error is of kind
// Invalid if the address is not on loopback.
func New(o Options, log *slog.Logger) (*Server, error) {
	if o.Address == "" {
		return nil, nil
	}
	host, _, err := net.SplitHostPort(o.Address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, salt.Errorf(salt.Invalid, "option profiling_address: %q is not a loopback address with a port, such as 127.0.0.1:6060", o.Address)
	}
	lis, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("option profiling_address: %w", err)
	}
	return &Server{lis: lis, log: log}, nil
}

// Addr is the bound address.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Close unbinds a server whose Run was never called.
func (s *Server) Close() error { return s.lis.Close() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	srv := &http.Server{Handler: local(mux), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	s.log.Info("profiles can be had", "address", "http://"+s.lis.Addr().String()+"/debug/pprof/")
	if err := srv.Serve(s.lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot give out profiles: %w", err)
	}
	return nil
}

// local refuses what a web page of another host has a browser on this machine
// ask for: such a request carries that host's name.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
