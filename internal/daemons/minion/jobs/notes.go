package jobs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Notes are the files in cachedir/proc by which the processes of one minion know each
// other's jobs.
type Notes struct {
	// Dir is that directory.
	Dir string
	Log *slog.Logger
}

// Record notes a running job in cachedir/proc, where saltutil of another
// process (salt-call) looks. It returns what removes the note. Failing to
// write it is no reason not to run the job.
func (n *Notes) Record(j *Job) (forget func()) {
	dir := n.Dir
	path := filepath.Join(dir, j.JID)
	b, err := msgpack.Marshal(j.Describe(), msgpack.Wire)
	if err == nil {
		err = os.WriteFile(path, b, 0o600)
	}
	if os.IsNotExist(err) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
	}
	if err != nil {
		os.Remove(path) // a full disk leaves an empty file
		n.Log.Warn("cannot note a running job", "jid", j.JID, "err", err)
		return func() {}
	}
	return func() { os.Remove(path) }
}

// Others reads the notes of other processes that still live; those of dead
// ones are removed.
func (n *Notes) Others() []*Job {
	var out []*Job
	n.each(func(path string, note *Job) {
		pid := int(note.Pub.PID)
		switch {
		case pid == os.Getpid():
		case !RunsJobs(pid):
			os.Remove(path)
		default:
			out = append(out, note)
		}
	})
	return out
}

// Forget removes the notes of processes that were killed, at the start:
// one with our own process id is of a predecessor then, as there is in a
// container.
func (n *Notes) Forget() {
	n.each(func(path string, note *Job) {
		if pid := int(note.Pub.PID); pid == os.Getpid() || !RunsJobs(pid) {
			n.Log.Info("a job was running when its process was killed", "jid", note.JID, "fun", value.Str(note.Fun))
			os.Remove(path)
		}
	})
}

// each calls f for every note. A file that is none is removed once it is
// too old to be one that is being written.
func (n *Notes) each(f func(path string, note *Job)) {
	dir := n.Dir
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		v, err := msgpack.Unmarshal(b)
		if d, ok := v.(*value.Dict); err == nil && ok {
			f(path, NewJob(d))
		} else if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Minute {
			os.Remove(path)
		}
	}
}

// RunsJobs reports whether a process lives and may be one that runs jobs:
// process ids are used again.
func RunsJobs(pid int) bool {
	if pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err != nil || bytes.Contains(line, []byte("salt")) || bytes.Contains(line, []byte("brine"))
}
