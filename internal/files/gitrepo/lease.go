package gitrepo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/base/atomicfile"
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/host"
	"brine/internal/host/boot"
)

// Leases are locks on files that several processes, on several machines, may request. The file names its
// owner; its first two lines have Salt's format, process and machine.
//
// A lease ends unless its owner renews it. A dead owner on this machine loses it at once. Any other owner
// loses it if the file has not changed for the time of a lease, by the clock of the waiting process; clocks
// are never compared. Reading and replacing the file is guarded by flock(2) on a file beside it, which the
// kernel releases when a process dies.
type Leases struct {
	// Time is the duration of a lease; it is renewed three times as often.
	Time time.Duration
	// Global has Salt's meaning of the options gitfs_global_lock and git_pillar_global_lock: without it, a
	// lock is free if its process is not on this machine, although it may run on another one.
	Global bool

	mu   sync.Mutex
	seen map[string]sighting
}

type sighting struct {
	text  string
	since time.Time
}

const (
	// usualLease is the default of Leases.Time.
	usualLease = 30 * time.Second
	// stockLease is the duration for locks of stock Salt, which never renews them.
	stockLease = time.Hour
	// ManualLock is how long a lock set by an operator holds.
	ManualLock = 24 * time.Hour
)

// owner is the content of a lock file.
type owner struct {
	pid                                      int
	machine, host, boot, space, start, token string
	until                                    time.Time // end of a manual lock
	renewed                                  int
}

func (o owner) String() string {
	s := fmt.Sprintf("process %d", o.pid)
	switch {
	case o.host != "":
		s += " on " + o.host
	case o.machine != "":
		s += " on the machine " + o.machine
	}
	if !o.until.IsZero() {
		s += ", by hand, until " + o.until.UTC().Format("2006-01-02 15:04 MST")
	}
	return s
}

func (o owner) text() []byte {
	t := fmt.Sprintf("%d\n%s\nhost=%s\nboot=%s\nspace=%s\nstart=%s\ntoken=%s\nrenewed=%d\n", o.pid, o.machine, o.host, o.boot, o.space, o.start, o.token,
		o.renewed)
	if !o.until.IsZero() {
		t += fmt.Sprintf("until=%d\n", o.until.Unix())
	}
	return []byte(t)
}

func readOwner(text string) owner {
	var o owner
	lines := strings.Split(text, "\n")
	o.pid, _ = strconv.Atoi(strings.TrimSpace(lines[0]))
	if len(lines) > 1 {
		o.machine = strings.TrimSpace(lines[1])
	}
	for _, l := range lines[min(2, len(lines)):] {
		k, v, _ := strings.Cut(l, "=")
		switch k {
		case "host":
			o.host = v
		case "boot":
			o.boot = v
		case "space":
			o.space = v
		case "start":
			o.start = v
		case "token":
			o.token = v
		case "until":
			if n, err := strconv.ParseInt(v, 10, 64); err == nil {
				o.until = time.Unix(n, 0)
			}
		}
	}
	return o
}

// me is this process.
func me() owner {
	o := owner{pid: os.Getpid(), token: rand.Text(), start: startOf(os.Getpid())}
	o.machine = "no_machine_id_available"
	if id, ok := boot.MachineID(&host.Machine{}); ok {
		o.machine = id
	}
	o.host, _ = os.Hostname()
	if b, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		o.boot = strings.TrimSpace(string(b))
	}
	o.space, _ = os.Readlink("/proc/self/ns/pid")
	return o
}

// startOf returns the start time of a process in the kernel's ticks, which distinguishes it from another with
// the same number; "" if unknown.
func startOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	if f := strings.Fields(rest); len(f) > 19 {
		return f[19]
	}
	return ""
}

func alive(pid int) bool {
	if pid <= 0 {
		return false
	}
	err := unix.Kill(pid, 0)
	return err == nil || errors.Is(err, unix.EPERM)
}

// held are the tokens of this process.
var held sync.Map

// dead reports whether an owner is known to have ended.
func (l *Leases) dead(o, self owner) bool {
	if !o.until.IsZero() {
		return steady.Removal().After(o.until)
	}
	here := o.machine == self.machine && (o.space == "" || o.space == self.space)
	switch {
	case here && o.boot != "" && o.boot != self.boot:
		return true // the machine has rebooted
	case here && o.pid == self.pid && o.token != "":
		_, ok := held.Load(o.token)
		return !ok
	case here || !l.Global:
		return !alive(o.pid) || here && o.start != "" && startOf(o.pid) != "" && startOf(o.pid) != o.start
	}
	return false
}

// expired reports whether a lock has not changed for the duration of a lease.
func (l *Leases) expired(path, text string, o owner) bool {
	limit := l.time()
	if o.token == "" {
		limit = max(stockLease, limit)
	}
	if !o.until.IsZero() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]sighting{}
	}
	s, ok := l.seen[path]
	if !ok || s.text != text {
		l.seen[path] = sighting{text, time.Now()}
		return false
	}
	return time.Since(s.since) > limit
}

func (l *Leases) time() time.Duration {
	if l.Time > 0 {
		return l.Time
	}
	return usualLease
}

// HeldError says who holds a lock.
type HeldError struct {
	Path  string
	owner owner
}

func (e *HeldError) Error() string { return fmt.Sprintf("%s is locked by %v", e.Path, e.owner) }

// Lease is a lock that this process holds.
type Lease struct {
	leases *Leases
	path   string
	self   owner
	stop   context.CancelCauseFunc
	done   chan struct{}
}

// errLost says that a lease was not renewed in time and another process has taken it.
var errLost = errors.New("the lock was not renewed in time and another process has it now")

// Take waits for a lock at most the given time. The returned context ends when the lease is lost. The error
// is a *HeldError if another process holds the lock.
func (l *Leases) Take(ctx context.Context, path string, waitLimit time.Duration) (*Lease, context.Context, error) {
	self := me()
	held.Store(self.token, true)
	deadline := time.Now().Add(waitLimit)
	for {
		other, err := l.try(path, self)
		if err == nil && other == nil {
			break
		}
		if err == nil && time.Now().After(deadline) {
			err = &HeldError{path, *other}
		}
		if err == nil {
			if wait.Sleep(ctx, 50*time.Millisecond) {
				continue
			}
			err = context.Cause(ctx)
		}
		held.Delete(self.token)
		return nil, nil, err
	}
	inner, stop := context.WithCancelCause(ctx)
	lease := &Lease{leases: l, path: path, self: self, stop: stop, done: make(chan struct{})}
	go lease.renew(inner)
	return lease, inner, nil
}

// try takes the lock, or returns its owner.
func (l *Leases) try(path string, self owner) (*owner, error) {
	var other *owner
	err := guarded(path, func() error {
		b, err := os.ReadFile(path)
		if errors.Is(err, unix.EISDIR) {
			err = os.RemoveAll(path)
			b = nil
		}
		if err == nil && len(b) > 0 {
			if o := readOwner(string(b)); !l.dead(o, self) && !l.expired(path, string(b), o) {
				other = &o
				return nil
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return atomicfile.Write(path, self.text(), 0o644, false)
	})
	return other, err
}

// Set takes a lock that outlives this process, until Clear or for ManualLock.
func (l *Leases) Set(path string) error {
	self := me()
	self.until = time.Now().Add(ManualLock)
	other, err := l.try(path, self)
	if err == nil && other != nil {
		err = &HeldError{path, *other}
	}
	return err
}

// Clear removes a lock of any holder, and reports whether there was one.
func (l *Leases) Clear(path string) (was bool, err error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	err = guarded(path, func() error {
		_, err := os.Lstat(path)
		was = err == nil
		return os.RemoveAll(path)
	})
	return was && err == nil, err
}

// Owner returns the owner of a lock, "" if it is free.
func (l *Leases) Owner(path string) string {
	b, err := os.ReadFile(path)
	if err != nil || len(b) == 0 {
		return ""
	}
	return readOwner(string(b)).String()
}

func (l *Lease) renew(ctx context.Context) {
	defer close(l.done)
	tick := time.NewTicker(l.leases.time() / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.self.renewed++
		err := l.Guarded(func() error { return atomicfile.Write(l.path, l.self.text(), 0o644, false) })
		if errors.Is(err, errLost) {
			l.stop(err)
			return
		}
	}
}

// Guarded runs f while no other process can take the lock. It fails if this process no longer holds it.
func (l *Lease) Guarded(f func() error) error {
	return guarded(l.path, func() error {
		b, err := os.ReadFile(l.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err != nil || readOwner(string(b)).token != l.self.token {
			return errLost
		}
		return f()
	})
}

// Release releases the lock if this process still holds it.
func (l *Lease) Release() error {
	l.stop(context.Canceled)
	<-l.done
	defer held.Delete(l.self.token)
	err := l.Guarded(func() error { return os.Remove(l.path) })
	if errors.Is(err, errLost) {
		return nil
	}
	return err
}

// guardWait bounds the wait for others that read or write a lock, which is fast.
const guardWait = 30 * time.Second

// guarded runs f while no other process or goroutine does so for this path.
func guarded(path string, f func() error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	g, err := os.OpenFile(filepath.Join(dir, "."+filepath.Base(path)+".guard"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer g.Close()
	for deadline := time.Now().Add(guardWait); ; {
		err := unix.Flock(int(g.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("cannot lock %s: %w", g.Name(), err)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("cannot lock %s: another process has held it for %v", g.Name(), guardWait)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// MachineID returns the id of this machine, as lock files have it.
func MachineID() string { return me().machine }
