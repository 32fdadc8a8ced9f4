// Package tempfleet runs masters and minions as processes of this binary, in a temporary directory
// and on loopback, for demonstrations and trials. Everything ends with the program.
package tempfleet

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"brine/internal/host/freeport"
)

// Patience is the timeout of every wait. Even a busy machine does not need longer.
const Patience = time.Minute

// Fleet is a set of daemons with their common directory.
type Fleet struct {
	// Dir is the directory of all daemons.
	Dir              string
	Masters, Minions []*Daemon
	APIs             []*Daemon
}

// Daemon is one process of this binary.
type Daemon struct {
	Name     string // "master one"
	program  string
	self     string // the binary
	Dir, Log string
	Addr     string // masters: request address
	Host     string // masters of a cluster: address and id
	Ports    []int  // masters: publish and request port
	later    bool

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{}
}

// Minion describes a minion to start.
type Minion struct {
	ID, Role string
	// More is added to its configuration.
	More string
	// Later excludes it from StartMinions.
	Later bool
}

// New prepares two masters, one and two, that will share a key, and their minions. at, if not "",
// is the address at which minions find the first master, on its own ports. more is added to the
// configuration of the masters.
func New(minions []Minion, at, more string) (*Fleet, error) {
	f, self, ports, err := prepare(4)
	if err != nil {
		return f, err
	}
	var addrs []string
	for i, name := range []string{"one", "two"} {
		pub, ret := ports[2*i], ports[2*i+1]
		m := &Daemon{Name: "master " + name, program: "salt-master", self: self, Dir: filepath.Join(f.Dir, name),
			Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(ret))}
		if i == 0 && at != "" {
			addrs = append(addrs, net.JoinHostPort(at, strconv.Itoa(ret)))
		} else {
			addrs = append(addrs, m.Addr)
		}
		m.Ports = []int{pub, ret}
		f.Masters = append(f.Masters, m)
		err = errors.Join(err, m.configure("master", fmt.Sprintf(
			"root_dir: %s\nid: %s\ninterface: 127.0.0.1\npublish_port: %d\nret_port: %d\n"+
				"file_roots: {base: [%s/srv/salt]}\npillar_roots: {base: [%s/srv/pillar]}\n%s", m.Dir, name, pub, ret, m.Dir, m.Dir, more)))
	}
	for _, w := range minions {
		m := &Daemon{Name: "minion " + w.ID, program: "salt-minion", self: self, Dir: filepath.Join(f.Dir, w.ID), later: w.Later}
		f.Minions = append(f.Minions, m)
		err = errors.Join(err, m.configure("minion", fmt.Sprintf(
			"root_dir: %s\nid: %s\nmaster: [%s]\nacceptance_wait_time: 1\ngrains: {role: %s}\nenable_fqdns_grains: False\n",
			m.Dir, w.ID, `"`+strings.Join(addrs, `", "`)+`"`, w.Role)+w.More))
	}
	return f, err
}

// NewCluster prepares masters of a cluster, each on its own loopback address (Daemon.Host). The
// minions know the addresses of the first known masters.
func NewCluster(masters, known int, minions []Minion) (*Fleet, error) {
	f, self, ports, err := prepare(3)
	if err != nil {
		return f, err
	}
	var addrs []string
	for i := range masters {
		host, name := fmt.Sprintf("127.0.0.%d", i+2), fmt.Sprint("m", i+1)
		m := &Daemon{Name: "master " + name, program: "salt-master", self: self, Dir: filepath.Join(f.Dir, name), Host: host,
			Addr: net.JoinHostPort(host, strconv.Itoa(ports[1]))}
		f.Masters = append(f.Masters, m)
		if i < known {
			addrs = append(addrs, host)
		}
		err = errors.Join(err, m.configure("master", fmt.Sprintf(
			"root_dir: %s\ninterface: %s\npublish_port: %d\nret_port: %d\ncluster_pool_port: %d\n", m.Dir, host, ports[0], ports[1], ports[2])))
	}
	for _, w := range minions {
		m := &Daemon{Name: "minion " + w.ID, program: "salt-minion", self: self, Dir: filepath.Join(f.Dir, w.ID), later: w.Later}
		f.Minions = append(f.Minions, m)
		err = errors.Join(err, m.configure("minion", fmt.Sprintf(
			"root_dir: %s\nid: %s\nmaster: [%s]\nmaster_port: %d\npublish_port: %d\nacceptance_wait_time: 1\ngrains: {role: %s}\nenable_fqdns_grains: False\n",
			m.Dir, w.ID, strings.Join(addrs, ", "), ports[1], ports[0], w.Role)+w.More))
	}
	return f, err
}

// prepare creates the directory of a fleet, and finds this binary and that number of free ports. If
// it returns a fleet with an error, the caller must remove the fleet.
func prepare(ports int) (f *Fleet, self string, free []int, err error) {
	if self, err = os.Executable(); err != nil {
		return nil, "", nil, err
	}
	dir, err := os.MkdirTemp("", "brine-demo-")
	if err != nil {
		return nil, "", nil, err
	}
	free, err = freeport.TCP(ports)
	return &Fleet{Dir: dir}, self, free, err
}

// configure writes the configuration file that the programs read with -c.
func (d *Daemon) configure(file, text string) error {
	d.Log = filepath.Join(d.Dir, "log")
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.Dir, file), []byte(text), 0o600)
}

// Start runs the daemon as a process, which is killed if this program dies.
func (d *Daemon) Start() error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.self, d.program, "-c", d.Dir, "-l", "info")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", d.Name, err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(done)
	}()
	d.mu.Lock()
	d.cmd, d.done = cmd, done
	d.mu.Unlock()
	return nil
}

// AddAPIs prepares a salt-api without TLS for each master. Their consoles know each other. It
// returns their URLs.
func (f *Fleet) AddAPIs() (urls []string, err error) {
	ports, err := freeport.TCP(len(f.Masters))
	if err != nil {
		return nil, err
	}
	for i, p := range ports {
		urls = append(urls, fmt.Sprintf("http://%s:%d", apiHost(i), p))
	}
	for i, m := range f.Masters {
		text := fmt.Sprintf("rest_cherrypy: {host: %s, port: %d, disable_ssl: True, console_masters: ['%s']}\n", apiHost(i), ports[i],
			strings.Join(urls, "', '"))
		path := filepath.Join(m.Dir, "master")
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, append(b, text...), 0o600); err != nil {
			return nil, err
		}
		f.APIs = append(f.APIs, &Daemon{
			Name: "salt-api of " + m.Name, program: "salt-api", self: m.self, Dir: m.Dir, Log: filepath.Join(m.Dir, "api.log"), Addr: m.Addr,
		})
	}
	return urls, nil
}

// apiHost returns the address of a salt-api. Each has its own, because browsers share cookies
// between the ports of a host.
func apiHost(i int) string { return fmt.Sprintf("127.0.0.%d", i+1) }

// PID returns the process id, 0 if the daemon does not run.
func (d *Daemon) PID() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Kill sends SIGKILL, like a power failure, and waits until the process has ended.
func (d *Daemon) Kill() { d.End(syscall.SIGKILL) }

// End sends a signal and waits for the process to end. After a timeout it kills it.
func (d *Daemon) End(sig os.Signal) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig)
	select {
	case <-d.done:
	case <-time.After(5 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	d.cmd = nil
}

// Ended reports whether the process has ended.
func (d *Daemon) Ended() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// Listening waits until the master accepts connections.
func (d *Daemon) Listening(ctx context.Context) error {
	deadline := time.Now().Add(Patience)
	for {
		c, err := net.DialTimeout("tcp", d.Addr, time.Second)
		if err == nil {
			c.Close()
			return nil
		}
		if d.Ended() {
			return fmt.Errorf("%s ended at once", d.Name)
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("%s does not listen: %w", d.Name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Command runs a program against this master and returns its output.
func (d *Daemon) Command(ctx context.Context, program string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, d.self, append([]string{program, "-c", d.Dir}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), nil
}

// ClusterSecret creates the secret with which masters join a cluster, in a file for the option
// --secret-file of brine cluster.
func (f *Fleet) ClusterSecret() (file string, err error) {
	var b [16]byte
	rand.Read(b[:])
	file = filepath.Join(f.Dir, "cluster-secret")
	return file, os.WriteFile(file, []byte(hex.EncodeToString(b[:])+"\n"), 0o600)
}

// Daemons returns all daemons.
func (f *Fleet) Daemons() []*Daemon {
	return slices.Concat(f.Masters, f.Minions, f.APIs)
}

// StartMasters starts the first master, which creates its key pair, copies the pair to the second
// master, which needs nothing else, and starts that.
func (f *Fleet) StartMasters(ctx context.Context) error {
	one, two := f.Masters[0], f.Masters[1]
	if err := one.Start(); err != nil {
		return err
	}
	if err := one.Listening(ctx); err != nil {
		return err
	}
	pki := filepath.Join("etc", "salt", "pki", "master")
	if err := os.MkdirAll(filepath.Join(two.Dir, pki), 0o700); err != nil {
		return err
	}
	for _, name := range []string{"master.pem", "master.pub"} {
		b, err := os.ReadFile(filepath.Join(one.Dir, pki, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(two.Dir, pki, name), b, 0o400); err != nil {
			return err
		}
	}
	if err := two.Start(); err != nil {
		return err
	}
	return two.Listening(ctx)
}

// StartMinions starts the minions, except those with Later.
func (f *Fleet) StartMinions() error {
	for _, m := range f.Minions {
		if m.later {
			continue
		}
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Await retries until ok returns nil.
func (f *Fleet) Await(ctx context.Context, what string, ok func() error) error {
	deadline := time.Now().Add(Patience)
	for {
		err := ok()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("waited for %s: %w", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Remove ends all processes and removes the directory.
func (f *Fleet) Remove() error {
	var wg sync.WaitGroup
	for _, d := range f.Daemons() {
		wg.Go(func() { d.End(syscall.SIGTERM) })
	}
	wg.Wait()
	return os.RemoveAll(f.Dir)
}

// Signal sends a signal to the process and returns at once.
func (d *Daemon) Signal(sig os.Signal) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cmd == nil {
		return errors.New(d.Name + " does not run")
	}
	return d.cmd.Process.Signal(sig)
}
