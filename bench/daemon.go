package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"brine/bench/simulate"
	"brine/bench/system"
	"brine/internal/host/freeport"
	"brine/internal/net/event"
	"brine/internal/net/transport"
	"brine/internal/net/transport/tcp"
	"brine/internal/net/transport/zeromq"
)

// kind is the implementation that is measured.
type kind string

const (
	brine kind = "brine"
	stock kind = "stock"
)

// programs are the locations of the programs of each kind.
type programs struct {
	brine  string // directory of Brine's programs
	tree   string // source tree of stock Salt, "" if there is none
	python string
}

func (p programs) command(ctx context.Context, k kind, program string, args ...string) *exec.Cmd {
	if k == brine {
		return exec.CommandContext(ctx, filepath.Join(p.brine, program), args...)
	}
	c := exec.CommandContext(ctx, p.python, append([]string{"-W", "ignore", filepath.Join(p.tree, "scripts", program)}, args...)...)
	c.Env = append(os.Environ(), "PYTHONPATH="+p.tree)
	return c
}

// daemon is one running salt-master or salt-minion.
type daemon struct {
	programs
	kind kind
	dir  string
	cmd  *exec.Cmd
	done chan struct{}
	log  *os.File
}

func (d *daemon) start(ctx context.Context, program string) (err error) {
	if d.log, err = os.OpenFile(filepath.Join(d.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	// Not bound to ctx: stop terminates it regularly.
	d.cmd = d.command(context.WithoutCancel(ctx), d.kind, program, "-c", d.dir, "-l", "error")
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.done = make(chan struct{})
	go func() {
		d.cmd.Wait()
		close(d.done)
	}()
	return nil
}

// stop ends the daemon and all its processes.
func (d *daemon) stop() {
	if d.cmd == nil {
		return
	}
	d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.done:
	case <-time.After(10 * time.Second):
	}
	syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) // the rest of its process group
	<-d.done
	d.log.Close()
	d.cmd = nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

func (d *daemon) ended() error {
	select {
	case <-d.done:
		b, _ := os.ReadFile(d.log.Name())
		return fmt.Errorf("the daemon ended: %s", bytes.TrimSpace(b[max(0, len(b)-2000):]))
	default:
		return nil
	}
}

// complaints returns the log of the daemon, which contains only errors.
func (d *daemon) complaints() string {
	b, _ := os.ReadFile(filepath.Join(d.dir, "stderr"))
	return strings.TrimSpace(string(b))
}

// master is a running salt-master and the data needed to use it.
type master struct {
	daemon
	transport        transport.Transport
	publish, request string
	pub              string // its public key
	profiling        string // where it serves profiles, "" if it does not
	profiles         string // prefix of the files for profiles
	startup          time.Duration
}

func transportNamed(name string) transport.Transport {
	log := slog.New(slog.DiscardHandler)
	if name == "tcp" {
		return tcp.New(log)
	}
	return zeromq.New(log)
}

// newMaster prepares a master that has accepted this number of minions; more are additional lines
// of its configuration.
func (b *bench) newMaster(k kind, tr string, minions int, more string) (*master, error) {
	dir, err := os.MkdirTemp(b.tmp, string(k)+"-")
	if err != nil {
		return nil, err
	}
	ports, err := freeport.TCP(3)
	if err != nil {
		return nil, err
	}
	m := &master{daemon: daemon{programs: b.programs, kind: k, dir: dir}, transport: transportNamed(tr),
		publish: fmt.Sprintf("127.0.0.1:%d", ports[0]), request: fmt.Sprintf("127.0.0.1:%d", ports[1])}
	text := fmt.Sprintf("root_dir: %s\nid: bench\ninterface: 127.0.0.1\npublish_port: %d\nret_port: %d\ntransport: %s\nuser: root\n%s",
		dir, ports[0], ports[1], tr, more)
	if k == brine && (b.soak > 0 || b.profile != "") {
		m.profiling = fmt.Sprintf("127.0.0.1:%d", ports[2])
		text += "profiling_address: " + m.profiling + "\n"
		if b.profile != "" {
			m.profiles = filepath.Join(b.profile, b.running)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := simulate.Accept(m.pki(), b.keys, minions); err != nil {
		return nil, err
	}
	return m, b.own.Write(m.pki(), "master")
}

func (m *master) pki() string   { return filepath.Join(m.dir, "etc/salt/pki/master") }
func (m *master) cache() string { return filepath.Join(m.dir, "var/cache/salt/master") }

func (m *master) sockets() event.Sockets {
	return event.MasterOptions{SockDir: filepath.Join(m.dir, "var/run/salt/master")}.Sockets()
}

// run starts the master and waits until it lets a minion sign in. One of its
// accepted minions must be the first of the fleet.
func (m *master) run(ctx context.Context, b *bench) error {
	from := time.Now()
	if err := m.start(ctx, "salt-master"); err != nil {
		return err
	}
	for {
		err := m.tryFirst(ctx, b)
		if err == nil {
			m.startup = time.Since(from)
			return nil
		}
		if ended := m.ended(); ended != nil {
			return ended
		}
		if ctx.Err() != nil || time.Since(from) > 2*time.Minute {
			return fmt.Errorf("the master does not get up: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (m *master) tryFirst(ctx context.Context, b *bench) error {
	pub, err := os.ReadFile(filepath.Join(m.pki(), "master.pub"))
	if err != nil {
		return err
	}
	// A connection shows earlier than a request that the master is running.
	c, err := net.DialTimeout("tcp", m.request, time.Second)
	if err != nil {
		return err
	}
	c.Close()
	m.pub = string(pub)
	one := m.fleet(b, 1, 0)
	defer one.Close()
	return one.SignIn(ctx, 1)
}

// fleet returns simulated minions of this master; see simulate.Config for
// connections.
func (m *master) fleet(b *bench, n, connections int) *simulate.Fleet {
	return simulate.New(simulate.Config{Transport: m.transport, Publish: m.publish, Request: m.request, MasterKey: m.pub,
		Keys: b.keys, Count: n, Timeout: requestTimeout, Connections: connections})
}

// requestTimeout is generous: a late request counts with its latency, not as lost.
const requestTimeout = 60 * time.Second

func (m *master) operator() (*simulate.Operator, error) {
	return simulate.NewOperator(m.transport, m.request, filepath.Join(m.cache(), ".root_key"))
}

// cost runs do and returns the CPU time that the master used meanwhile. It waits for work that the
// master finishes after do returns.
func (m *master) cost(do func() error) (time.Duration, error) {
	before, err := m.settled()
	if err != nil {
		return 0, err
	}
	stop := m.profile()
	if err := do(); err != nil {
		return 0, errors.Join(err, m.ended())
	}
	stop()
	after, err := m.settled()
	return after - before, err
}

// profileTime is the duration of a profile.
const profileTime = 5 * time.Second

// profile writes profiles of the master, if requested, until the returned function is called.
func (m *master) profile() (stop func()) {
	if m.profiles == "" {
		return func() {}
	}
	done := make(chan error, 1)
	path := fmt.Sprintf("%s-%d.pprof", m.profiles, time.Now().UnixMilli())
	go func() {
		done <- fetch(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", m.profiling, profileTime/time.Second), path)
	}()
	return func() {
		if err := <-done; err != nil {
			fmt.Fprintln(os.Stderr, "no profile:", err)
		}
	}
}

func fetch(url, path string) error {
	rep, err := http.Get(url)
	if err != nil {
		return err
	}
	defer rep.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, rep.Body)
	return errors.Join(err, f.Close())
}

// settled waits until the master is idle and returns its CPU time.
func (m *master) settled() (time.Duration, error) {
	last, err := system.CPU(m.pid())
	for range 50 {
		time.Sleep(200 * time.Millisecond)
		now, err2 := system.CPU(m.pid())
		if err2 != nil || err != nil {
			return 0, errors.Join(err, err2)
		}
		// A stock master is never completely idle.
		if now-last <= 20*time.Millisecond {
			return now, nil
		}
		last = now
	}
	return last, nil
}

// remove stops the master and removes its files.
func (m *master) remove() {
	m.stop()
	os.RemoveAll(m.dir)
}
