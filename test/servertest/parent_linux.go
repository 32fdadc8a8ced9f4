package servertest

import "syscall"

// endWithParent has a process killed when the tests are, so that no server is
// left behind; of PostgreSQL the other processes see it and end.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
