package mount

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"brine/internal/host"
)

// Mounted is a line of the kernel's list.
type Mounted struct {
	Device, Name, Type string
	Opts               []string
	// Only in /proc/self/mountinfo: MountID, ParentID, Major, Minor, Root, and
	// the options of the file system as a whole.
	MountID, ParentID, Major, Minor, Root string
	SuperOpts                             []string
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Unescape replaces escaped blanks in a name.
func Unescape(name string) string { return unescape.Replace(name) }

// Active returns the mounts in the kernel's order. Names are as the kernel
// writes them, with blanks as \040.
func Active(m *host.Machine) ([]Mounted, error) {
	b, err := m.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("cannot read the mounts: %w", err)
	}
	var out []Mounted
	for line := range strings.Lines(string(b)) {
		head, tail, ok := strings.Cut(line, " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 6 || len(t) < 2 {
			continue
		}
		x := Mounted{MountID: h[0], ParentID: h[1], Root: h[3], Name: h[4], Opts: strings.Split(h[5], ","), Type: t[0], Device: t[1]}
		x.Major, x.Minor, _ = strings.Cut(h[2], ":")
		if len(t) > 2 {
			x.SuperOpts = strings.Split(t[2], ",")
		}
		out = append(out, x)
	}
	return out, nil
}

// Is reports whether something is mounted on a directory.
func Is(m *host.Machine, name string) (bool, error) {
	all, err := Active(m)
	for _, x := range all {
		if Unescape(x.Name) == filepath.Clean(name) || x.Name == name {
			return true, err
		}
	}
	return false, err
}

// Options are the options of a mount.
type Options struct {
	Type string
	Opts []string
	// As sets the user to run as; nil means that of this process.
	As func(*host.Cmd) error
}

// run runs a program; its stderr is the error.
func run(ctx context.Context, m *host.Machine, as func(*host.Cmd) error, program string, args ...string) error {
	c := host.Cmd{Program: program, Args: args}
	if as != nil {
		if err := as(&c); err != nil {
			return err
		}
	}
	out, err := m.Command(ctx, c)
	if err != nil {
		return fmt.Errorf("cannot run %s: %w", program, err)
	}
	if out.Exit != 0 {
		if out.Stderr == "" {
			out.Stderr = fmt.Sprintf("%s failed with status %d", program, out.Exit)
		}
		return fmt.Errorf("%s", out.Stderr)
	}
	return nil
}

// Mount mounts a device; if device is "", the entry of the directory in fstab.
func Mount(ctx context.Context, m *host.Machine, device, name string, o Options) error {
	if name == "" {
		return errEmpty
	}
	if device == "" {
		return run(ctx, m, o.As, "mount", "--", name)
	}
	var args []string
	if len(o.Opts) > 0 {
		args = append(args, "-o", strings.Join(o.Opts, ","))
	}
	if o.Type != "" {
		args = append(args, "-t", o.Type)
	}
	return run(ctx, m, o.As, "mount", append(args, "--", device, name)...)
}

// Unmount unmounts a directory or device.
func Unmount(ctx context.Context, m *host.Machine, what string, lazy bool, as func(*host.Cmd) error) error {
	if what == "" {
		return errEmpty
	}
	args := []string{"--", what}
	if lazy {
		args = append([]string{"-l"}, args...)
	}
	return run(ctx, m, as, "umount", args...)
}

// Swap is a swap file or device. Sizes are in KiB.
type Swap struct{ Name, Type, Size, Used, Priority string }

// Swaps returns the active swaps.
func Swaps(m *host.Machine) []Swap {
	var out []Swap
	for _, line := range m.Lines("/proc/swaps") {
		if f := strings.Fields(line); len(f) == 5 && f[0] != "Filename" {
			out = append(out, Swap{f[0], f[1], f[2], f[3], f[4]})
		}
	}
	return out
}

// SwapOn activates a file or device, with a priority unless that is "".
func SwapOn(ctx context.Context, m *host.Machine, name, priority string) error {
	if name == "" {
		return errEmpty
	}
	args := []string{"--", name}
	if priority != "" {
		args = append([]string{"-p", priority}, args...)
	}
	return run(ctx, m, nil, "swapon", args...)
}

// SwapOff deactivates a file or device.
func SwapOff(ctx context.Context, m *host.Machine, name string) error {
	if name == "" {
		return errEmpty
	}
	return run(ctx, m, nil, "swapoff", "--", name)
}
