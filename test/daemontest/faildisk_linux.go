package daemontest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// FailingDisk is an ext4 file system that the kernel makes read-only after an error, as it does with a failing disk.
type FailingDisk struct {
	t           testing.TB
	dir, device string
}

// NewFailingDisk mounts a file system of 64 MiB at dir until the test ends, or skips the test: that needs root, loop
// devices and ext4.
func NewFailingDisk(t testing.TB, dir string) *FailingDisk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can mount a file system")
	}
	for _, program := range []string{"mkfs.ext4", "fsck.ext4", "losetup"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Skipf("cannot make a file system: %v: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices: %v: %s", err, out)
	}
	d := &FailingDisk{t: t, dir: dir, device: strings.TrimSpace(string(out))}
	t.Cleanup(func() {
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		_ = exec.Command("losetup", "--detach", d.device).Run()
	})
	if err := d.mount(); err != nil {
		t.Skip("cannot mount ext4:", err)
	}
	if _, err := os.Stat(d.trigger()); err != nil {
		t.Skip("the kernel cannot simulate a failure of a disk:", err)
	}
	return d
}

func (d *FailingDisk) mount() error {
	return syscall.Mount(d.device, d.dir, "ext4", 0, "errors=remount-ro")
}

func (d *FailingDisk) trigger() string {
	return filepath.Join("/sys/fs/ext4", filepath.Base(d.device), "trigger_fs_error")
}

// Fail makes the file system read-only, also for files that are open. What was not flushed is lost.
func (d *FailingDisk) Fail() {
	d.t.Helper()
	if err := os.WriteFile(d.trigger(), []byte("test"), 0); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "probe"), nil, 0o600); !errors.Is(err, syscall.EROFS) {
		d.t.Fatal("the file system is not read-only: ", err)
	}
}

// Mend repairs the file system. No process may use it.
func (d *FailingDisk) Mend() {
	d.t.Helper()
	if err := syscall.Unmount(d.dir, 0); err != nil {
		d.t.Fatal("cannot unmount: ", err)
	}
	out, err := exec.Command("fsck.ext4", "-fy", d.device).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 1) { // 1: errors were corrected
		d.t.Fatalf("fsck.ext4: %v: %s", err, out)
	}
	if err := d.mount(); err != nil {
		d.t.Fatal("cannot mount again: ", err)
	}
}
