package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brine/internal/net/crypt"
	"brine/internal/net/transport"
)

// checker looks for what would go wrong at a start, beyond what the
// configuration itself says, and reports each.
type checker struct {
	w      io.Writer
	faults int
}

func (c *checker) fault(format string, args ...any) {
	c.faults++
	fmt.Fprintf(c.w, "error: "+format+"\n", args...)
}

func (c *checker) warn(format string, args ...any) {
	fmt.Fprintf(c.w, "warning: "+format+"\n", args...)
}

// key checks a private key, which is made at the first start if it is not
// there.
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

// directory checks that a directory can be written to, or made.
func (c *checker) folder(path string) {
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

// ports checks that what the master binds is free. running says that an
// instance runs, which will have them.
func (c *checker) ports(endpoints []transport.Endpoint, running bool) {
	for _, e := range endpoints {
		for _, addr := range []string{e.Publish, e.Requests} {
			l, err := net.Listen("tcp", addr)
			switch {
			case err == nil:
				l.Close()
			case running && errors.Is(err, syscall.EADDRINUSE):
			default:
				c.fault("%s cannot be bound for %s: %v", addr, e.Transport, errors.Unwrap(err))
			}
		}
	}
}

// lookupTime bounds the look-up of a master's name.
const lookupTime = 3 * time.Second

// masters checks that the names of masters have addresses. That they do not
// now need not be a fault.
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

// noted reports whether the pid file names a process that lives.
func noted(path, program string) bool {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > maxPID {
		return false
	}
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	return err == nil && runs(pid, program)
}
