package badinput

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"brine/test/daemontest"
)

// disk is a small file system.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts one at dir, which only root may.
func newDisk(t *testing.T, dir, size string) *disk {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0755"); err != nil {
		t.Skip("cannot mount a small file system:", err)
	}
	t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
	return &disk{t, dir}
}

// fill leaves no room.
func (d *disk) fill() {
	d.t.Helper()
	f, err := os.Create(filepath.Join(d.dir, "filler"))
	must(d.t, err)
	defer f.Close()
	for n := 64 << 10; n > 0; {
		if _, err := f.Write(make([]byte, n)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				d.t.Fatal(err)
			}
			n /= 2
		}
	}
}

// free makes room again.
func (d *disk) free() { must(d.t, os.Remove(filepath.Join(d.dir, "filler"))) }

// TestFullDiskOfMaster fills the disk of a master that runs, also of one that writes
// returns as files, too, or bounds what minions may store.
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
	d := newDisk(t, m.Path("var/cache/salt/master"), "2m")
	m.Start()
	minion(t, "w", "return_retry_timer_max: 1\n", m)
	d.fill()

	// Values that need pages of their own in the store, so that no page that
	// happens to be free takes them.
	jids := map[string]string{}
	tags := m.Events()
	for i := range 4 {
		text := strings.Repeat(fmt.Sprint(i), 100_000)
		jid, result := command(t, m, "w", "test.echo", text)
		if result != text {
			t.Errorf("a command on a master with a full disk: %.100v", result)
		}
		mustPing(t, m, "w")
		jids[jid] = text
	}
	m.Logged("cannot store a return", "no space left on device")

	// A new minion needs no room for its session key, which is kept in memory.
	late := daemontest.NewMinion(t, brine, "late", []string{m.Host}, "").Start()
	answers(t, m, "w", "late")
	if !m.Alive() || !late.Alive() {
		t.Error("a daemon has ended")
	}
	d.free()
	answers(t, m, "w", "late")
	for jid, text := range jids {
		eventually(t, "the return is stored", func() error {
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
	// It is still there after a restart.
	m.Kill()
	m.Start()
	for jid, text := range jids {
		if rets, err := stored(t, m, jid); err != nil || rets["w"] != text {
			t.Errorf("after a restart: %.100v, %v", rets, err)
		}
	}
}

// TestFullDiskAtStart wants a reason, and a master once there is room.
func TestFullDiskAtStart(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"var/cache/salt/master": "/var/cache/salt/master",
		masterPKI:               "/" + masterPKI,
		"var/run/salt/master":   "/var/run/salt/master",
	} {
		m := newMaster(t, "")
		d := newDisk(t, m.Path(place), "64k,nr_inodes=20")
		// No room for files, and none for names.
		d.fill()
		for i := range 40 {
			if os.WriteFile(filepath.Join(d.dir, fmt.Sprint("name", i)), nil, 0o600) != nil {
				break
			}
		}
		fails(t, m, 1, want, "no space left on device")
		must(t, syscall.Mount("tmpfs", d.dir, "tmpfs", syscall.MS_REMOUNT, "size=8m,nr_inodes=1000"))
		m.Start()
	}
}

// TestFullDiskOfMinion has a minion run jobs without room for its notes.
func TestFullDiskOfMinion(t *testing.T) {
	t.Parallel()
	m := master(t, "")
	w := daemontest.NewMinion(t, brine, "w", []string{m.Host}, "")
	d := newDisk(t, w.Path("var/cache/salt/minion"), "64k")
	d.fill()
	w.Start()
	answers(t, m, "w")
	for range 3 {
		mustPing(t, m, "w")
	}
	w.Logged("cannot note a running job", "no space left on device")
	notes, _ := os.ReadDir(w.Path("var/cache/salt/minion/proc"))
	if len(notes) > 0 {
		t.Errorf("empty notes are left: %v", notes)
	}
	d.free()
	mustPing(t, m, "w")
}

// TestFullDiskOfKeys has no room for the key of a unauthenticated peer, nor for what a
// minion wants to know its master by.
func TestFullDiskOfKeys(t *testing.T) {
	t.Parallel()
	m := newMaster(t, "")
	d := newDisk(t, m.Path(masterPKI), "256k")
	m.Start()
	minion(t, "w", "", m)
	d.fill()
	n := daemontest.NewMinion(t, brine, "n", []string{m.Host}, "")
	must(t, os.MkdirAll(n.Path(minionPKI), 0o700))
	n.Start()
	m.Logged("cannot decide about a sign-in", "no space left on device")
	mustPing(t, m, "w")
	d.free()
	answers(t, m, "w", "n")

	own := daemontest.NewMinion(t, brine, "own", []string{m.Host}, "")
	small := newDisk(t, own.Path(minionPKI), "64k")
	put(t, own.Path(minionPKI+"/minion.pem"), newKey(t).PEM(), 0o400)
	small.fill()
	own.Start()
	own.Logged("cannot keep the master's key", "no space left on device")
	small.free()
	answers(t, m, "own")
}
