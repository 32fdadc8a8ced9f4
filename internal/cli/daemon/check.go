package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
)

// checker finds and reports problems that would make a start fail and that the configuration alone
// does not show.
type checker struct {
	w      io.Writer
	faults int
	// broken counts the parts that do not work, without which the daemon starts.
	broken atomic.Int64
}

// logger returns a logger that logs to log and counts errors as broken parts.
func (c *checker) logger(log *slog.Logger) *slog.Logger {
	return slog.New(countErrors{log.Handler(), &c.broken})
}

// countErrors counts the records of level ERROR and above.
type countErrors struct {
	slog.Handler
	n *atomic.Int64
}

// Enabled implements slog.Handler.
func (h countErrors) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h countErrors) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError {
		h.n.Add(1)
	}
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h countErrors) WithAttrs(attrs []slog.Attr) slog.Handler {
	return countErrors{h.Handler.WithAttrs(attrs), h.n}
}

// WithGroup implements slog.Handler.
func (h countErrors) WithGroup(name string) slog.Handler {
	return countErrors{h.Handler.WithGroup(name), h.n}
}

func (c *checker) fault(format string, args ...any) {
	c.faults++
	fmt.Fprintf(c.w, "error: "+format+"\n", args...)
}

func (c *checker) warn(format string, args ...any) {
	fmt.Fprintf(c.w, "warning: "+format+"\n", args...)
}

// key checks a private key, if it exists; the first start creates it.
func (c *checker) key(path, passphrase string) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	warning, err := crypt.CheckOwn(path, passphrase)
	if err != nil {
		c.fault("the private key cannot be used: %v", err)
	}
	if warning != "" {
		c.warn("%s", warning)
	}
}

// directory checks that a directory can be written or created.
func (c *checker) directory(path string) {
	for {
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path:
			path = filepath.Dir(path)
			continue
		case err != nil:
			c.fault("%v", err)
		case !st.IsDir():
			c.fault("%s is not a directory", path)
		case syscall.Access(path, 2) != nil:
			c.fault("the directory %s is not open to this user for writing", path)
		}
		return
	}
}

// ports checks that the ports of the master are free. running means that an instance is running and
// uses them.
func (c *checker) ports(endpoints []transport.Endpoint, running bool) {
	for _, e := range endpoints {
		for i, addr := range []string{e.Publish, e.Requests} {
			l, err := net.Listen("tcp", addr)
			switch {
			case err == nil:
				l.Close()
			case running && errors.Is(err, syscall.EADDRINUSE):
			default:
				c.fault("interface, %s: %s cannot be bound for %s: %v", []string{"publish_port", "ret_port"}[i], addr, e.Transport, errors.Unwrap(err))
			}
		}
	}
}

// served checks that the address where the daemon serves metrics or profiles can be bound. A daemon
// starts without them. running means that an instance is running and uses the address.
func (c *checker) served(option, address string, running bool) {
	if address == "" {
		return
	}
	if strings.HasPrefix(address, ":") {
		address = "127.0.0.1" + address
	}
	l, err := net.Listen("tcp", address)
	switch {
	case err == nil:
		l.Close()
	case running && errors.Is(err, syscall.EADDRINUSE):
	default:
		c.broken.Add(1)
		c.warn("%s: the daemon would start, but cannot serve %s: %v", option, address, err)
	}
}

// lookupTime is the timeout for the lookup of a master's name.
const lookupTime = 3 * time.Second

// masters checks that the names of masters resolve. A failure is only a warning, since it may be
// temporary.
func (c *checker) masters(ctx context.Context, names []string) {
	for _, name := range names {
		host := name
		if h, _, err := net.SplitHostPort(name); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		limited, cancel := context.WithTimeout(ctx, lookupTime)
		_, err := net.DefaultResolver.LookupHost(limited, host)
		cancel()
		if err != nil {
			c.warn("the master %s has no address at present: %v", host, err)
		}
	}
}

// noted reports whether the pid file names a running process of the program.
func noted(path, program string) bool {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > maxPID {
		return false
	}
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	return err == nil && runs(pid, program)
}
