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

	"brine/internal/base/steady"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Notes are the files in cachedir/proc with which the processes of one minion show each
// other their running jobs.
type Notes struct {
	// Dir is cachedir/proc.
	Dir string
	Log *slog.Logger
}

// Record records a running job in cachedir/proc, where saltutil functions of another
// process (salt-call) look for it. It returns a function that removes the record. If the
// write fails, the job runs anyway.
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
		n.Log.Warn("cannot record a running job", "jid", j.JID, "err", err)
		return func() {}
	}
	return func() { os.Remove(path) }
}

// Others returns the records of other live processes, and removes those of dead
// ones.
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

// Forget removes the records of killed processes. Call it at the start: then a record with
// our own process id is from an earlier process, as happens in a container.
func (n *Notes) Forget() {
	n.each(func(path string, note *Job) {
		if pid := int(note.Pub.PID); pid == os.Getpid() || !RunsJobs(pid) {
			n.Log.Info("job was interrupted: its process was killed", "jid", note.JID, "fun", value.Str(note.Fun))
			os.Remove(path)
		}
	})
}

// each calls f for every record. It removes files that are not records once they are too
// old to be still in writing.
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
		} else if info, err := e.Info(); err == nil && steady.Removal().Sub(info.ModTime()) > time.Hour {
			os.Remove(path)
		}
	}
}

// RunsJobs reports whether a process exists and may run jobs of this minion. It checks the
// command line, because process ids are reused.
func RunsJobs(pid int) bool {
	if pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err != nil || bytes.Contains(line, []byte("salt")) || bytes.Contains(line, []byte("brine"))
}
