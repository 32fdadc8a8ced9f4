package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// pidFile is the file with the daemon's process id. It is locked while the daemon runs, so that
// only one of several daemons started at once gets it.
type pidFile struct {
	path string
	f    *os.File
}

// runningError means that the pid file belongs to a running process.
type runningError struct {
	pid  int
	path string
}

func (e *runningError) Error() string {
	if e.pid == 0 {
		return "an instance is already running: it holds " + e.path
	}
	return fmt.Sprintf("an instance is already running: process %d, says %s", e.pid, e.path)
}

// maxPID bounds the bytes read from a pid file.
const maxPID = 32

// claimPID writes this process's id to the pid file. The error is a *runningError if a running
// process whose command line contains program has the file. Brine's daemons hold a lock, Salt's do
// not. A file of an ended process is taken over.
func claimPID(path, program string) (*pidFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
		if err != nil {
			return nil, err
		}
		p := &pidFile{path, f}
		switch err := p.take(program); {
		case errors.Is(err, errMoved):
			f.Close()
		case err != nil:
			f.Close()
			return nil, err
		default:
			return p, nil
		}
	}
}

// errMoved means that the file was removed between opening and locking.
var errMoved = errors.New("the pid file was removed meanwhile")

func (p *pidFile) take(program string) error {
	text, err := io.ReadAll(io.LimitReader(p.f, maxPID))
	if err != nil {
		return err
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if err := syscall.Flock(int(p.f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return &runningError{pid, p.path}
	} else if err != nil {
		return err
	}
	here, err := os.Stat(p.path)
	if held, e := p.f.Stat(); err != nil || e != nil || !os.SameFile(here, held) {
		return errMoved
	}
	if pid != os.Getpid() && pid != os.Getppid() && runs(pid, program) {
		return &runningError{pid, p.path}
	}
	if err := p.f.Truncate(0); err != nil {
		return err
	}
	_, err = p.f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return err
}

// runs reports whether the process exists and its command line contains program. The id alone does
// not suffice, since ids are reused.
func runs(pid int, program string) bool {
	if pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err != nil || strings.Contains(string(line), program)
}

// remove deletes the file. If the user lacks the permission, it empties it. A nil *pidFile is a
// no-op.
func (p *pidFile) remove() {
	if p == nil {
		return
	}
	if os.Remove(p.path) != nil {
		p.f.Truncate(0)
	}
	p.f.Close()
}
