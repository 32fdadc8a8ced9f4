package servertest

import "syscall"

// endWithParent makes the kernel kill a process when the tests are killed, so that no server is
// left. The other processes of PostgreSQL detect that and exit.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
