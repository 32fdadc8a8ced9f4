package keystore

import "time"

// stamp tells versions of a file or folder apart. Times are nanoseconds.
type stamp struct {
	mtime, ctime int64
	size         int64
	inode, dev   uint64
}

// settled reports whether a further change would give another stamp. File
// times advance in ticks of some milliseconds, on a few file systems in whole
// seconds, so a file changed just now may change again without showing it.
func (s stamp) settled(now time.Time) bool {
	tick := 100 * time.Millisecond
	if s.ctime%1e9 == 0 || s.mtime%1e9 == 0 {
		tick = 2100 * time.Millisecond
	}
	return now.Sub(time.Unix(0, max(s.mtime, s.ctime))) > tick
}
