package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"brine/internal/call/client/clienttest"
	"brine/test/daemontest"
)

// onTerminal runs a program of a node on a terminal of the given width. answers maps output of the
// program to the input to type when it appears. It returns all output of the terminal, with line
// ends as on a pipe.
func onTerminal(t *testing.T, n *daemontest.Node, width int, answers map[string]string, program string, args ...string) (text string, code int) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	ptm := os.NewFile(uintptr(fd), "ptmx")
	defer ptm.Close()
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: uint16(width)})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Without NOFLSH the kernel sends the signal of Ctrl-C and then discards output. On a busy
	// machine this would include the program's message about the signal.
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err == nil {
		mode.Lflag |= unix.NOFLSH
		err = unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, mode)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := daemontest.Brine.Command(t.Context(), t, program, append([]string{"-c", n.Dir}, args...)...)
	c.Stdin, c.Stdout, c.Stderr = tty, tty, tty
	c.Env = append(os.Environ(), "TERM=xterm", "LANG=C.UTF-8")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = c.Start()
	tty.Close()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	b := make([]byte, 4096)
	for {
		k, err := ptm.Read(b)
		all.Write(b[:k])
		for said, answer := range answers {
			if strings.Contains(all.String(), said) {
				delete(answers, said)
				if _, err := ptm.WriteString(answer); err != nil {
					t.Error(err)
				}
			}
		}
		if err != nil { // the program has ended
			break
		}
	}
	_ = c.Wait()
	return strings.ReplaceAll(all.String(), "\r\n", "\n"), c.ProcessState.ExitCode()
}

// TestOnTerminal runs programs as users see them: in color, with questions, progress and Ctrl-C; on
// a pipe there is none of these.
func TestOnTerminal(t *testing.T) {
	master, alpha := fleet(t, daemontest.Brine, daemontest.Brine)
	downMinion(t, master)
	pub, err := os.ReadFile(master.Path("etc/salt/pki/master/minions/beta"))
	if err != nil {
		t.Fatal(err)
	}
	new(field).write(t, master.Path("etc/salt/pki/master/minions_pre/lambda"), string(pub))

	const ctrlC = "\x03"
	for _, c := range []struct {
		name, program string
		args          []string // nil: those of the recording
		answers       map[string]string
	}{
		{"tty_test_ping", "salt", nil, nil},
		{"tty_key_accept", "salt-key", nil, map[string]string{"[n/Y]": "y\n"}},
	} {
		rec := clienttest.Read(t, recordings, c.name)
		got, code := onTerminal(t, master, 80, c.answers, c.program, rec.Args...)
		// A line that was shown for a while and then removed is progress.
		got = regexp.MustCompile(`\r[^\n\r]*\r?(\x1b\[K\r?)+`).ReplaceAllString(got, "")
		if code != rec.Exit || mask(got) != mask(rec.Stdout) {
			t.Errorf("%s: code %d\ngot  %q\nwant %q", c.name, code, got, rec.Stdout)
		}
	}

	if got, code := onTerminal(t, master, 80, map[string]string{"Executing job": ctrlC}, "salt", "-v", "-t", "60", "alpha", "test.sleep", "60"); code != 0 ||
		!strings.Contains(got, "Exiting gracefully on Ctrl-c\nThis job's jid is: ") || !strings.Contains(got, "salt-run jobs.lookup_jid 2") {
		t.Errorf("Ctrl-C: code %d, %q", code, got)
	}

	// Long commands show their progress, here until the test has seen it.
	for _, c := range []struct {
		seen, want, program string
		args                []string
	}{
		{"2/4 returned, ", `2/4 returned, \d+s, slowest (alpha|beta) \d+\.\ds, waiting for gamma, lambda\r`, "salt", []string{"-t", "60", "*", "test.ping"}},
		{"0/2 returned, ", `0/2 returned, \d+s, waiting for alpha\r`, "salt", []string{"-b", "1", "-t", "60", "-L", "alpha,beta", "test.sleep", "60"}},
		{"0/1 returned, ", `0/1 returned, \d+s, waiting for beta\r`, "salt", []string{"-s", "-t", "60", "beta", "test.sleep", "60"}},
		{"runs on the master, ", `test\.sleep runs on the master, \d+s\r`, "salt-run", []string{"test.sleep", "60"}},
	} {
		got, code := onTerminal(t, master, 80, map[string]string{c.seen: ctrlC}, c.program, c.args...)
		if code != 0 || !regexp.MustCompile(c.want).MatchString(got) || !strings.Contains(got, "\r\x1b[K\nExiting gracefully on Ctrl-c") {
			t.Errorf("%s %q: code %d, %q", c.program, c.args, code, got)
		}
	}

	states := []string{"--local", "state.single", "cmd.run", "name=true --and-more-words-than-fit"}
	shown := regexp.MustCompile(`\x1b\[K([^\r\x1b]+)\r`)
	for width, want := range map[int]string{80: `^(running|1/1): cmd\.run .*fit$`, 25: `^(running: .{15}|1/1: .{19})$`} {
		got, code := onTerminal(t, alpha, width, nil, "salt-call", states...)
		line := shown.FindStringSubmatch(got)
		if code != 0 || line == nil || !regexp.MustCompile(want).MatchString(line[1]) || !strings.Contains(got, "\r\x1b[K\x1b[0;3") {
			t.Errorf("width %d: code %d, %q shows %q, want %q", width, code, got, line, want)
		}
	}
	out, errs, code := alpha.Run(daemontest.Brine, "salt-call", states...)
	if code != 0 || strings.ContainsAny(out+errs, "\x1b\r") {
		t.Errorf("on a pipe: code %d, %q %q", code, out, errs)
	}
	out, errs, _ = master.Run(daemontest.Brine, "salt", "-b", "1", "-L", "alpha,beta", "test.ping")
	if strings.ContainsAny(out+errs, "\x1b\r") {
		t.Errorf("a batch on a pipe: %q %q", out, errs)
	}
	out, errs, _ = master.Run(daemontest.Brine, "salt", "alpha", "test.sleep", "1.5")
	if strings.ContainsAny(out+errs, "\x1b\r") {
		t.Errorf("a job that takes long, on a pipe: %q %q", out, errs)
	}
}
