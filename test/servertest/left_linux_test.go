package servertest

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNothingIsLeft: servers end with the tests that started them, even if these are killed.
func TestNothingIsLeft(t *testing.T) {
	const mark = "server is process "
	if os.Getenv("BRINE_SERVER_LEFT") != "" {
		s := Redis(t)
		os.Stdout.WriteString(mark + strconv.Itoa(s.cmd.Process.Pid) + " in " + s.Dir + "\n")
		select {}
	}
	c := exec.Command(os.Args[0], "-test.run=TestNothingIsLeft", "-test.v")
	c.Env = append(os.Environ(), "BRINE_SERVER_LEFT=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pid, said := 0, ""
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		said += lines.Text() + "\n"
		if text, ok := strings.CutPrefix(lines.Text(), mark); ok {
			number, dir, _ := strings.Cut(text, " in ")
			pid, _ = strconv.Atoi(number)
			defer os.RemoveAll(dir)
		}
	}
	c.Process.Kill()
	c.Wait()
	if pid == 0 {
		if strings.Contains(said, "SKIP") {
			t.Skip(said)
		}
		t.Fatalf("no server: %s", said)
	}
	end := time.Now().Add(giveUp)
	for !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		if time.Now().After(end) {
			t.Fatal("the server outlives the test that was killed")
		}
		time.Sleep(20 * time.Millisecond)
	}
}
