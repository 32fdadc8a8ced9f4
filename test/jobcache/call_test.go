package jobcache

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/returner"
	"brine/test/daemontest"
	"brine/test/eventually"
	"brine/test/servertest"
)

// TestCallReturns: salt-call delivers its result before it ends, with and without a master. It
// reports what it cannot deliver; the daemon delivers that later.
func TestCallReturns(t *testing.T) {
	t.Parallel()
	s := servertest.Redis(t)
	t.Cleanup(s.Remove)
	r, err := returner.Open("redis", returner.Config{Timeout: 20 * time.Second,
		Source: remote.Options(value.DictOf("redis.host", s.Host, "redis.port", s.Port))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	m := daemontest.NewMaster(t, daemontest.Brine, "a", daemontest.Host(), "auto_accept: True\n").Start()
	minion := daemontest.NewMinion(t, daemontest.Brine, "m1", []string{m.Host}, fmt.Sprintf("redis.host: %s\nredis.port: %d\n", s.Host, s.Port))
	call := func(code int, args ...string) string {
		t.Helper()
		out, stderr, got := minion.Run(daemontest.Brine, "salt-call", args...)
		if got != code {
			t.Fatalf("%v: code %d: %s %s", args, got, out, stderr)
		}
		return stderr
	}
	stored := func(word string) error {
		jobs, err := r.Returns(t.Context(), word)
		if err != nil || len(jobs) != 1 {
			return fmt.Errorf("%v %v", jobs, err)
		}
		return nil
	}
	jid := func(args ...string) (string, string) {
		t.Helper()
		out, stderr, code := minion.Run(daemontest.Brine, "salt-call", append([]string{"--metadata", "--out=json", "--out-indent=-1"}, args...)...)
		_, rest, ok := strings.Cut(out, `"jid": "`)
		if !ok || code != 0 {
			t.Fatalf("%v: code %d: %s %s", args, code, out, stderr)
		}
		return rest[:20], stderr
	}
	for _, args := range [][]string{{"--local", "--return=redis", "test.echo", "alone"}, {"--return", "local,redis", "test.echo", "with a master"}} {
		id, stderr := jid(args...)
		if stderr != "" {
			t.Errorf("%v: %s", args, stderr)
		}
		rets, err := r.Returns(t.Context(), id)
		if err != nil || value.Str(rets["m1"].At("return")) != args[len(args)-1] || rets["m1"].Str("fun") != "test.echo" {
			t.Errorf("%v: %v %v", args, rets, err)
		}
	}
	if text := call(1, "--local", "--return=nosuch", "test.retcode", "3"); !strings.Contains(text, `there is no returner "nosuch"`) {
		t.Error(text)
	}

	// The server is down: the daemon takes over each of several results, whether it started before
	// or after.
	s.Stop()
	before, text := jid("--local", "--return=redis", "test.echo", "kept")
	if !strings.Contains(text, "cannot send the result to the returner redis") || !strings.Contains(text, "brine/called") {
		t.Error(text)
	}
	minion.Start()
	during, _ := jid("--local", "--return=redis", "test.echo", "kept, too")
	eventually.Nil(t, waitLimit, "the daemon has taken over both", func() error {
		left, err := os.ReadDir(minion.Path("var/cache/salt/minion/brine/called"))
		if err != nil || len(left) > 0 {
			return fmt.Errorf("%v %v", left, err)
		}
		return nil
	})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{before, during} {
		eventually.Nil(t, waitLimit, "the server has what was kept", func() error { return stored(id) })
	}
}
