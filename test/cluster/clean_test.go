package cluster

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"brine/test/eventually"
	"brine/test/servertest"
)

// looks returns the number of scans of the keys of a redis server.
func looks(s *servertest.Server) (int, error) {
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "INFO commandstats\r\nQUIT\r\n"); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "cmdstat_scan:calls="); ok {
			n, _, _ := strings.Cut(rest, ",")
			return strconv.Atoi(n)
		}
	}
	return 0, nil
}

// TestCleansOnce: only one of a cluster's masters that send jobs to one server scans it for old
// ones; another one takes over when that one is killed.
func TestCleansOnce(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	a := newApart(t, 3, fmt.Sprintf("auto_accept: true\nmaster_job_cache: redis\nredis.host: %s\nredis.port: %d\n", s.Host, s.Port)).start()
	eventually.Nil(t, soon, "all see each other", func() error {
		for _, m := range a.masters {
			if out, errs, code := m.Run(brine, "salt-run", "cluster.status"); code != 0 {
				return fmt.Errorf("%s: %s%s", m.Name, out, errs)
			}
		}
		return nil
	})
	const turns = 10
	again := func(what string) {
		t.Helper()
		before, err := looks(s)
		if err != nil {
			t.Fatal(err)
		}
		from := time.Now()
		n := 0
		eventually.Nil(t, soon, what, func() error {
			now, err := looks(s)
			if n = now - before; err == nil && n < 2*turns { // for jobs and for returns
				err = fmt.Errorf("%d", n)
			}
			return err
		})
		took := time.Since(from)
		t.Logf("%s: %d looks in %v", what, n, took.Round(time.Millisecond))
		if took < (turns-2)*9*time.Second/10 { // two masters would take half the time
			t.Errorf("%s: %d looks in %v are those of several masters", what, n, took)
		}
	}
	again("three masters")
	a.masters[0].Kill() // without voters, the first by id leads
	again("two masters")
}
