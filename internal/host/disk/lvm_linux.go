package disk

import (
	"strings"

	"golang.org/x/sys/unix"

	"brine/internal/host"
)

// nodes returns the paths of all block devices.
func nodes(m *host.Machine) []string {
	names := m.List("/sys/class/block")
	for i, name := range names {
		names[i] = "/dev/" + strings.ReplaceAll(name, "!", "/")
	}
	return names
}

// unlabelled reports that no device of this machine belongs to LVM: LVM devices
// have a label in one of their first four sectors. Checking that takes a
// hundredth of the time of starting LVM's program, and most machines that have
// it have no groups. A device that LVM could not read either counts as
// unlabelled.
func unlabelled(m *host.Machine) bool { return withoutLabel(nodes(m)) }

func withoutLabel(devices []string) bool {
	const sector, sectors = 512, 4
	buf := make([]byte, sector*sectors)
	for _, path := range devices {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch err {
		case nil:
		case unix.ENXIO, unix.ENOMEDIUM, unix.ENODEV, unix.EPERM:
			continue // removed, empty, or not accessible in this container
		default:
			return false
		}
		n, err := unix.Pread(fd, buf, 0)
		unix.Close(fd)
		if err != nil && err != unix.EIO {
			return false
		}
		for at := 0; at+len(lvmLabel) <= n; at += sector {
			if string(buf[at:at+len(lvmLabel)]) == lvmLabel {
				return false
			}
		}
	}
	return len(devices) > 0
}

const lvmLabel = "LABELONE"
