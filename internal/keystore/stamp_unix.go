//go:build unix

package keystore

import (
	"io/fs"
	"syscall"
)

func stampOf(info fs.FileInfo) stamp {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return stampOfStat(st)
	}
	return stamp{}
}

// statStamp is stampOf(os.Stat(path)) without garbage.
func statStamp(path string) (stamp, error) {
	var st syscall.Stat_t
	for {
		switch err := syscall.Stat(path, &st); err {
		case nil:
			return stampOfStat(&st), nil
		case syscall.EINTR:
		default:
			return stamp{}, err
		}
	}
}
