// Package profile serves CPU and memory profiles of a running daemon for go
// tool pprof. It is off unless an address is set, and listens on loopback only,
// because profiles reveal internals and cost time.
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

// Options are the options of profiling.
type Options struct {
	Address string `salt:"profiling_address" default:"" doc:"loopback address and port where this daemon serves profiles for go tool pprof, such as 127.0.0.1:6060; empty: off (Brine only)" change:"restart"`
}

// Check returns an error of kind Invalid if the address is not on loopback.
func (o *Options) Check() error {
	if o.Address == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.Address)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return salt.Errorf(salt.Invalid, "option profiling_address: %q is not a loopback address with a port, such as 127.0.0.1:6060", o.Address)
	}
	return nil
}

// Server serves profiles of its own process.
type Server struct {
	lis net.Listener
	log *slog.Logger
}

// New binds the address. It returns nil if none is set. The error is of kind
// Invalid if the address is not on loopback.
func New(o Options, log *slog.Logger) (*Server, error) {
	if o.Address == "" {
		return nil, nil
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("option profiling_address: %w", err)
	}
	return &Server{lis: lis, log: log}, nil
}

// Addr returns the bound address.
func (s *Server) Addr() net.Addr { return s.lis.Addr() }

// Close closes a server whose Run was never called.
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
	s.log.Info("pprof listening", "address", "http://"+s.lis.Addr().String()+"/debug/pprof/")
	if err := srv.Serve(s.lis); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("cannot serve profiles: %w", err)
	}
	return nil
}

// local rejects requests whose Host is not loopback. A browser on this machine
// sends such requests for web pages of other hosts.
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "served only to requests from this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
