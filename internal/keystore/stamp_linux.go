package keystore

import "syscall"

func stampOfStat(st *syscall.Stat_t) stamp {
	return stamp{mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(), size: st.Size, inode: st.Ino, dev: uint64(st.Dev)}
}
