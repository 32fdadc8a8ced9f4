package daemontest

import (
	"bytes"
	"context"
	"encoding/json"
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
	"testing"
	"time"

	"brine/internal/net/event"
	saltjson "brine/internal/py/json"
	"brine/test/eventually"
)

// The ports that masters are configured with.
const (
	PublishPort = 24505
	RetPort     = 24506
)

// Node is one daemon.
type Node struct {
	Kind    Kind
	Program string
	Name    string
	// Dir has the configuration, and is the root of all else.
	Dir string
	// Host is the address of a master, "" for a minion.
	Host string
	// Level is the log level on the console, "" for the configured one.
	Level string
	// Args are further arguments of the daemon.
	Args []string
	// Within is a command that runs the daemon and programs for it, such as one that enters a
	// namespace; it must not fork.
	Within []string

	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
}

// NewMaster writes the configuration of a master that listens on host. more is appended; it must
// not repeat an option that is set here.
func NewMaster(t testing.TB, k Kind, name, host, more string) *Node {
	t.Helper()
	n := &Node{t: t, Kind: k, Program: "salt-master", Name: name, Dir: ShortDir(t), Host: host, Level: "debug"}
	n.Write("master", fmt.Sprintf(`root_dir: %s
id: %s
interface: %s
publish_port: %d
ret_port: %d
worker_threads: 2
loop_interval: 1
user: root
%s
`, n.Dir, name, host, PublishPort, RetPort, more))
	return n
}

// NewMinion writes the configuration of a minion of some masters.
func NewMinion(t testing.TB, k Kind, id string, masters []string, more string) *Node {
	t.Helper()
	n := &Node{t: t, Kind: k, Program: "salt-minion", Name: id, Dir: ShortDir(t), Level: "debug"}
	n.Write("minion", fmt.Sprintf(`root_dir: %s
id: %s
master: [%s]
master_port: %d
publish_port: %d
acceptance_wait_time: 1
recon_default: 100
recon_max: 500
random_reauth_delay: 0
enable_fqdns_grains: False
user: root
%s
`, n.Dir, id, strings.Join(masters, ", "), RetPort, PublishPort, more))
	return n
}

// Write writes a file in the daemon's directory.
func (n *Node) Write(file, text string) {
	n.t.Helper()
	path := filepath.Join(n.Dir, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// Read returns a file in the daemon's directory.
func (n *Node) Read(file string) string {
	n.t.Helper()
	b, err := os.ReadFile(n.Path(file))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(b)
}

// Path returns the path of a file in the daemon's directory.
func (n *Node) Path(file string) string { return filepath.Join(n.Dir, file) }

// Requests returns the master's address for requests as host:port.
func (n *Node) Requests() string { return fmt.Sprintf("%s:%d", n.Host, RetPort) }

// Publications returns the master's address for publications as host:port.
func (n *Node) Publications() string { return fmt.Sprintf("%s:%d", n.Host, PublishPort) }

// Start runs the daemon until the test ends, and waits until a master listens, unless it runs in
// another network (Within).
func (n *Node) Start() *Node {
	n.t.Helper()
	n.Launch()
	if n.Host != "" && len(n.Within) == 0 {
		n.listening()
	}
	return n
}

// Await waits until a master that was launched listens.
func (n *Node) Await() *Node {
	n.t.Helper()
	n.listening()
	return n
}

// Launch is Start without waiting: the daemon may fail.
func (n *Node) Launch() *Node {
	n.t.Helper()
	log, err := os.OpenFile(n.Path("out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		n.t.Fatal(err)
	}
	defer log.Close()
	args := []string{"-c", n.Dir}
	if n.Level != "" {
		args = append(args, "-l", n.Level)
	}
	c := n.within(n.Kind.Command(context.Background(), n.t, n.Program, append(args, n.Args...)...))
	c.Dir, c.Stdout, c.Stderr = n.Dir, log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		n.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	first := n.cmd == nil && n.done == nil
	n.cmd, n.done = c, done
	if first {
		n.t.Cleanup(n.finish)
	}
	return n
}

// within makes c run in the command Within.
func (n *Node) within(c *exec.Cmd) *exec.Cmd {
	if len(n.Within) == 0 || c.Err != nil {
		return c
	}
	path, err := exec.LookPath(n.Within[0])
	if err != nil {
		n.t.Fatal(err)
	}
	c.Args = append(append(slices.Clone(n.Within), c.Path), c.Args[1:]...)
	c.Path = path
	return c
}

func (n *Node) finish() {
	n.Kill()
	if n.t.Failed() {
		log := n.Log()
		n.t.Logf("--- %s %s %s:\n%s", n.Kind, n.Program, n.Name, log[max(0, len(log)-6000):])
	}
}

// Log returns everything that the daemon has logged, including before restarts.
func (n *Node) Log() string {
	b, _ := os.ReadFile(n.Path("out"))
	return string(b)
}

// PID returns the id of the running process.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Kill kills the daemon and its children.
func (n *Node) Kill() {
	if n.cmd == nil {
		return
	}
	_ = syscall.Kill(-n.PID(), syscall.SIGKILL)
	<-n.done
	// Children of stock daemons keep sockets open on which the next daemon listens.
	waitFor(time.Minute, func() bool { return !groupHas(n.PID(), running) })
	// A stock daemon refuses to start while a process has the number in its PID file, also a child of
	// the killed one that pid 1 has not reaped yet. A pid 1 that never does must not stop the test.
	waitFor(5*time.Second, func() bool { return !groupHas(n.PID(), inTable) })
	n.cmd = nil
}

func waitFor(limit time.Duration, done func() bool) {
	for deadline := time.Now().Add(limit); !done() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
}

// running and inTable tell by the state of a process in /proc whether it counts: a zombie does not
// run, but kill(2) still finds it.
func running(state string) bool { return state != "Z" && state != "X" }
func inTable(string) bool       { return true }

// groupHas reports whether the group has a process whose state counts.
func groupHas(group int, counts func(state string) bool) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		// pid (name) state ppid pgrp ...; a name may contain spaces and parentheses
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) > 2 && fields[2] == strconv.Itoa(group) && counts(fields[0]) {
			return true
		}
	}
	return false
}

// Signal sends a signal only to the daemon, not to its children.
func (n *Node) Signal(s syscall.Signal) {
	n.t.Helper()
	if err := syscall.Kill(n.PID(), s); err != nil {
		n.t.Fatal(err)
	}
}

// Wait waits for the end of the daemon and returns its exit code.
func (n *Node) Wait(within time.Duration) int {
	n.t.Helper()
	select {
	case <-n.done:
		return n.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		n.t.Fatalf("%s %s has not ended after %v", n.Program, n.Name, within)
		return 0
	}
}

// Alive reports whether the process is running.
func (n *Node) Alive() bool {
	select {
	case <-n.done:
		return false
	default:
		return n.cmd != nil
	}
}

// listening waits until a master accepts requests.
func (n *Node) listening() {
	n.t.Helper()
	eventually.Nil(n.t, 2*time.Minute, n.Name+" listens", func() error {
		c, err := net.DialTimeout("tcp", n.Requests(), time.Second)
		if err == nil {
			c.Close()
		} else if !n.Alive() {
			n.t.Fatalf("%s ended:\n%s", n.Name, n.Log())
		} else if len(n.Within) > 0 && strings.Contains(n.Log(), n.Program+" is up") {
			return nil // its network may be one that this process is not in
		}
		return err
	})
}

// Logged waits until the daemon has logged each text.
func (n *Node) Logged(texts ...string) {
	n.t.Helper()
	for _, text := range texts {
		eventually.Nil(n.t, 2*time.Minute, fmt.Sprintf("%s says %q", n.Name, text), func() error {
			if !strings.Contains(n.Log(), text) {
				return errors.New("it does not")
			}
			return nil
		})
	}
}

// Run executes a program of kind k with this daemon's configuration.
func (n *Node) Run(k Kind, program string, args ...string) (stdout, stderr string, code int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	c := n.within(k.Command(ctx, n.t, program, append([]string{"-c", n.Dir}, args...)...))
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), c.ProcessState.ExitCode()
}

// SaltJSON runs salt and returns the answer of each minion.
func (n *Node) SaltJSON(k Kind, args ...string) (map[string]any, error) {
	n.t.Helper()
	out, errs, _ := n.Run(k, "salt", append([]string{"--static", "--out=json", "-t", "5"}, args...)...)
	var rets map[string]any
	if err := json.Unmarshal([]byte(out), &rets); err != nil {
		return nil, fmt.Errorf("not JSON: %q %q", out, errs)
	}
	return rets, nil
}

// PingAll pings all minions and expects True from every id.
func (n *Node) PingAll(k Kind, ids ...string) error {
	n.t.Helper()
	return n.ping(k, ids, "*")
}

// PingOnly is PingAll with only these ids as the target, so that it does not wait for known minions
// that are unreachable.
func (n *Node) PingOnly(k Kind, ids ...string) error {
	n.t.Helper()
	return n.ping(k, ids, "-L", strings.Join(ids, ","))
}

func (n *Node) ping(k Kind, ids []string, target ...string) error {
	n.t.Helper()
	rets, err := n.SaltJSON(k, append(target, "test.ping")...)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if rets[id] != true {
			return fmt.Errorf("no answer from %s: %v", id, rets)
		}
	}
	return nil
}

// Keys returns the output of salt-key -L, by the names of Salt's directories.
func (n *Node) Keys() (map[string][]string, error) {
	n.t.Helper()
	out, errs, _ := n.Run(n.Kind, "salt-key", "-L", "--out=json")
	keys := map[string][]string{}
	if err := json.Unmarshal([]byte(out), &keys); err != nil {
		return nil, fmt.Errorf("not JSON: %q %q", out, errs)
	}
	return keys, nil
}

// Accept waits for keys to be pending, and accepts them.
func (n *Node) Accept(ids ...string) {
	n.t.Helper()
	eventually.Nil(n.t, 3*time.Minute, "the keys are pending on "+n.Name, func() error {
		keys, err := n.Keys()
		if err != nil {
			return err
		}
		there := strings.Join(append(keys["minions_pre"], keys["minions"]...), " ") + " "
		for _, id := range ids {
			if !strings.Contains(there, id+" ") {
				return fmt.Errorf("no key of %s: %v", id, keys)
			}
		}
		return nil
	})
	for _, id := range ids {
		if _, errs, code := n.Run(n.Kind, "salt-key", "-y", "-a", id); code != 0 {
			n.t.Fatalf("salt-key -a %s: %d %s", id, code, errs)
		}
	}
}

// sockets returns the sockets of the daemon's event bus.
func (n *Node) sockets() event.Sockets {
	n.t.Helper()
	if n.Program == "salt-master" {
		var o event.MasterOptions
		o.IPCMode, o.SockDir = "ipc", n.Path("var/run/salt/master")
		return o.Sockets()
	}
	var o event.MinionOptions
	o.IPCMode, o.SockDir = "ipc", n.Path("var/run/salt/minion")
	at, err := o.Sockets(n.Name, "sha256")
	if err != nil {
		n.t.Fatal(err)
	}
	return at
}

// Events records the tags of the events on a daemon's bus, one per line, until the test ends.
func (n *Node) Events() func() string {
	n.t.Helper()
	return n.record(func(e *event.Event) string { return e.Tag + "\n" })
}

// Tagged records the events on a daemon's bus whose tags begin with prefix, until the test ends.
// Each is a line of tag, tabulator and data as JSON.
func (n *Node) Tagged(prefix string) func() string {
	n.t.Helper()
	return n.record(func(e *event.Event) string {
		if !strings.HasPrefix(e.Tag, prefix) {
			return ""
		}
		text, err := saltjson.Dump(e.Data, saltjson.Format{})
		if err != nil {
			text = err.Error()
		}
		return e.Tag + "\t" + text + "\n"
	})
}

func (n *Node) record(line func(*event.Event) string) func() string {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := event.Dial(ctx, n.sockets())
	if err != nil {
		cancel()
		n.t.Fatal(err)
	}
	var tags buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range r.Events() {
			if err != nil {
				return
			}
			tags.add(line(e))
		}
	}()
	n.t.Cleanup(func() { cancel(); <-done })
	return tags.String
}

// buffer is a string that one goroutine writes and others read.
type buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *buffer) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.b.WriteString(text)
}

func (s *buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// NewAPI returns the salt-api of a master, with the master's configuration.
func NewAPI(m *Node) *Node {
	return &Node{t: m.t, Kind: m.Kind, Program: "salt-api", Name: "api of " + m.Name, Dir: m.Dir, Level: m.Level}
}

// NewSyndic writes the configuration of a syndic, which connects a master with those above it.
// more is appended to the master's options.
func NewSyndic(k Kind, below *Node, more string, above ...string) *Node {
	below.t.Helper()
	name := "syndic"
	if below.Name != "below" {
		name = "syndic-" + below.Name
	}
	n := &Node{t: below.t, Kind: k, Program: "salt-syndic", Name: name, Dir: ShortDir(below.t), Level: "debug"}
	// A syndic reads the options of its own master.
	n.Write("master", below.Read("master")+fmt.Sprintf("syndic_master: [%s]\nsyndic_master_port: %d\nsyndic_log_file: %s\nsyndic_pidfile: %s\n%s",
		strings.Join(above, ", "), RetPort, n.Path("log"), n.Path("pid"), more))
	n.Write("minion", fmt.Sprintf("id: %s\nroot_dir: %s\nuser: root\nacceptance_wait_time: 1\nrecon_default: 100\nrecon_max: 500\n"+
		"random_reauth_delay: 0\npublish_port: %d\n", n.Name, n.Dir, PublishPort))
	if k == Stock {
		// The syndic uses a module of Tornado that it does not import.
		n.Write("site/sitecustomize.py", "import tornado.queues\n")
		n.Within = []string{"env", "PYTHONPATH=" + n.Path("site") + ":" + StockTree(n.t)}
	}
	return n
}

// HubPort is where masters connect to a brine-hub.
const HubPort = 24515

// NewHub writes the configuration of a brine-hub of the masters with these fingerprints.
func NewHub(t testing.TB, name, host, more string, fingerprints ...string) *Node {
	t.Helper()
	n := &Node{t: t, Kind: Hub, Program: "brine-hub", Name: name, Dir: ShortDir(t)}
	n.Write("hub", fmt.Sprintf("id: %s\nlisten: %s:%d\ndata_dir: %s\nmasters: ['%s']\n%s\n", name, host, HubPort, n.Path("data"),
		strings.Join(fingerprints, "', '"), more))
	return n
}
