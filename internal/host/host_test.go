package host

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, root, name, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestOtherRoot(t *testing.T) {
	root := t.TempDir()
	m := &Machine{Root: root}
	write(t, root, "etc/a", "one\ntwo \xff\n", 0o644)
	write(t, root, "bin/tool", "", 0o755)
	write(t, root, "usr/local/bin/noexec", "", 0o644)
	write(t, root, "proc/sys/kernel/ostype", "Linux\n", 0o644)
	write(t, root, "proc/sys/kernel/hostname", "web\n", 0o644)
	if m.Live() || m.Path("/etc/a") != filepath.Join(root, "etc/a") {
		t.Error("the root is not used")
	}
	if got := m.Lines("/etc/a"); len(got) != 2 || got[1] != "two \ufffd" {
		t.Errorf("lines %q", got)
	}
	if m.Lines("/etc/none") != nil || m.Text("/etc/none") != "" || m.List("/none") != nil {
		t.Error("missing files have content")
	}
	if !m.Exists("/etc/a") || !m.IsFile("/etc/a") || m.IsDir("/etc/a") || !m.IsDir("/etc") || m.Exists("/etc/passwd") {
		t.Error("the kinds of files are wrong")
	}
	if m.Which("tool") != "/bin/tool" || m.Which("noexec") != "" || m.Which("/bin/tool") != "/bin/tool" || m.Which("sh") != "" {
		t.Error("programs are searched for in the wrong place")
	}
	if m.Env("PATH") != "" {
		t.Error("the environment is ours")
	}
	if _, _, err := m.Run(t.Context(), "tool"); !errors.Is(err, ErrNoPrograms) {
		t.Errorf("run: %v", err)
	}
	if u := m.Uname(); u.System != "Linux" || u.Node != "web" || u.Machine != "" {
		t.Errorf("uname %+v", u)
	}
	m.Exec = func(_ context.Context, path string, args ...string) (string, int, error) {
		return path + " " + strings.Join(args, " "), 3, nil
	}
	if out, exit, err := m.Run(t.Context(), "tool", "a", "b"); out != "/bin/tool a b" || exit != 3 || err != nil {
		t.Errorf("run: %q, %d, %v", out, exit, err)
	}
	m.Getenv = func(name string) string { return "<" + name + ">" }
	if m.Env("X") != "<X>" {
		t.Error("Getenv is not used")
	}
}

func TestRunHere(t *testing.T) {
	m := &Machine{}
	if m.Which("sh") == "" {
		t.Skip("there is no shell here")
	}
	out, exit, err := m.Run(t.Context(), "sh", "-c", "echo $LC_ALL; echo err >&2; exit 4")
	if out != "C" || exit != 4 || err != nil {
		t.Errorf("got %q, %d, %v", out, exit, err)
	}
	out, exit, err = m.Run(t.Context(), "sh", "-c", "sleep 60 & echo started $!") // as daemons that keep their inherited output
	pid, isDaemon := strings.CutPrefix(out, "started ")
	if !isDaemon || exit != 0 || err != nil {
		t.Errorf("a daemon that holds the output: %q, %d, %v", out, exit, err)
	}
	if _, _, err := m.Run(t.Context(), "sh", "-c", "kill "+pid); err != nil {
		t.Error(err)
	}
	if _, _, err := m.Run(t.Context(), "no-such-program-here"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing program: %v", err)
	}
	out, exit, err = m.Run(t.Context(), "sh", "-c", "head -c 9000000 /dev/zero | tr '\\0' x")
	if len(out) != maxOutput || exit != 0 || err != nil {
		t.Errorf("long output: %d bytes, %d, %v", len(out), exit, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := m.Run(ctx, "sleep", "60"); err == nil {
		t.Error("a program runs longer than its timeout")
	}
}

func TestUnameHere(t *testing.T) {
	u := (&Machine{}).Uname()
	if u.System != "Linux" || u.Release == "" || u.Machine == "" {
		t.Errorf("uname %+v", u)
	}
}

func TestLargeFile(t *testing.T) {
	root := t.TempDir()
	f, err := os.Create(filepath.Join(root, "large"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(MaxFile + 1); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Machine{Root: root}).ReadFile("/large"); err == nil {
		t.Error("a file above the limit is read")
	}
}
