//go:build !linux

package gitrepo

import "syscall"

func endWithUs(*syscall.SysProcAttr) {}
