// Package host gives access to one machine: its files, its environment and
// its programs. The packages below it turn these into typed facts, one family
// each: host/cpu, host/disk, host/netif and so on. None of them knows Salt's
// names or quirks.
//
// A Machine with a Root other than "/" is a copy of another machine's files, as
// used in tests: nothing outside Root is read and no program is run, unless the
// Machine's own functions say otherwise. A file that is missing, too large or
// unreadable counts as absent.
package host

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"brine/internal/base/atomicfile"
)

// MaxFile bounds the size in bytes of files to read. The largest relevant file
// is the package database of a large system.
const MaxFile = 64 << 20

// maxOutput bounds the output of a program.
const maxOutput = 4 << 20

// Machine is one machine. The zero Machine is the live one. Its fields must not
// change once it is in use; it is safe for concurrent use.
type Machine struct {
	// Root is the directory with the machine's files; "" means "/".
	Root string
	// Getenv reads the environment; nil means os.Getenv, or an empty
	// environment below another root.
	Getenv func(name string) string
	// Exec runs a program, given by its full path, and returns its output. If
	// nil, programs run on the live machine, or not at all below another root.
	Exec func(ctx context.Context, path string, args ...string) (stdout string, exit int, err error)
	// ExecCmd does the same for Command, and for Run and Do if Exec is nil. The
	// program is given by its full path.
	ExecCmd func(ctx context.Context, c Cmd) (Output, error)
}

// Cmd is a program to run, with options.
type Cmd struct {
	Program string
	Args    []string
	// Env holds NAME=value entries added to the environment.
	Env []string
	// Dir is the working directory; "" means "/".
	Dir string
	// Stdin is the input of the program.
	Stdin string
	// As, if set, is the user to run as.
	As *syscall.Credential
	// NoLocale does not set the C locale.
	NoLocale bool
	// Joined writes stderr to stdout, in the order written.
	Joined bool
	arg0   string // argv[0], if not the path
}

// ErrNoPrograms is the error of Run on a machine that is not live.
var ErrNoPrograms = errors.New("programs of this machine cannot run here")

// Live reports whether the machine is the live one, so that its kernel can be
// queried by system calls too.
func (m *Machine) Live() bool { return m.Root == "" || m.Root == "/" }

// Superuser reports whether this process can read and run what needs root. It
// is true below another root.
func (m *Machine) Superuser() bool { return !m.Live() || os.Geteuid() == 0 }

// Path returns the local path of a path of the machine.
func (m *Machine) Path(path string) string {
	if m.Live() {
		return path
	}
	return filepath.Join(m.Root, path)
}

// Env returns a variable of the environment, or "".
func (m *Machine) Env(name string) string {
	switch {
	case m.Getenv != nil:
		return m.Getenv(name)
	case m.Live():
		return os.Getenv(name)
	}
	return ""
}

// ReadFile returns the content of a file of at most MaxFile bytes.
func (m *Machine) ReadFile(path string) ([]byte, error) {
	f, err := os.Open(m.Path(path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tooLarge := &os.PathError{Op: "read", Path: path, Err: errors.New("file is too large")}
	var b bytes.Buffer
	if st, err := f.Stat(); err == nil && st.Mode().IsRegular() {
		if st.Size() > MaxFile {
			return nil, tooLarge
		}
		b.Grow(int(st.Size()) + bytes.MinRead) // the size is 0 in /proc
	}
	n, err := b.ReadFrom(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if n > MaxFile {
		return nil, tooLarge
	}
	return b.Bytes(), nil
}

// Stat describes a file, following links.
func (m *Machine) Stat(path string) (os.FileInfo, error) { return os.Stat(m.Path(path)) }

// WriteFile atomically replaces the content of a file, or creates it with mode
// 0644 and its directories. Owner and mode of an existing file stay.
func (m *Machine) WriteFile(path string, data []byte) error {
	path = m.Path(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := -1
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		mode = 0o644
	}
	return atomicfile.Replace(path, mode, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Chmod changes the mode of a file.
func (m *Machine) Chmod(path string, mode os.FileMode) error { return os.Chmod(m.Path(path), mode) }

// Text returns the content of a file as valid UTF-8, or "" if there is none.
func (m *Machine) Text(path string) string {
	b, err := m.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(b), "\ufffd")
}

// Lines returns the lines of a file without their ends.
func (m *Machine) Lines(path string) []string {
	t := m.Text(path)
	if t == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(t, "\n"), "\n")
}

// Exists reports whether path exists, following links.
func (m *Machine) Exists(path string) bool {
	_, err := os.Stat(m.Path(path))
	return err == nil
}

// IsDir reports whether path is a directory or a link to one.
func (m *Machine) IsDir(path string) bool {
	st, err := os.Stat(m.Path(path))
	return err == nil && st.IsDir()
}

// IsFile reports whether path is a regular file or a link to one.
func (m *Machine) IsFile(path string) bool {
	st, err := os.Stat(m.Path(path))
	return err == nil && st.Mode().IsRegular()
}

// List returns the sorted names in a directory, none if it cannot be read.
func (m *Machine) List(dir string) []string {
	entries, err := os.ReadDir(m.Path(dir))
	if err != nil {
		return nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// usualDirs are searched for programs after PATH.
var usualDirs = []string{"/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"}

// Which returns the full path of a program, searched for in PATH and then in
// the usual directories, or "".
func (m *Machine) Which(program string) string {
	if strings.Contains(program, "/") {
		if m.executable(program) {
			return program
		}
		return ""
	}
	for _, dir := range append(filepath.SplitList(m.Env("PATH")), usualDirs...) {
		if !filepath.IsAbs(dir) {
			continue // relative to the working directory: not a property of the machine
		}
		if p := filepath.Join(dir, program); m.executable(p) {
			return p
		}
	}
	return ""
}

func (m *Machine) executable(path string) bool {
	if !m.IsFile(path) {
		return false
	}
	return unix.Access(m.Path(path), unix.X_OK) == nil
}

// Run runs a program in the C locale and returns its stdout without the line
// end. It is an error if the program is not found or cannot be started; a
// failure is reported by the exit code.
func (m *Machine) Run(ctx context.Context, program string, args ...string) (stdout string, exit int, err error) {
	out, err := m.Command(ctx, Cmd{Program: program, Args: args})
	return out.Stdout, out.Exit, err
}

func execute(ctx context.Context, stderr io.Writer, c Cmd) (string, int, error) {
	cmd := exec.CommandContext(ctx, c.Program, c.Args...)
	if c.arg0 != "" {
		cmd.Args[0] = c.arg0
	}
	cmd.Env = os.Environ()
	if !c.NoLocale {
		cmd.Env = append(cmd.Env, "LC_ALL=C", "LANG=C", "LANGUAGE=C", "SYSTEMD_PAGER=")
	}
	cmd.Env = append(cmd.Env, c.Env...)
	if cmd.Dir = c.Dir; cmd.Dir == "" {
		cmd.Dir = "/"
	}
	if c.Stdin != "" {
		cmd.Stdin = strings.NewReader(c.Stdin)
	}
	if c.As != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.As}
	}
	cmd.WaitDelay = time.Second // for grandchildren that keep the pipe open
	out := new(bounded)
	if cmd.Stdout, cmd.Stderr = out, stderr; c.Joined {
		cmd.Stderr = out
	}
	err := cmd.Run()
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.Exited() || errors.Is(err, exec.ErrWaitDelay) && ctx.Err() == nil {
		err = nil // also if a daemon that it started holds the pipe: the program itself ended
	}
	text := plain(out.kept)
	if err != nil {
		return text, 0, err
	}
	return text, cmd.ProcessState.ExitCode(), nil
}

// Output is the result of a program.
type Output struct {
	Stdout, Stderr string // without the last line end
	Exit           int
}

// Message returns what the program wrote to stderr or, if that is nothing, to
// stdout.
func (o Output) Message() string {
	if o.Stderr != "" {
		return o.Stderr
	}
	return o.Stdout
}

// Do runs a program like Run and also returns its stderr, for programs that
// change something and whose messages are logged. A Machine with Exec has no
// stderr.
func (m *Machine) Do(ctx context.Context, program string, args ...string) (Output, error) {
	return m.Command(ctx, Cmd{Program: program, Args: args})
}

// Command runs a program, found as by Run, with the options of c. A Machine
// with Exec gets only the arguments.
func (m *Machine) Command(ctx context.Context, c Cmd) (Output, error) {
	if m.Exec == nil && m.ExecCmd == nil && !m.Live() {
		return Output{}, ErrNoPrograms
	}
	path := m.Which(c.Program)
	if path == "" {
		return Output{}, &exec.Error{Name: c.Program, Err: exec.ErrNotFound}
	}
	if !strings.Contains(c.Program, "/") {
		c.arg0 = c.Program // programs start their error messages with it
	}
	c.Program = path
	switch {
	case m.ExecCmd != nil:
		return m.ExecCmd(ctx, c)
	case m.Exec != nil:
		stdout, exit, err := m.Exec(ctx, path, c.Args...)
		return Output{Stdout: stdout, Exit: exit}, err
	}
	return c.Execute(ctx)
}

// Execute runs the program here, whose full path is Program.
func (c Cmd) Execute(ctx context.Context) (Output, error) {
	stderr := new(bounded)
	stdout, exit, err := execute(ctx, stderr, c)
	return Output{stdout, plain(stderr.kept), exit}, err
}

// plain converts output to a string.
func plain(b []byte) string {
	return strings.TrimRight(strings.ToValidUTF8(string(b), "\ufffd"), "\r\n")
}

// bounded keeps the first maxOutput bytes and drops the rest.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}

// Uname is the output of uname(1).
type Uname struct {
	System  string // "Linux"
	Node    string // the host name
	Release string // "6.1.0-18-amd64"
	Version string // "#1 SMP …"
	Machine string // "x86_64"
}

// Uname returns the names of kernel and machine. For a machine that is not live
// it reads /proc/sys/kernel.
func (m *Machine) Uname() Uname {
	if m.Live() {
		var u unix.Utsname
		if unix.Uname(&u) == nil {
			return Uname{
				System: unix.ByteSliceToString(u.Sysname[:]), Node: unix.ByteSliceToString(u.Nodename[:]),
				Release: unix.ByteSliceToString(u.Release[:]), Version: unix.ByteSliceToString(u.Version[:]),
				Machine: unix.ByteSliceToString(u.Machine[:]),
			}
		}
	}
	read := func(name string) string { return strings.TrimSpace(m.Text("/proc/sys/kernel/" + name)) }
	return Uname{System: read("ostype"), Node: read("hostname"), Release: read("osrelease"), Version: read("version"), Machine: read("arch")}
}
