package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"brine/internal/host/freeport"
	"brine/test/browsertest"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestLocalConsole: `brine console` lets the administrator of a master without external_auth into its
// console, by a link that works once, and leaves nothing behind.
func TestLocalConsole(t *testing.T) {
	b := browsertest.Start(t)
	host := daemontest.Host()
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", host, "auto_accept: true\ntimeout: 10\n")
	if out, errs, code := m.Run(daemontest.Brine, "console"); code == 0 || !strings.Contains(errs, "start salt-master first") {
		t.Errorf("without a master: %d %q %q", code, out, errs)
	}
	m.Start()
	daemontest.NewMinion(t, daemontest.Brine, "alpha", []string{host}, "").Start()
	eventually.Nil(t, time.Minute, "the minion answers", func() error { return m.PingAll(daemontest.Brine, "alpha") })

	temp := daemontest.ShortDir(t)
	ports, err := freeport.TCP(1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	c := daemontest.Brine.Command(ctx, t, "console", "-c", m.Dir, "--port", strconv.Itoa(ports[0]))
	c.Env = append(os.Environ(), "TMPDIR="+temp)
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stderr)
	link, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		text, _ := said.ReadString(0)
		t.Fatalf("no link: %v %s", err, text)
	}
	link = strings.TrimSpace(link)
	base, _, ok := strings.Cut(link, "/console/enter?link=")
	if !ok || base != fmt.Sprintf("http://127.0.0.1:%d", ports[0]) {
		t.Fatalf("the link is %q", link)
	}
	status := func(path string) int {
		t.Helper()
		resp, err := http.Get(base + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := status("/console/me"); got != http.StatusUnauthorized {
		t.Errorf("a client without the link: %d", got)
	}
	for _, wrong := range []string{"", "?link=", "?link=0000000000000000000000000000000000000000"} {
		if got := status("/console/enter" + wrong); got != http.StatusForbidden {
			t.Errorf("%q: %d", wrong, got)
		}
	}

	s := &stage{b, t, m, nil, base}
	s.Open(link)
	s.until("the stream is open", `document.getElementById("connection").textContent.includes("live")`)
	s.sees("Masters and their minions")
	if strings.Contains(s.text("location.href"), "link=") {
		t.Errorf("the address still has the link: %s", s.text("location.href"))
	}
	s.page("#/minions")
	s.sees("alpha")
	s.page("#/keys")
	s.sees("alpha")
	var jid string
	s.Run(&jid, `const csrf = (await (await fetch("me")).json()).csrf;
		const o = {method: "POST", headers: {"Content-Type": "application/json", "X-Csrf-Token": csrf}, body: JSON.stringify({tgt: "*", fun: "test.ping"})};
		return (await (await fetch("../v1/jobs", o)).json()).jid;`)
	s.page("#/jobs/" + jid)
	s.sees("1 of 1")
	s.clean()

	if got := status(strings.TrimPrefix(link, base)); got != http.StatusForbidden {
		t.Errorf("the link works again: %d", got)
	}
	for {
		line, err := said.ReadString('\n')
		if err != nil {
			t.Fatalf("no next link: %v", err)
		}
		if _, next, ok := strings.Cut(line, "For another one: "); ok {
			link = strings.TrimSpace(next)
			break
		}
	}
	s.click("#sign-out")
	s.sees("open the link that brine console has printed last")
	s.Open(link)
	s.sees("Masters and their minions")
	s.clean("401")

	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "brine-console-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
