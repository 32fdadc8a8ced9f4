package daemontest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// FailingDisk is an ext4 file system that the kernel makes read-only after an error, as it does with a failing disk.
type FailingDisk struct {
	t          testing.TB
	dir, image string
	devices    []string // loop devices, the present one last
}

// NewFailingDisk mounts a file system of 256 MiB at dir until the test ends, or skips the test: that needs root, loop
// devices and ext4.
func NewFailingDisk(t testing.TB, dir string) *FailingDisk {
	t.Helper()
	d, err := TryFailingDisk(t, dir)
	if err != nil {
		t.Skip(err)
	}
	return d
}

// TryFailingDisk is NewFailingDisk that returns an error instead of skipping the test.
func TryFailingDisk(t testing.TB, dir string) (*FailingDisk, error) {
	t.Helper()
	if os.Getuid() != 0 {
		return nil, errors.New("only root can mount a file system")
	}
	for _, program := range []string{"mkfs.ext4", "fsck.ext4", "losetup"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("cannot make a disk that fails: %w", err)
		}
	}
	image := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 256<<20), os.MkdirAll(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot make a file system: %w: %s", err, out)
	}
	d := &FailingDisk{t: t, dir: dir, image: image}
	t.Cleanup(func() {
		for _, device := range d.devices {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			_ = exec.Command("losetup", "--detach", device).Run()
		}
	})
	if err := d.mount(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(d.trigger()); err != nil {
		return nil, fmt.Errorf("the kernel cannot simulate a failure of a disk: %w", err)
	}
	return d, nil
}

// mount checks the file system in the image, as at a start of a machine, and mounts it.
func (d *FailingDisk) mount() error {
	out, err := exec.Command("fsck.ext4", "-fy", d.image).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() > 1) { // 1: errors were corrected
		return fmt.Errorf("fsck.ext4: %w: %s", err, out)
	}
	if out, err = exec.Command("losetup", "--find", "--show", d.image).CombinedOutput(); err != nil {
		return fmt.Errorf("no loop devices: %w: %s", err, out)
	}
	d.devices = append(d.devices, strings.TrimSpace(string(out)))
	if err := syscall.Mount(d.device(), d.dir, "ext4", 0, "errors=remount-ro"); err != nil {
		return fmt.Errorf("cannot mount ext4: %w", err)
	}
	return nil
}

// Fill uses all free space.
func (d *FailingDisk) Fill() { d.t.Helper(); (&Disk{d.t, d.dir}).Fill() }

// Free undoes Fill.
func (d *FailingDisk) Free() { d.t.Helper(); (&Disk{d.t, d.dir}).Free() }

func (d *FailingDisk) device() string { return d.devices[len(d.devices)-1] }

func (d *FailingDisk) trigger() string {
	return filepath.Join("/sys/fs/ext4", filepath.Base(d.device()), "trigger_fs_error")
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

// Mend repairs the file system. No process may use it. It goes on with a copy of what was written to the disk, since other mount namespaces may
// have the old one mounted.
func (d *FailingDisk) Mend() {
	d.t.Helper()
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		d.t.Fatal("cannot unmount: ", err)
	}
	next := filepath.Join(d.t.TempDir(), "disk")
	if out, err := exec.Command("cp", "--sparse=always", d.image, next).CombinedOutput(); err != nil {
		d.t.Fatalf("cannot copy the disk: %v: %s", err, out)
	}
	d.image = next
	if err := d.mount(); err != nil {
		d.t.Fatal(err)
	}
}
