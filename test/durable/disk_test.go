package durable

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"brine/internal/py/value"
	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestFullDiskOfMinionOnce kills a minion whose disk is full just after a job has begun. The job
// does not run again, whether the minion recorded it in reserved space or its master recorded it.
func TestFullDiskOfMinionOnce(t *testing.T) {
	for name, before := range map[string]bool{"with reserved space": false, "full at the start": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := bosses(t, 1, "")[0]
			w := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "return_retry_timer_max: 1\n")
			w.Level = "info"
			d := daemontest.NewDisk(t, w.Path("var/cache/salt/minion"), "2m")
			if before {
				d.Fill()
			}
			w.Start()
			m.answered("w")
			if !before {
				d.Fill()
				for range 60 { // so that no block of the file has space by chance
					m.answered("w")
				}
			}

			ledger := w.Path("ledger")
			jid := m.mustShell("w", "echo x >> "+ledger+"; sleep 300", value.DictOf("expire", int64(600)))
			runs := func() int {
				b, _ := os.ReadFile(ledger)
				return strings.Count(string(b), "x")
			}
			eventually.Nil(t, waitLimit, "the job begins", func() error {
				if runs() == 0 {
					return errors.New("it has not")
				}
				return nil
			})
			w.Kill() // well within the second after which the minion reports a running job
			if before {
				m.Kill() // the recorded data is on its disk
				m.Start()
			}
			w.Start()
			m.answered("w")
			// A job published later has returned, so kept jobs were delivered before.
			later := m.mustShell("w", "echo y >> "+ledger, nil)
			eventually.Nil(t, waitLimit, "a later job returns", func() error {
				b, _ := os.ReadFile(ledger)
				if !strings.Contains(string(b), "y") {
					return fmt.Errorf("%s has not run: %q", later, b)
				}
				return nil
			})
			time.Sleep(3 * time.Second) // the minion asks a second time after two
			if n := runs(); n != 1 {
				t.Errorf("job %s ran %d times", jid, n)
			}
			if before {
				return
			}
			eventually.Nil(t, waitLimit, "the interrupted job returns", func() error {
				out, errs, _ := m.Run(brine, "salt-run", "jobs.lookup_jid", jid)
				if !strings.Contains(out, "stopped or killed while it ran this job") {
					return fmt.Errorf("%q %q", out, errs)
				}
				return nil
			})
		})
	}
}

// TestStockMasterFullDiskOfMinion: a stock master cannot record a job. So a minion without any
// space does not run it, and the return names the disk.
func TestStockMasterFullDiskOfMinion(t *testing.T) {
	m := daemontest.NewMaster(t, stock, "stock", daemontest.Host(), "auto_accept: True\n").Start()
	w := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	d := daemontest.NewDisk(t, w.Path("var/cache/salt/minion"), "64k")
	d.Fill()
	w.Start()
	eventually.Nil(t, 2*time.Minute, "the minion refuses a job", func() error {
		rets, err := m.SaltJSON(stock, "w", "test.echo", "x")
		if text := fmt.Sprint(rets["w"]); err != nil || !strings.Contains(text, "was not run") || !strings.Contains(text, "jobs.journal") ||
			!strings.Contains(text, "no space left on device") {
			return fmt.Errorf("%v, %w", rets, err)
		}
		return nil
	})
	d.Free()
	eventually.Nil(t, 2*time.Minute, "the minion runs a job", func() error {
		rets, err := m.SaltJSON(stock, "w", "test.echo", "x")
		if rets["w"] != "x" {
			return fmt.Errorf("%v, %w", rets, err)
		}
		return nil
	})
}
