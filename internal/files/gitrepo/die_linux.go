package gitrepo

import "syscall"

func endWithUs(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
