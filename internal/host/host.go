// Package host gives access to one machine: its files, its environment and
// its programs. The packages below it turn these into typed facts, one family
// each: host/cpu, host/disk, host/netif and so on. None of them knows Salt's
// names or quirks.
//
// A Machine with a Root other than "/" is a copy of another machine's files,
// as tests use: nothing outside Root is read and no program is run, unless
// the Machine's own functions say otherwise. A file that is missing, too large
// or unreadable counts as absent; facts are what could be found.
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

// MaxFile is the size in bytes up to which a file is read. The package
// database of a large system is the largest one of interest.
const MaxFile = 64 << 20

// maxOutput bounds what a program may print.
const maxOutput = 4 << 20

// Machine is one machine. The zero Machine is the one we run on. Its fields
// must not change once it is in use; it is safe for concurrent use.
type Machine struct {
	// Root is the folder that holds the machine's files; "" means "/".
	Root string
	// Getenv reads the environment; nil means os.Getenv, or an empty
	// environment below another root.
	Getenv func(name string) string
	// Exec runs a program, given by its full path, and returns what it
	// prints. It may be nil: programs then run here, or not at all below
	// another root.
	Exec func(ctx context.Context, path string, args ...string) (stdout string, exit int, err error)
	// ExecCmd does the same for Command, and for Run and Do if Exec is nil. The
	// program is given by its full path.
	ExecCmd func(ctx context.Context, c Cmd) (Output, error)
}

// Cmd is a program to run with more than arguments.
type Cmd struct {
	Program string
	Args    []string
	// Env holds NAME=value entries that are added to the environment.
	Env []string
	// Dir is the working folder; "" means "/".
	Dir string
	// Stdin is what the program reads.
	Stdin string
	// As, if set, is who the program runs as.
	As *syscall.Credential
	// NoLocale leaves out the plain C locale.
	NoLocale bool
	// Joined has stderr go where stdout goes, in the order in which it is
	// written.
	Joined bool
	arg0   string // what the program is called, if not by its path
}

// ErrNoPrograms is the error of Run on a machine whose programs cannot run
// here.
var ErrNoPrograms = errors.New("programs of this machine cannot run here")

// Live reports whether the machine is the one we run on, so that the kernel
// may be asked in other ways than through files.
func (m *Machine) Live() bool { return m.Root == "" || m.Root == "/" }

// Superuser reports whether what only root may read or run can be used. On
// another machine's files it counts as so: what can be read there is all.
func (m *Machine) Superuser() bool { return !m.Live() || os.Geteuid() == 0 }

// Path returns where path of the machine is found here.
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

// Stat describes a file, followed through links.
func (m *Machine) Stat(path string) (os.FileInfo, error) { return os.Stat(m.Path(path)) }

// WriteFile replaces the content of a file in one step, or makes one with
// mode 0644 and the folders that it needs. Owner and mode of a file stay.
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

// Text returns the content of a file as valid UTF-8, or "" without one.
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

// Exists reports whether path, followed through links, is there.
func (m *Machine) Exists(path string) bool {
	_, err := os.Stat(m.Path(path))
	return err == nil
}

// IsDir reports whether path is a folder or a link to one.
func (m *Machine) IsDir(path string) bool {
	st, err := os.Stat(m.Path(path))
	return err == nil && st.IsDir()
}

// IsFile reports whether path is a regular file or a link to one.
func (m *Machine) IsFile(path string) bool {
	st, err := os.Stat(m.Path(path))
	return err == nil && st.Mode().IsRegular()
}

// List returns the sorted names in a folder, none if it cannot be read.
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

// usualFolders are searched for programs after those of PATH.
var usualFolders = []string{"/sbin", "/bin", "/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"}

// Which returns the full path of a program, searched for in PATH and then in
// the usual folders, or "".
func (m *Machine) Which(program string) string {
	if strings.Contains(program, "/") {
		if m.executable(program) {
			return program
		}
		return ""
	}
	for _, dir := range append(filepath.SplitList(m.Env("PATH")), usualFolders...) {
		if !filepath.IsAbs(dir) {
			continue // relative to where we happen to be: not a fact of the machine
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

// Run runs a program with a plain C locale and returns what it prints to
// stdout, without the line end. A program that is not found or cannot be
// started is an error; one that fails is told by its exit code.
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
		err = nil // also if a daemon that it started holds the pipe: the program itself is done
	}
	text := plain(out.kept)
	if err != nil {
		return text, 0, err
	}
	return text, cmd.ProcessState.ExitCode(), nil
}

// Output is what a program left behind.
type Output struct {
	Stdout, Stderr string // without the last line end
	Exit           int
}

// Do runs a program like Run and returns what it prints to stderr too, for
// programs that change something and whose words are worth a line in a log.
// A Machine with Exec shows no stderr.
func (m *Machine) Do(ctx context.Context, program string, args ...string) (Output, error) {
	return m.Command(ctx, Cmd{Program: program, Args: args})
}

// Command runs a program, found as Run finds it, in the way that c describes.
// A Machine with Exec sees only the arguments.
func (m *Machine) Command(ctx context.Context, c Cmd) (Output, error) {
	if m.Exec == nil && m.ExecCmd == nil && !m.Live() {
		return Output{}, ErrNoPrograms
	}
	path := m.Which(c.Program)
	if path == "" {
		return Output{}, &exec.Error{Name: c.Program, Err: exec.ErrNotFound}
	}
	if !strings.Contains(c.Program, "/") {
		c.arg0 = c.Program // which programs begin their complaints with
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

// plain makes text of output.
func plain(b []byte) string {
	return strings.TrimRight(strings.ToValidUTF8(string(b), "\ufffd"), "\r\n")
}

// bounded keeps the first maxOutput bytes written to it and drops the rest.
type bounded struct{ kept []byte }

func (b *bounded) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), maxOutput-len(b.kept))]...)
	return len(p), nil
}

// Uname is what uname(1) prints.
type Uname struct {
	System  string // "Linux"
	Node    string // the host name
	Release string // "6.1.0-18-amd64"
	Version string // "#1 SMP …"
	Machine string // "x86_64"
}

// Uname returns the names of kernel and machine. Of a machine that is not
// live it reads what the kernel shows in /proc/sys/kernel.
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
