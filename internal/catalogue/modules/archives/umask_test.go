package archives

import "syscall"

// The permissions that the tests expect are those of the usual umask.
func init() { syscall.Umask(0o022) }
