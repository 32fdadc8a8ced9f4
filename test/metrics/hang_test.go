package metrics

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/tools"
)

// logPipe is a named pipe to which a daemon logs, as to a log service: it hangs when it is no longer read.
type logPipe struct {
	t    *testing.T
	path string
	fd   int
	stop chan struct{}
	done chan struct{}
}

func newLogPipe(t *testing.T) *logPipe {
	t.Helper()
	p := &logPipe{t: t, path: filepath.Join(daemontest.ShortDir(t), "log")}
	if err := syscall.Mkfifo(p.path, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.fd, err = syscall.Open(p.path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	p.read()
	t.Cleanup(func() { syscall.Close(p.fd) })
	return p
}

// read reads what the daemon logs until hang is called.
func (p *logPipe) read() {
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.done)
		b := make([]byte, 64<<10)
		for {
			select {
			case <-p.stop:
				return
			default:
			}
			if n, err := syscall.Read(p.fd, b); n <= 0 || err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}()
}

// hang stops reading and fills the pipe, so that the next message blocks its writer.
func (p *logPipe) hang() {
	p.t.Helper()
	close(p.stop)
	<-p.done
	for _, size := range []int{4096, 1} {
		for {
			if _, err := syscall.Write(p.fd, make([]byte, size)); errors.Is(err, syscall.EAGAIN) {
				break
			} else if err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

// TestHang blocks one part of each running daemon by a log that is no longer read: the periodic work of a master, the
// schedule of a minion, and the listener of salt-api. Its /livez fails and the messages to the service manager's
// watchdog end, and both come back with the log.
func TestHang(t *testing.T) {
	tools.Slow(t)
	t.Parallel()
	program := daemontest.WithFile(t, `package main

import (
	"time"

	"brine/internal/base/liveness"
)

func init() { liveness.StepTime, liveness.AnswerTime = 2*time.Second, 2*time.Second }
`)
	host, second := daemontest.Host(), daemontest.Host()
	m := daemontest.NewMaster(t, brine, "master", host, fmt.Sprintf("auto_accept: true\nmetrics_address: %[1]s:%[2]d\napi_metrics_address: %[3]s:%[2]d\n"+
		"rest_cherrypy: {port: %[4]d, host: %[1]s, disable_ssl: true, max_connections: 1}\n", host, port, second, port+3))
	// This job is due each second, but only one may run: the schedule logs that it skips the others.
	third := daemontest.Host()
	began := filepath.Join(t.TempDir(), "began")
	w := daemontest.NewMinion(t, brine, "w1", []string{host}, fmt.Sprintf("metrics_address: %s:%d\n"+
		"schedule: {long: {function: cmd.run, args: ['touch %s; exec sleep 1000'], seconds: 1, maxrunning: 1, run_on_start: true}}\n", third, port, began))
	for _, c := range []struct {
		name   string
		d      *node
		health reader
		part   string
		// works reports whether the part works, block makes it log something.
		works func() bool
		block func()
	}{
		{"master", m, reader(host), "the periodic work of the master", func() bool { return true }, func() {
			m.Write("var/cache/salt/master/.dfn", "master") // a request for another AES key
			if err := os.Chmod(m.Path("var/cache/salt/master/.dfn"), 0o400); err != nil {
				t.Fatal(err)
			}
		}},
		{"minion", w, reader(third), "the schedule", func() bool {
			_, err := os.Stat(began)
			return err == nil
		}, func() {}},
		{"api", daemontest.NewAPI(m), reader(second), "the HTTP server of salt-api", func() bool { return true }, func() {
			for range 80 { // more than max_connections and what this machine may have beside: it logs that it closes the oldest one
				conn, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(port+3)))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
			}
		}},
	} {
		log := newLogPipe(t)
		notify := filepath.Join(daemontest.ShortDir(t), "notify")
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notify, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var heard atomic.Int64
		go func() {
			buf := make([]byte, 100)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if string(buf[:n]) == "WATCHDOG=1" {
					heard.Add(1)
				}
			}
		}()
		c.d.Within = []string{"env", "NOTIFY_SOCKET=" + notify, "WATCHDOG_USEC=300000", "sh", "-c",
			`shift; exec "` + program + `" "$@" >"` + log.path + `" 2>&1`, "sh"}
		c.d.Launch()
		beats := func(about string) {
			t.Helper()
			from := heard.Load()
			eventually.True(t, c.name+": messages to the watchdog "+about, func() bool { return heard.Load() > from+2 })
		}
		c.health.health(t, c.name+" lives", "/livez", 200, "")
		beats("at first")
		eventually.True(t, c.name+" works", c.works)

		log.hang()
		c.block()
		c.health.health(t, c.name+" hangs", "/livez", 503, c.part+" has hung since")
		eventually.True(t, c.name+": no messages to the watchdog while it hangs", func() bool {
			before := heard.Load()
			time.Sleep(time.Second) // ten of its intervals
			return heard.Load() == before
		})
		if !c.d.Alive() {
			t.Errorf("%s has ended", c.name)
		}

		log.read()
		c.health.health(t, c.name+" lives again", "/livez", 200, "")
		beats("after that")
		defer func() { close(log.stop); <-log.done }()
	}
}
