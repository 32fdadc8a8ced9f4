// Package boot reads how a machine was started: the kernel's command line,
// firmware, init system, SELinux, machine id.
package boot

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/host"
)

// CommandLine returns the kernel's command line. ok is false without one.
func CommandLine(m *host.Machine) (line string, ok bool) {
	b, err := m.ReadFile("/proc/cmdline")
	return strings.ToValidUTF8(string(b), "\ufffd"), err == nil
}

// MachineID returns the id in /etc/machine-id, or that of D-Bus. ok is false
// if there is neither.
func MachineID(m *host.Machine) (id string, ok bool) {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if m.Exists(path) {
			return strings.TrimSpace(m.Text(path)), true
		}
	}
	return "", false
}

// EFI reports whether the machine was started by UEFI firmware, and whether
// Secure Boot is on.
func EFI(m *host.Machine) (efi, secure bool) {
	const vars, old = "/sys/firmware/efi/efivars", "/sys/firmware/efi/vars"
	dir, suffix := vars, ""
	if !m.Exists(dir) {
		if dir, suffix = old, "/data"; !m.Exists(dir) {
			return false, false
		}
	}
	var found []string
	for _, name := range m.List(dir) {
		if strings.HasPrefix(name, "SecureBoot-") && m.Exists(dir+"/"+name+suffix) {
			found = append(found, dir+"/"+name+suffix)
		}
	}
	if len(found) != 1 {
		return true, false
	}
	b, err := m.ReadFile(found[0])
	return true, err == nil && len(b) > 0 && b[len(b)-1] == 1
}

// SELinux is the state of SELinux.
type SELinux struct {
	Enabled bool
	Mode    string // "Enforcing", "Permissive" or "Disabled"
}

// ReadSELinux reads the state of SELinux from the kernel.
func ReadSELinux(m *host.Machine) SELinux {
	const enforce = "/sys/fs/selinux/enforce"
	if !m.Exists(enforce) {
		return SELinux{Mode: "Disabled"}
	}
	s := SELinux{Enabled: m.Exists("/etc/selinux/config"), Mode: "Permissive"}
	if strings.TrimSpace(m.Text(enforce)) == "1" {
		s.Mode = "Enforcing"
	}
	return s
}

// Systemd returns the version of systemd and the line of its features, as
// systemctl prints them; empty if it prints something else.
func Systemd(ctx context.Context, m *host.Machine) (version, features string, err error) {
	out, exit, err := m.Run(ctx, "systemctl", "--version")
	if err != nil || exit != 0 {
		return "", "", err
	}
	first, rest, _ := strings.Cut(out, "\n")
	f := strings.Fields(first)
	if len(f) < 2 || f[0] != "systemd" {
		return "", "", nil
	}
	features, _, _ = strings.Cut(rest, "\n")
	return f[1], features, nil
}

// Init returns the name of the program that runs as process 1: "systemd",
// "upstart", "sysvinit", "runit", "supervisord", "dumb-init", "tini", or ""
// if it is none of these.
func Init(m *host.Machine) string {
	if m.Exists("/run/systemd/system") {
		return "systemd"
	}
	words := strings.Fields(strings.ReplaceAll(m.Text("/proc/1/cmdline"), "\x00", " "))
	if len(words) == 0 {
		return ""
	}
	if bin := m.Which(words[0]); strings.HasSuffix(bin, "bin/init") {
		return initInside(m.Path(bin))
	}
	for _, program := range []string{"supervisord", "dumb-init", "tini"} {
		if path := m.Which(program); path != "" && slices.Contains(words, path) {
			return program
		}
	}
	if slices.Equal(words, []string{"runit"}) || slices.Contains(words, "/sbin/my_init") {
		return "runit"
	}
	return ""
}

// initInside identifies an init program by the first known name inside its
// file.
func initInside(path string) string {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return ""
	}
	defer f.Close()
	names := []string{"upstart", "sysvinit", "systemd"}
	const overlap = len("sysvinit") - 1
	buf := make([]byte, 0, 256<<10)
	for {
		n, err := f.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		lower := bytes.ToLower(buf)
		for _, name := range names {
			if bytes.Contains(lower, []byte(name)) {
				return name
			}
		}
		if err == io.EOF || n == 0 {
			return ""
		}
		buf = buf[:copy(buf, buf[max(0, len(buf)-overlap):])]
	}
}
