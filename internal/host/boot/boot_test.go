package boot

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"brine/internal/host"
)

func put(t *testing.T, m *host.Machine, name string, text []byte, mode os.FileMode) {
	t.Helper()
	path := m.Path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
}

func TestSELinux(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	if got := ReadSELinux(m); got != (SELinux{false, "Disabled"}) {
		t.Errorf("without: %+v", got)
	}
	put(t, m, "/etc/selinux/config", nil, 0o644)
	put(t, m, "/sys/fs/selinux/enforce", []byte("0"), 0o644)
	if got := ReadSELinux(m); got != (SELinux{true, "Permissive"}) {
		t.Errorf("permissive: %+v", got)
	}
	put(t, m, "/sys/fs/selinux/enforce", []byte("1"), 0o644)
	if got := ReadSELinux(m); got != (SELinux{true, "Enforcing"}) {
		t.Errorf("enforcing: %+v", got)
	}
}

func TestSystemd(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	put(t, m, "/bin/systemctl", nil, 0o755)
	for _, c := range []struct {
		out      string
		exit     int
		err      error
		version  string
		features string
	}{
		{"systemd 252 (252.36-1~deb12u1)\n+PAM -AUDIT\nmore", 0, nil, "252", "+PAM -AUDIT"},
		{"systemd 8", 0, nil, "8", ""},
		{"nonsense", 0, nil, "", ""},
		{"systemd 252\n+PAM", 1, nil, "", ""},
		{"", 0, errors.New("broken"), "", ""},
	} {
		m.Exec = func(context.Context, string, ...string) (string, int, error) { return c.out, c.exit, c.err }
		if v, f, err := Systemd(t.Context(), m); v != c.version || f != c.features || !errors.Is(err, c.err) {
			t.Errorf("%q: %q, %q, %v", c.out, v, f, err)
		}
	}
}

// TestInitInside has the name where a buffer ends.
func TestInitInside(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	put(t, m, "/proc/1/cmdline", []byte("/sbin/init\x00splash\x00"), 0o644)
	for _, before := range []int{0, 256<<10 - 3, 256 << 10, 600_000} {
		put(t, m, "/sbin/init", append(bytes.Repeat([]byte{'x'}, before), "SysVinit"...), 0o755)
		if got := Init(m); got != "sysvinit" {
			t.Errorf("%d bytes before: %q", before, got)
		}
	}
	put(t, m, "/sbin/init", bytes.Repeat([]byte{'x'}, 300_000), 0o755)
	if got := Init(m); got != "" {
		t.Errorf("no name: %q", got)
	}
}

func TestEFI(t *testing.T) {
	m := &host.Machine{Root: t.TempDir()}
	put(t, m, "/sys/firmware/efi/efivars/SecureBoot-1", []byte{6, 0, 0, 0, 1}, 0o644)
	if efi, secure := EFI(m); !efi || !secure {
		t.Errorf("%v, %v", efi, secure)
	}
	put(t, m, "/sys/firmware/efi/efivars/SecureBoot-2", []byte{6, 0, 0, 0, 1}, 0o644)
	if efi, secure := EFI(m); !efi || secure {
		t.Errorf("ambiguous: %v, %v", efi, secure)
	}
}
