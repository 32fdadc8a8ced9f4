package ha

import (
	"errors"
	"os"
	"testing"
	"time"

	"brine/internal/call/auth"
	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestClockAheadAtStart: a master starts with a clock that is three days ahead of its record of the time. It removes a token that has
// expired before, and none that has expired since.
func TestClockAheadAtStart(t *testing.T) {
	m := daemontest.NewMaster(t, daemontest.Brine, "m1", daemontest.Host(), "")
	tokens, err := auth.OpenTokens(m.Path("var/cache/salt/master/tokens"))
	if err != nil {
		t.Fatal(err)
	}
	path := func(expired time.Duration) string {
		t.Helper()
		d := value.DictOf("name", "ann", "eauth", "pam", "start", 0.0, "expire", float64(time.Now().Add(-expired).Unix()))
		if err := tokens.Add(d); err != nil {
			t.Fatal(err)
		}
		return m.Path("var/cache/salt/master/tokens/" + d.Str("token"))
	}
	const day = 24 * time.Hour
	old, recent := path(4*day), path(day)
	m.Write("var/cache/salt/master/brine/clock.salt-master", time.Now().Add(-3*day).UTC().Format(time.RFC3339)+"\n")
	m.Start()
	gone := func(path string) error {
		if _, err := os.Lstat(path); err == nil {
			return errors.New("it is still there")
		}
		return nil
	}
	eventually.Nil(t, time.Minute, "the old token is removed", func() error { return gone(old) })
	if gone(recent) == nil {
		t.Error("a token was removed that is valid if the clock is wrong")
	}
	m.Logged("this daemon was stopped for a while, or the clock is wrong")
	m.Kill()
	if err := os.Remove(m.Path("var/cache/salt/master/brine/clock.salt-master")); err != nil {
		t.Fatal(err)
	}
	m.Start()
	eventually.Nil(t, time.Minute, "without doubt the other token is removed, too", func() error { return gone(recent) })
}
