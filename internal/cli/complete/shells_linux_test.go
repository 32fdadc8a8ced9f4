package complete_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/test/tools"

	"golang.org/x/sys/unix"
)

// home is a directory with the programs, and the environment of a shell in it.
func home(t *testing.T, shell string) (dir string, env []string) {
	t.Helper()
	tools.Need(t, shell, shell)
	dir = t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"brine", "salt", "salt-key", "salt-call", "salt-cp"} {
		if err := os.Symlink(self, filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
	env = []string{"PATH=" + dir + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + dir, "TERM=dumb", "LC_ALL=C.UTF-8",
		programEnv + "=1", "SALT_CONFIG_DIR=" + newMaster(t)}
	cmd := exec.Command(filepath.Join(dir, "brine"), "completion", shell)
	cmd.Env = env
	script, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "script"), script, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, env
}

// terminal is an interactive shell on a pseudo-terminal.
type terminal struct {
	t *testing.T
	f *os.File
}

func newTerminal(t *testing.T, dir string, env []string, args ...string) *terminal {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	f := os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { f.Close() })
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 200})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = tty, tty, tty, env, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &terminal{t: t, f: f}
}

// typed types text and waits until the terminal shows want.
func (x *terminal) typed(text, want string) {
	x.t.Helper()
	if _, err := x.f.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
	x.f.SetReadDeadline(time.Now().Add(time.Minute))
	seen, buf := "", make([]byte, 4096)
	for !strings.Contains(seen, want) {
		n, err := x.f.Read(buf)
		seen += string(buf[:n])
		if err != nil {
			x.t.Fatalf("typed %q, saw %q, not %q: %v", text, seen, want, err)
		}
	}
}

const clearLine = "\x15" // Ctrl-U

func TestBash(t *testing.T) {
	dir, env := home(t, "bash")
	x := newTerminal(t, dir, append(env, "PS1=READY>"), "bash", "--norc", "--noprofile", "-i")
	x.typed("bind 'set bell-style none'; source ./script; echo LOA''DED\n", "LOADED")
	for _, c := range []struct{ keys, want string }{
		{"echo -n; salt al\t", "salt alpha "},
		{"salt -L alpha,b\t", "alpha,beta.x-y "},
		{"salt --out=js\t", "--out=json "},
		{"salt '*' test.pi\t", "test.ping "},
		{"salt --state-verbose=\tT\t", "--state-verbose=True "},
		{"salt '*' cmd.run cw\t", "cwd="},
		{"salt 'al\t", "'alpha' "},
		{"salt-key -a g\t", "gamma "},
		{"salt-cp alpha ./scri\t", "./script "},
		{"brine salt-ke\t", "salt-key "},
	} {
		x.typed(clearLine+c.keys, c.want)
	}
}

func TestZsh(t *testing.T) {
	dir, env := home(t, "zsh")
	x := newTerminal(t, dir, append(env, "PS1=READY>"), "zsh", "-f", "-i")
	x.typed("unsetopt zle_bracketed_paste prompt_sp; autoload -U compinit; compinit -D -u; source ./script; echo LOA''DED\n", "LOADED")
	for _, c := range []struct{ keys, want string }{
		{"salt al\t", "alpha "},
		{"salt -L alpha,b\t", "beta.x-y "},
		{"salt --out=js\t", "json "},
		{"salt '*' test.pi\t", "ping "},
		{"salt '*' cmd.run cw\t", "cwd="},
		{"salt-key -a g\t", "gamma "},
		{"salt-cp alpha ./scri\t", "script "},
		{"brine salt-ke\t", "key "},
	} {
		x.typed(clearLine+c.keys, c.want)
	}
}

// TestFish: fish also reports its completions to scripts.
func TestFish(t *testing.T) {
	dir, env := home(t, "fish")
	for line, want := range map[string]string{
		"salt al":               "alpha",
		"salt ":                 "alpha\nbeta.x-y",
		"salt -L alpha,b":       "alpha,beta.x-y",
		"salt --out=js":         "--out=json",
		"salt '*' test.pi":      "test.ping\tSay that the minion is up and listens",
		"salt '*' cmd.run cw":   "cwd=\tabsolute path of the working directory; the home of the user if null",
		"salt-key -a ":          "delta\nepsilon\ngamma",
		"salt-cp alpha ./scrip": "./script",
		"brine salt-ke":         "salt-key\tmanage the keys of minions",
	} {
		cmd := exec.Command("fish", "--no-config", "-c", "source ./script; complete -C \""+line+"\"")
		cmd.Env, cmd.Dir = env, dir
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Errorf("%s: %v, got %q, want %q", line, err, got, want)
		}
	}
}
