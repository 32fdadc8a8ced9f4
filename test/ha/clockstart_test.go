package ha

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	// A master of an older version left no record: its newest file counts.
	without := func(newest time.Time) {
		t.Helper()
		m.Kill()
		dir := m.Path("var/cache/salt/master/brine")
		if err := os.Remove(filepath.Join(dir, "clock.salt-master")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Chtimes(path, newest, newest))
		})
		if err != nil {
			t.Fatal(err)
		}
		m.Start()
	}
	doubted := strings.Count(m.Log(), "the clock is wrong")
	without(time.Now().Add(-3 * day))
	if strings.Count(m.Log(), "the clock is wrong") == doubted || gone(recent) == nil {
		t.Error("a clock three days ahead of the newest file is believed")
	}
	without(time.Now())
	eventually.Nil(t, time.Minute, "without doubt the other token is removed, too", func() error { return gone(recent) })
}

// TestClockRecords: brine-hub and a witness record the time, and doubt a clock that is three days ahead of
// their record. They do not record that time.
func TestClockRecords(t *testing.T) {
	t.Parallel()
	const finger = "00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff:00:11:22:33:44:55:66:77:88:99:aa:bb:cc:dd:ee:ff"
	bus := daemontest.NewHub(t, "bus", daemontest.Host(), "log_level: info\n", finger)
	host := daemontest.Host()
	w := daemontest.NewMaster(t, daemontest.Brine, "witness", host, "")
	w.Program, w.Level = "witness", ""
	w.Write("witness", fmt.Sprintf("id: %s\ninterface: %s\ncluster_id: test\ncluster_witness_secret: the secret of the tests\ncachedir: %s\nlog_level: info\n"+
		"cluster_voters: [%s, m1, m2]\n", host, host, w.Path("state"), host))
	const doubt = "this daemon was stopped for a while, or the clock is wrong"
	for record, n := range map[string]*daemontest.Node{"data/clock": bus, "state/clock": w} {
		recorded := func(when string, want time.Time) {
			t.Helper()
			eventually.Nil(t, time.Minute, n.Program+" records the time "+when, func() error {
				b, err := os.ReadFile(n.Path(record))
				if err != nil {
					return err
				}
				at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(b)))
				if err == nil && at.Sub(want).Abs() > 5*time.Minute {
					err = fmt.Errorf("it is %v", at)
				}
				return err
			})
		}
		n.Launch()
		recorded("at its first start", time.Now())
		n.Kill()
		if strings.Contains(n.Log(), doubt) {
			t.Errorf("%s doubts its clock without a record", n.Program)
		}
		before := time.Now().Add(-3 * 24 * time.Hour)
		n.Write(record, before.UTC().Format(time.RFC3339)+"\n")
		info, err := os.Stat(n.Path(record))
		if err != nil {
			t.Fatal(err)
		}
		n.Launch()
		eventually.Nil(t, time.Minute, n.Program+" writes the record again", func() error {
			now, err := os.Stat(n.Path(record))
			if err == nil && os.SameFile(info, now) {
				err = errors.New("it has not")
			}
			return err
		})
		recorded("that it believes", before)
		n.Logged(doubt)
		n.Kill()
	}
}
