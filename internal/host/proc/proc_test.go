package proc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func sh(script string) Cmd {
	return Cmd{Args: []string{"sh", "-c", script}, Env: os.Environ()}
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	mask := uint32(0o077)
	tests := []struct {
		name        string
		cmd         Cmd
		out, errOut string
		code        int
	}{
		{"separate", sh("echo out; echo err >&2; exit 3"), "out\n", "err\n", 3},
		{"combined", Cmd{Args: []string{"sh", "-c", "echo out; echo err >&2"}, Env: os.Environ(), Combined: true}, "out\nerr\n", "", 0},
		{"signal", sh("kill -9 $$"), "", "", -9},
		{"stdin", Cmd{Args: []string{"cat"}, Env: os.Environ(), Stdin: []byte("a\nb")}, "a\nb", "", 0},
		{"no stdin", Cmd{Args: []string{"cat"}, Env: os.Environ()}, "", "", 0},
		{"unread stdin", Cmd{Args: []string{"true"}, Env: os.Environ(), Stdin: bytes.Repeat([]byte("x"), 1<<20)}, "", "", 0},
		{"dir", Cmd{Args: []string{"pwd"}, Env: os.Environ(), Dir: dir}, dir + "\n", "", 0},
		{"env", Cmd{Args: []string{"/usr/bin/env"}, Env: []string{"A=1"}}, "A=1\n", "", 0},
		{"empty env", Cmd{Args: []string{"/usr/bin/env"}}, "", "", 0},
		{"umask", Cmd{Args: []string{"sh", "-c", "umask; echo \"$1\"", "x", "a b"}, Env: os.Environ(), Umask: &mask}, "0077\na b\n", "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Run(t.Context(), tt.cmd)
			if err != nil {
				t.Fatal(err)
			}
			if string(r.Stdout) != tt.out || string(r.Stderr) != tt.errOut || r.Code != tt.code || r.PID <= 0 {
				t.Errorf("got %+v, stdout %q stderr %q", r, r.Stdout, r.Stderr)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		dir  string
		want error
	}{
		{[]string{"no-such-program"}, "", syscall.ENOENT},
		{[]string{dir + "/none"}, "", syscall.ENOENT},
		{[]string{plain}, "", syscall.EACCES},
		{[]string{dir}, "", syscall.EACCES},
		{nil, "", syscall.ENOENT},
		{[]string{"true"}, dir + "/none", syscall.ENOENT},
	} {
		// A directory of PATH that the user of the test cannot read is another error.
		_, err := Run(t.Context(), Cmd{Args: tt.args, Dir: tt.dir, Env: []string{"PATH=/usr/bin:/bin"}})
		var start *StartError
		if !errors.As(err, &start) || !errors.Is(err, tt.want) {
			t.Errorf("%q in %q: %v, want a StartError of %v", tt.args, tt.dir, err, tt.want)
		}
	}
}

// gone waits until a process has ended, or fails.
func gone(t *testing.T, pid int) {
	t.Helper()
	for range 500 {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		if state, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil && strings.Contains(string(state), ") Z ") {
			return // killed, but not yet reaped by its new parent
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d is still there", pid)
}

func TestTimeoutEndsTheGroup(t *testing.T) {
	c := sh("sleep 1000 & echo $!; sleep 1000")
	c.Timeout = 300 * time.Millisecond
	r, err := Run(t.Context(), c)
	if err != nil || !r.TimedOut || r.Code != -9 {
		t.Fatalf("got %+v, %v", r, err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(r.Stdout)))
	if err != nil {
		t.Fatal(err)
	}
	gone(t, child)
}

// fifo returns a function that blocks until a script writes to the path.
func fifo(t *testing.T) (path string, wait func() string) {
	path = filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, func() string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(b))
	}
}

func TestCancelAsksFirst(t *testing.T) {
	path, wait := fifo(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("stopped")
	go func() { wait(); cancel(why) }()
	r, err := Run(ctx, sh("trap 'echo asked; exit 5' TERM; echo > "+path+"; while :; do sleep 0.05; done"))
	if !errors.Is(err, why) || string(r.Stdout) != "asked\n" || r.Code != 5 {
		t.Errorf("got %+v %q, %v", r, r.Stdout, err)
	}
	if _, err := Run(ctx, sh("true")); !errors.Is(err, why) {
		t.Errorf("a run after the end of the context: %v", err)
	}
}

// TestEscapedChild checks that Run does not wait for a process that left the group and
// keeps the output open.
func TestEscapedChild(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	c := sh("setsid sh -c 'echo $$ > " + path + "; exec sleep 1000' & sleep 1000")
	c.Timeout = 300 * time.Millisecond
	r, err := Run(t.Context(), c)
	if err != nil || !r.TimedOut {
		t.Fatalf("got %+v, %v", r, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("the escaped process is gone: %v", err)
	}
}

func TestMaxOutput(t *testing.T) {
	for _, size := range []int{1000, 1001} {
		c := sh("head -c " + strconv.Itoa(size) + " /dev/zero; true")
		c.MaxOutput = 1000
		r, err := Run(t.Context(), c)
		if size <= 1000 && (err != nil || len(r.Stdout) != size) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if size > 1000 && !errors.Is(err, ErrOutput) {
			t.Errorf("%d bytes: %v, want ErrOutput", size, err)
		}
	}
	c := sh("yes")
	c.MaxOutput = 1000
	if _, err := Run(t.Context(), c); !errors.Is(err, ErrOutput) {
		t.Errorf("endless output: %v", err)
	}
}

func TestGroup(t *testing.T) {
	path, wait := fifo(t)
	var g Group
	ctx := WithGroup(t.Context(), &g)
	done := make(chan Result, 1)
	go func() {
		r, err := Run(ctx, sh("echo $$ > "+path+"; sleep 1000"))
		if err != nil {
			t.Error(err)
		}
		done <- r
	}()
	pid := wait()
	if got := g.PIDs(); len(got) != 1 || strconv.Itoa(got[0]) != pid {
		t.Errorf("PIDs = %v, want %s", got, pid)
	}
	if n := g.Signal(syscall.SIGUSR1); n != 1 {
		t.Errorf("signalled %d", n)
	}
	if r := <-done; r.Code != -int(syscall.SIGUSR1) {
		t.Errorf("code %d", r.Code)
	}
	if got := g.PIDs(); len(got) != 0 {
		t.Errorf("PIDs after the end = %v", got)
	}
}

func TestStart(t *testing.T) {
	path, wait := fifo(t)
	pid, err := Start(sh("echo $$ > " + path))
	if err != nil {
		t.Fatal(err)
	}
	if got := wait(); got != strconv.Itoa(pid) {
		t.Errorf("pid %d, the program says %s", pid, got)
	}
	gone(t, pid)
}

func TestRunAs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run programs as another user")
	}
	u, err := LookupUser(t.Context(), "nobody")
	if err != nil {
		t.Fatal(err)
	}
	c := sh("id -un; id -G")
	c.As, c.Dir = u, "/"
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := "nobody\n" + strconv.Itoa(int(u.GID)) + "\n"
	if string(r.Stdout) != want {
		t.Errorf("got %q, want %q", r.Stdout, want)
	}
	env, err := LoginEnv(t.Context(), "nobody", "/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(env, "\n"), "USER=nobody") {
		t.Errorf("login environment %q", env)
	}
}

func TestLookup(t *testing.T) {
	if _, err := LookupUser(t.Context(), "no-such-user"); !errors.Is(err, ErrNoUser) {
		t.Errorf("user: %v", err)
	}
	if _, err := LookupGroup(t.Context(), "no-such-group"); !errors.Is(err, ErrNoGroup) {
		t.Errorf("group: %v", err)
	}
	if id, err := LookupGroup(t.Context(), "root"); err != nil || id != 0 {
		t.Errorf("group root: %d, %v", id, err)
	}
}
