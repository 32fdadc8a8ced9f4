package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// grace is the time between SIGTERM and SIGKILL when the context ends.
const grace = 2 * time.Second

// drain bounds reading output after a group was killed. Only a process that
// left the group can keep the output open.
const drain = 200 * time.Millisecond

// ErrOutput means that a program wrote more than Cmd.MaxOutput and was killed.
var ErrOutput = errors.New("too much output")

// StartError means that a program could not be started.
type StartError struct {
	// Name is the program, or the directory if that caused the error.
	Name string
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot start %s: %v", e.Name, e.Err) }
func (e *StartError) Unwrap() error { return e.Err }

// Cmd is a program to run.
type Cmd struct {
	// Args are the program and its arguments. A program without slash is
	// looked for in the PATH of Env.
	Args []string
	// Dir is the working directory, "" for that of this process.
	Dir string
	// Env is the whole environment, in the form NAME=value.
	Env []string
	// Stdin is the input; nil is empty.
	Stdin []byte
	// Combined writes standard error into standard output.
	Combined bool
	// As, if set, is the user to run as. That needs root.
	As *User
	// Umask, if set, is the file mode mask.
	Umask *uint32
	// Timeout ends the program after this time; 0 is none.
	Timeout time.Duration
	// MaxOutput bounds each of the two outputs in bytes; 0 is no bound.
	MaxOutput int
	// DieWithParent kills the program when this process ends, even by SIGKILL
	// (Linux only).
	DieWithParent bool
}

// Result is the result of a program.
type Result struct {
	PID int
	// Code is the exit status, or the negative number of the signal that
	// ended the program.
	Code           int
	Stdout, Stderr []byte
	// TimedOut says that Timeout ended the program.
	TimedOut bool
}

// Run runs a program and waits until it has ended and its output is closed. The
// error is a *StartError, ErrOutput, or that of the context; a nonzero exit
// status is not an error.
func Run(ctx context.Context, c Cmd) (Result, error) {
	if err := context.Cause(ctx); err != nil {
		return Result{}, err
	}
	cmd, err := c.command()
	if err != nil {
		return Result{}, err
	}
	p := &running{cmd: cmd, max: c.MaxOutput, full: make(chan struct{})}
	untrack, err := tracked(ctx, func() (int, error) {
		if err := p.start(c); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err != nil {
		return Result{}, err
	}
	defer untrack()
	return p.wait(ctx, c.Timeout)
}

// Start starts a program that continues independently, without input and
// output, and returns its process id.
func Start(c Cmd) (pid int, err error) {
	cmd, err := c.command()
	if err != nil {
		return 0, err
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
	if err := cmd.Start(); err != nil {
		return 0, startError(cmd, err)
	}
	go func() { _ = cmd.Wait() }() // reaps the process
	return cmd.Process.Pid, nil
}

// command prepares the process without starting it.
func (c Cmd) command() (*exec.Cmd, error) {
	args := c.Args
	if len(args) == 0 || args[0] == "" {
		return nil, &StartError{Name: "", Err: syscall.ENOENT}
	}
	path, err := lookPath(args[0], c.Env, c.Dir)
	if err != nil {
		return nil, &StartError{Name: args[0], Err: err}
	}
	if c.Umask != nil {
		// The umask belongs to a whole process, so this one must not change it;
		// a shell sets it and executes the program.
		script := fmt.Sprintf(`umask %04o; exec "$0" "$@"`, *c.Umask)
		args = append([]string{"sh", "-c", script, path}, args[1:]...)
		path = "/bin/sh"
	}
	cmd := &exec.Cmd{Path: path, Args: args, Dir: c.Dir, Env: c.Env}
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if c.DieWithParent {
		dieWithParent(cmd.SysProcAttr)
	}
	if c.As != nil && int(c.As.UID) != os.Getuid() || c.As != nil && int(c.As.GID) != os.Getgid() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: c.As.UID, Gid: c.As.GID, Groups: c.As.Groups}
	}
	return cmd, nil
}

// lookPath looks up a program in the PATH of its own environment.
func lookPath(name string, env []string, dir string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name, dir)
	}
	list := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = v
		}
	}
	var worst error = syscall.ENOENT
	for _, d := range filepath.SplitList(list) {
		p := filepath.Join(d, name)
		err := executable(p, dir)
		if err == nil {
			return p, nil
		}
		if errors.Is(err, syscall.EACCES) {
			worst = err
		}
	}
	return "", worst
}

func executable(path, dir string) error {
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, syscall.ENOTDIR):
		return syscall.ENOTDIR
	case err != nil && os.IsPermission(err):
		return syscall.EACCES
	case err != nil:
		return syscall.ENOENT
	case info.IsDir() || info.Mode()&0o111 == 0:
		return syscall.EACCES
	}
	return nil
}

func startError(cmd *exec.Cmd, err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return &StartError{Name: cmd.Path, Err: errno}
	}
	return &StartError{Name: cmd.Path, Err: err}
}

// running is a started program and the pipes to it.
type running struct {
	cmd   *exec.Cmd
	pipes []*os.File // our ends of the pipes
	out   bytes.Buffer
	err   bytes.Buffer
	max   int
	once  sync.Once
	full  chan struct{} // closed when an output is larger than max
	io    sync.WaitGroup
}

// start opens the pipes, starts the program and the goroutines that serve it.
func (p *running) start(c Cmd) error {
	var theirs []*os.File
	fail := func(err error) error {
		for _, f := range append(theirs, p.pipes...) {
			f.Close()
		}
		return err
	}
	output := func() (r, w *os.File, err error) {
		r, w, err = os.Pipe()
		if err == nil {
			p.pipes, theirs = append(p.pipes, r), append(theirs, w)
		}
		return r, w, err
	}
	outR, outW, err := output()
	if err != nil {
		return fail(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = outW, outW
	var errR *os.File
	if !c.Combined {
		r, w, err := output()
		if err != nil {
			return fail(err)
		}
		errR, p.cmd.Stderr = r, w
	}
	var in *os.File
	if c.Stdin != nil {
		r, w, err := os.Pipe()
		if err != nil {
			return fail(err)
		}
		p.pipes, theirs = append(p.pipes, w), append(theirs, r)
		in, p.cmd.Stdin = w, r
	}
	if err := p.cmd.Start(); err != nil {
		return fail(startError(p.cmd, err))
	}
	for _, f := range theirs {
		f.Close()
	}
	p.io.Go(func() { p.read(outR, &p.out) })
	if errR != nil {
		p.io.Go(func() { p.read(errR, &p.err) })
	}
	if in != nil {
		p.io.Go(func() {
			_, _ = in.Write(c.Stdin) // a program need not read its input
			in.Close()
		})
	}
	return nil
}

func (p *running) read(r *os.File, into *bytes.Buffer) {
	src := io.Reader(r)
	if p.max > 0 {
		src = io.LimitReader(r, int64(p.max)+1)
	}
	_, _ = into.ReadFrom(src) // returns at the deadline
	if p.max > 0 && into.Len() > p.max {
		p.once.Do(func() { close(p.full) })
	}
}

// wait waits for the program and its output, or ends both.
func (p *running) wait(ctx context.Context, timeout time.Duration) (Result, error) {
	exited := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // the exit code is in the state
		close(exited)
	}()
	done := make(chan struct{})
	go func() {
		p.io.Wait()
		<-exited
		close(done)
	}()
	var clock <-chan time.Time
	if timeout > 0 {
		t := time.NewTimer(timeout)
		defer t.Stop()
		clock = t.C
	}
	res := Result{PID: p.cmd.Process.Pid}
	var err error
	select {
	case <-done:
	case <-clock:
		res.TimedOut = true
	case <-p.full:
		err = ErrOutput
	case <-ctx.Done():
		err = context.Cause(ctx)
		p.terminate(done)
	}
	p.kill(done)
	for _, f := range p.pipes {
		f.Close()
	}
	select {
	case <-p.full:
		err = ErrOutput
	default:
	}
	res.Stdout, res.Stderr, res.Code = p.out.Bytes(), p.err.Bytes(), code(p.cmd.ProcessState)
	return res, err
}

// terminate sends SIGTERM to the group and waits for grace.
func (p *running) terminate(done <-chan struct{}) {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// kill kills the group if it still runs, and waits for its end.
func (p *running) kill(done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	for _, f := range p.pipes {
		_ = f.SetDeadline(time.Now().Add(drain))
	}
	<-done
}

func code(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return s.ExitCode()
}
