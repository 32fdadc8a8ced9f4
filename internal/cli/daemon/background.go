package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"brine/internal/cli/frame"
)

// backgroundEnv marks a process that was started in the background. It reports the result of its
// start to its parent on file descriptor 3.
const backgroundEnv = "BRINE_BACKGROUND"

// background starts this program again without a terminal and waits until it is up, so that the
// exit code reports whether it started.
func (b *blueprint) background(env *frame.Env, args []string) int {
	self, err := os.Executable()
	if err != nil {
		env.Errorf("%v", err)
		return frame.ExitFailure
	}
	r, w, err := os.Pipe()
	if err != nil {
		env.Errorf("%v", err)
		return frame.ExitFailure
	}
	defer r.Close()
	cmd := exec.Command(self, args...)
	cmd.Args[0] = b.command.Name
	cmd.Env = append(os.Environ(), backgroundEnv+"=1")
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		env.Errorf("cannot start in the background: %v", err)
		return frame.ExitFailure
	}
	w.Close()
	line, _ := bufio.NewReader(r).ReadString('\n')
	if line == "up\n" {
		return frame.ExitOK
	}
	if line = strings.TrimSpace(line); line != "" {
		env.Errorf("%s: %s", b.command.Name, line)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return frame.ExitFailure
}

// detach completes the change to a background process. It sets the working directory to /, so that
// no file system stays busy, and a umask that does not depend on the terminal.
func detach() {
	syscall.Umask(0o022)
	os.Chdir("/") // on failure, the old directory only stays busy
}

// started reports to the parent of a background process that it is up, or why it failed.
func started(err error) {
	if os.Getenv(backgroundEnv) == "" {
		return
	}
	os.Unsetenv(backgroundEnv)
	w := os.NewFile(3, "starter")
	defer w.Close()
	if err != nil {
		fmt.Fprintln(w, strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	fmt.Fprintln(w, "up")
}
