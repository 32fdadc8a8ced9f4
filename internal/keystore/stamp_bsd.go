//go:build unix && !linux && !solaris && !aix && !openbsd && !dragonfly

package keystore

import "syscall"

func stampOfStat(st *syscall.Stat_t) stamp {
	return stamp{mtime: st.Mtimespec.Nano(), ctime: st.Ctimespec.Nano(), size: st.Size, inode: uint64(st.Ino), dev: uint64(st.Dev)}
}
