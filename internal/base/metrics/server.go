package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
)

// Options are the options of metrics.
type Options struct {
	Address string `salt:"metrics_address" default:"" doc:"address and port where this daemon serves /metrics for Prometheus, /livez and /readyz, without a password; without a host, as in :9175, on loopback only; empty: off (Brine only)" change:"restart"`
}

// Check returns an error of kind Invalid for an address that cannot be used.
func (o *Options) Check() error { return Check("metrics_address", o.Address) }

// Check returns an error of kind Invalid if the address in an option cannot be used.
func Check(option, address string) error {
	_, err := listenAddress(option, address)
	return err
}

// listenAddress returns the address to bind, "" for none.
func listenAddress(option, address string) (string, error) {
	if address == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(address)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil {
		return "", salt.Errorf(salt.Invalid, "option %s: %q is not an address with a port, such as 127.0.0.1:9175", option, address)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}

// Daemon is what a daemon reports about itself.
type Daemon interface {
	// Metrics writes the daemon's metrics.
	Metrics(p *Page)
	// CheckLive returns an error if the daemon hangs and only a restart can help.
	CheckLive(ctx context.Context) error
	// CheckReady returns an error if the daemon cannot do its work now, for example
	// without its master or its disk.
	CheckReady(ctx context.Context) error
}

// Server serves the metrics and the health of a daemon.
type Server struct {
	addr    string
	program string
	daemon  Daemon
	log     *slog.Logger

	bound chan struct{} // closed after lis is set
	lis   net.Listener

	page, live, ready cached

	pause time.Duration // bindPause, except in tests
}

// New returns a server, nil without an address. program is the daemon's name.
func New(address, program string, d Daemon, log *slog.Logger) (*Server, error) {
	addr, err := listenAddress("metrics_address", address)
	if err != nil || addr == "" {
		return nil, err
	}
	return &Server{
		addr: addr, program: program, daemon: d, log: log, bound: make(chan struct{}), live: cached{limit: checkTime}, ready: cached{limit: checkTime},
		pause: bindPause,
	}, nil
}

// Serve serves the metrics of a daemon until the returned function is called. It does
// nothing without an address. Check must have accepted the address.
func Serve(address, program string, d Daemon, log *slog.Logger) (stop func()) {
	s, err := New(address, program, d, log)
	if err != nil {
		log.Error("cannot serve metrics", "err", err)
	}
	if s == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// Bounds of what readers can cost.
const (
	// age is how long an answer is cached: during that time, any number of readers cost
	// one page and one check.
	age = time.Second
	// maxReaders bounds the connections.
	maxReaders = 64
	// checkTime bounds a health check.
	checkTime = 5 * time.Second
	// bindPause is the time between attempts to bind the address.
	bindPause = 5 * time.Second
)

// Run serves until ctx ends. It retries if the address cannot be bound: a former
// process may still use it, and a daemon can do its work without metrics.
func (s *Server) Run(ctx context.Context) {
	for said := false; s.lis == nil; {
		lis, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
		if err == nil {
			s.lis = lis
			break
		}
		if !said {
			s.log.Error("cannot serve metrics; trying again", "address", s.addr, "err", err)
		}
		said = true
		if !wait.Sleep(ctx, s.pause) {
			return
		}
	}
	close(s.bound)
	srv := &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	s.log.Info("metrics listening", "address", "http://"+s.lis.Addr().String()+"/metrics")
	if err := srv.Serve(&bounded{Listener: s.lis, slots: make(chan struct{}, maxReaders)}); !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("metrics stopped", "err", err)
	}
}

// Addr waits until the address is bound and returns it, nil if ctx ends before.
func (s *Server) Addr(ctx context.Context) net.Addr {
	select {
	case <-s.bound:
		return s.lis.Addr()
	case <-ctx.Done():
		return nil
	}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		a := s.page.get(func() answer { return answer{http.StatusOK, s.Page()} })
		w.Header().Set("Content-Type", Type)
		w.Write(a.body)
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { s.live.send(w, s.daemon.CheckLive) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { s.ready.send(w, s.daemon.CheckReady) })
	return s.local(mux)
}

// Page returns the page of the daemon.
func (s *Server) Page() []byte {
	var p Page
	process(&p, s.program)
	s.daemon.Metrics(&p)
	return p.Bytes()
}

// local rejects requests for other hosts if the address is on loopback. A browser on
// this machine sends such requests for web pages of other hosts.
func (s *Server) local(h http.Handler) http.Handler {
	host, _, _ := net.SplitHostPort(s.addr)
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if ip := net.ParseIP(strings.Trim(host, "[]")); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			http.Error(w, "served only to requests from this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// answer is the response to a reader.
type answer struct {
	status int
	body   []byte
}

// cached caches an answer briefly. Concurrent readers wait for one answer.
type cached struct {
	mu      sync.Mutex
	at      time.Time
	last    answer
	pending chan error    // result of a check that exceeded its limit
	limit   time.Duration // timeout of a check
}

func (c *cached) get(make func() answer) answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= age {
		c.last = make()
		c.at = time.Now()
	}
	return c.last
}

// check returns the result of a check, which may hang with the daemon.
func (c *cached) check(check func(context.Context) error) answer {
	return c.get(func() answer {
		ctx, cancel := context.WithTimeout(context.Background(), c.limit)
		defer cancel()
		if c.pending == nil {
			done := make(chan error, 1)
			go func() { done <- check(ctx) }()
			c.pending = done
		}
		var err error
		select {
		case err = <-c.pending:
			c.pending = nil
		case <-ctx.Done():
			err = fmt.Errorf("no answer within %v", c.limit)
		}
		if err != nil {
			return answer{http.StatusServiceUnavailable, []byte(err.Error() + "\n")}
		}
		return answer{http.StatusOK, []byte("ok\n")}
	})
}

func (c *cached) send(w http.ResponseWriter, check func(context.Context) error) {
	a := c.check(check)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(a.status)
	w.Write(a.body)
}

// bounded closes connections beyond its limit immediately.
type bounded struct {
	net.Listener
	slots chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case b.slots <- struct{}{}:
			return &slotted{Conn: c, free: func() { <-b.slots }}, nil
		default:
			c.Close()
		}
	}
}

type slotted struct {
	net.Conn
	once sync.Once
	free func()
}

func (c *slotted) Close() error {
	defer c.once.Do(c.free)
	return c.Conn.Close()
}
