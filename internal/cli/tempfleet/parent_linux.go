package tempfleet

import "syscall"

// dieWithParent makes the kernel end a daemon when the demo is killed itself.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
