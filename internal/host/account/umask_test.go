package account

import "syscall"

// The tests expect permissions under the default umask.
func init() { syscall.Umask(0o022) }
