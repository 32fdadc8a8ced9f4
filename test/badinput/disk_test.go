package badinput

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
	"brine/test/eventually"
)

// TestFullDiskOfMaster fills the disk of a running master; variants also write returns as files, or
// bound what minions may store. Commands are refused, since they cannot be recorded, and returns
// are stored once there is space.
func TestFullDiskOfMaster(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{"as it is": "", "with files of jobs": "job_cache_files: True\n", "with a small quota": "minion_return_quota: 1\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testFullDisk(t, more)
		})
	}
}

func testFullDisk(t *testing.T, more string) {
	m := newMaster(t, more)
	d := daemontest.NewDisk(t, m.Path("var/cache/salt/master"), "2m")
	m.Start()
	w := minion(t, "w", "return_retry_timer_max: 1\n", m)
	tags := m.Events()

	// Jobs that return when the disk is full. Their values need pages of their own in the store, so
	// that they do not fit into free pages.
	const size = 100_000
	full := filepath.Join(t.TempDir(), "full")
	jids := map[string]string{}
	for i := range 4 {
		out, errs, code := m.Run(brine, "salt", "--async", "--out=json", "w", "cmd.run",
			fmt.Sprintf("while ! test -e %s; do sleep 0.1; done; head -c %d /dev/zero | tr '\\0' %d", full, size, i))
		jid := regexp.MustCompile(`\d{20}`).FindString(out + errs)
		if jid == "" {
			t.Fatalf("salt ends with %d: %s%s", code, out, errs)
		}
		jids[jid] = strings.Repeat(fmt.Sprint(i), size)
	}
	d.Fill()
	put(t, full, nil, 0o600)
	m.Logged("cannot store return", "no space left on device")

	out, errs, code := m.Run(brine, "salt", "-t", "20", "w", "test.echo", "refused"+strings.Repeat("x", size))
	if err := contains(errs, "the master cannot record the job", "jobs.db", "no space left on device", "make room"); err != nil || code != 1 {
		t.Errorf("a command on a master with a full disk ends with %d: %.300s, %v", code, out, err)
	}
	if err := contains(m.Log(), "cannot record job; not publishing it"); err != nil {
		t.Error(err)
	}
	if strings.Contains(w.Log(), "refused") {
		t.Error("the minion has received the command")
	}
	if out, errs, code := m.Run(brine, "salt", "--out=json", "-t", "20", "w", "saltutil.running"); code != 0 {
		t.Errorf("it cannot be asked what runs: %d %s%s", code, out, errs)
	}

	// A new minion needs no disk space for its session key, which is kept in memory.
	late := daemontest.NewMinion(t, brine, "late", []string{m.Host}, "").Start()
	eventually.Nil(t, waitLimit, "late is connected", func() error {
		out, errs, _ := m.Run(brine, "salt-run", "manage.present", "--out=json")
		return contains(out+errs, `"late"`, `"w"`)
	})
	if !m.Alive() || !late.Alive() {
		t.Error("a daemon has ended")
	}
	d.Free()
	answers(t, m, "w", "late")
	for jid, text := range jids {
		eventually.Nil(t, waitLimit, "the return is stored", func() error {
			rets, err := stored(t, m, jid)
			if err == nil && rets["w"] != text {
				err = fmt.Errorf("stored of %s: %.100v", jid, rets)
			}
			return err
		})
		if n := strings.Count(tags(), "salt/job/"+jid+"/ret/w\n"); n != 1 {
			t.Errorf("the return of %s was told %d times", jid, n)
		}
	}
	// The return still exists after a restart.
	m.Kill()
	m.Start()
	for jid, text := range jids {
		if rets, err := stored(t, m, jid); err != nil || rets["w"] != text {
			t.Errorf("after a restart: %.100v, %v", rets, err)
		}
	}
}

// TestFullDiskAtStart expects an error with a reason, and a running master once there is space.
func TestFullDiskAtStart(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"var/cache/salt/master": "/var/cache/salt/master",
		masterPKI:               "/" + masterPKI,
		"var/run/salt/master":   "/var/run/salt/master",
	} {
		m := newMaster(t, "")
		d := daemontest.NewDisk(t, m.Path(place), "64k,nr_inodes=20")
		// No space for files or names.
		d.Fill()
		for i := range 40 {
			if os.WriteFile(filepath.Join(d.Dir, fmt.Sprint("name", i)), nil, 0o600) != nil {
				break
			}
		}
		fails(t, m, 1, want, "no space left on device")
		must(t, syscall.Mount("tmpfs", d.Dir, "tmpfs", syscall.MS_REMOUNT, "size=8m,nr_inodes=1000"))
		m.Start()
	}
}

// TestFullDiskOfMinion: a minion runs jobs without space for its records.
func TestFullDiskOfMinion(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	w := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	d := daemontest.NewDisk(t, w.Path("var/cache/salt/minion"), "64k")
	d.Fill()
	w.Start()
	answers(t, m, "w")
	for range 3 {
		mustPing(t, m, "w")
	}
	w.Logged("cannot record a running job", "no space left on device")
	notes, _ := os.ReadDir(w.Path("var/cache/salt/minion/proc"))
	if len(notes) > 0 {
		t.Errorf("empty notes are left: %v", notes)
	}
	d.Free()
	mustPing(t, m, "w")
}

// TestFullDiskOfKeys: there is no space for the key of an unauthenticated peer, nor for the
// master's key on a minion.
func TestFullDiskOfKeys(t *testing.T) {
	t.Parallel()
	m := newMaster(t, "")
	d := daemontest.NewDisk(t, m.Path(masterPKI), "256k")
	m.Start()
	minion(t, "w", "", m)
	d.Fill()
	n := daemontest.NewMinion(t, brine, "n", []string{m.Host}, "")
	must(t, os.MkdirAll(n.Path(minionPKI), 0o700))
	n.Start()
	m.Logged("cannot decide about a sign-in", "no space left on device")
	mustPing(t, m, "w")
	d.Free()
	answers(t, m, "w", "n")

	own := daemontest.NewMinion(t, brine, "own", []string{m.Host}, "")
	small := daemontest.NewDisk(t, own.Path(minionPKI), "64k")
	put(t, own.Path(minionPKI+"/minion.pem"), newKey(t).PEM(), 0o400)
	small.Fill()
	own.Start()
	own.Logged("cannot keep the master's key", "no space left on device")
	small.Free()
	answers(t, m, "own")
}
