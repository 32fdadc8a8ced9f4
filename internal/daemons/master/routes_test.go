package master

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"brine/internal/net/channel"
	"brine/internal/py/value"
)

// TestMinionsDoNotHoldBackOperators: while one minion sends any number of slow
// requests, and hundreds of passwords are being checked, other minions, operators
// and logins are served.
func TestMinionsDoNotHoldBackOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		served := map[string]*atomic.Int64{}
		table := map[string]route{}
		r := &router{bounds: newBounds(), background: &sync.WaitGroup{}}
		start := func(from string, n int, c channel.Call) {
			served[from] = &atomic.Int64{}
			c.Cmd = from
			if from == "login" {
				c.Cmd = "mk_token"
			}
			table[c.Cmd] = route{slow: true, handle: func(*channel.Call) { served[from].Add(1); <-release }}
			for range n {
				one := c
				go r.serve(table, &one)
			}
			synctest.Wait()
		}
		want := func(from string, n int64) {
			t.Helper()
			if got := served[from].Load(); got != n {
				t.Errorf("%s: %d requests are served, want %d", from, got, n)
			}
		}
		start("evil", 1000, channel.Call{ID: "evil"})
		want("evil", minionShare)
		start("login", 300, channel.Call{Load: value.DictOf("eauth", "pam", "username", "x", "password", "wrong")})
		want("login", 300)
		start("good", 1, channel.Call{ID: "good"})
		want("good", 1)
		start("operator", operatorRoutes, channel.Call{Load: value.NewDict(0)})
		want("operator", operatorRoutes)
		close(release)
	})
}

// TestUngrantedArgumentsAreNotParsed: the arguments of a request that is not
// granted, or has too many, are not parsed. Each would cost several
// allocations.
func TestUngrantedArgumentsAreNotParsed(t *testing.T) {
	args := func(n int) *value.List {
		l := &value.List{}
		for range n {
			l.Append("a=[1, 2]")
		}
		return l
	}
	for name, c := range map[string]struct {
		options Options
		args    int
	}{
		"nothing is granted":         {Options{}, maxPeerArgs},
		"to other minions":           {Options{Peer: value.DictOf("good", value.ListOf(".*")), PeerRun: value.DictOf("good", value.ListOf(".*"))}, maxPeerArgs},
		"too many, although granted": {Options{Peer: value.DictOf("evil", value.ListOf(".*")), PeerRun: value.DictOf("evil", value.ListOf(".*"))}, 100 * maxPeerArgs},
	} {
		s := &settings{}
		s.live.Store(&live{options: c.options})
		p := &peers{settings: s}
		// A job that would publish again is refused after parsing, even if all is
		// granted.
		load := value.DictOf("fun", "publish.publish", "tgt", "*", "ret", "", "arg", args(c.args))
		for what, ask := range map[string]func() bool{
			"publish": func() bool { _, ok := p.permitted("evil", load); return ok },
			"runner":  func() bool { _, ok := p.runnerArgs("evil", load); return ok },
		} {
			granted := false
			n := testing.AllocsPerRun(3, func() { granted = ask() })
			if granted || n > maxPeerArgs/2 {
				t.Errorf("%s, %s: granted %t, %v allocations", what, name, granted, n)
			}
		}
	}
}
