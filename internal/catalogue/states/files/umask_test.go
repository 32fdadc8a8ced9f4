package files

import "syscall"

// The tests expect the permissions of the usual umask.
func init() { syscall.Umask(0o022) }
