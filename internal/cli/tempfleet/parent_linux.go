package tempfleet

import "syscall"

// dieWithParent makes the kernel kill a daemon if this program is killed.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
