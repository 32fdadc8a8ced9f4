//go:build !linux

package disk

import "brine/internal/host"

// unlabelled is for LVM to say.
func unlabelled(*host.Machine) bool { return false }
