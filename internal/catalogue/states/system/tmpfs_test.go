package system

import (
	"strings"
	"testing"
)

// TestTmpfsOptions compares options with the output of kernels with an odd and
// an even number of pages. The kernel rounds half of an odd number up for
// size=50%, and down for the default, so that only the former is shown.
func TestTmpfsOptions(t *testing.T) {
	const page = 4096
	for _, c := range []struct {
		pages       uint64
		shown, opt  string
		known, want bool
	}{
		{6171020, "rw,relatime", "size=50%", true, true},
		{6171021, "rw,relatime,size=12342044k", "size=50%", true, true},
		{6171021, "rw,relatime", "size=50%", true, false},
		{6171020, "rw,relatime,size=64k", "size=50%", true, false},
		{1000, "rw,size=1000k", "size=25%", true, true},
		{1000, "rw,size=1004k", "size=25%", true, false},
		{1000, "rw", "size=2000k", true, true},
		{1000, "rw,size=1024k", "size=1m", true, true},
		{1000, "rw,size=1024k", "size=1M", true, true},
		{1000, "rw,size=1024k", "size=1048576", true, true},
		{1000, "rw,size=4k", "size=1", true, true},
		{1000, "rw,size=0k", "size=0", true, true},
		{1000, "rw,size=8k", "nr_blocks=2", true, true},
		{1000, "rw,nr_inodes=9216", "nr_inodes=9k", true, true},
		{1000, "rw", "nr_inodes=500", true, true},
		{1000, "rw", "nr_inodes=9k", true, false},
		{1000, "rw", "mode=1777", true, true},
		{1000, "rw,mode=755", "mode=1777", true, false},
		{1000, "rw,mode=755", "mode=0755", true, true},
		{1000, "rw", "uid=0", true, true},
		{1000, "rw,gid=5", "gid=0", true, false},
		{1000, "rw,uid=5", "uid=5", false, false},
		{1000, "rw,huge=always", "huge=always", false, false},
		{1000, "rw", "size=much", false, false},
		{1000, "rw", "size=1kk", false, false},
		{1000, "rw", "size=99999999999999999999", false, false},
		{1000, "rw", "size=18446744073709551615%", false, false},
		{1000, "rw", "size=16E", false, false},
		{1000, "rw", "mode=x", false, false},
		{1000, "rw", "noexec", false, false},
	} {
		has, known := memory{page, c.pages}.tmpfsHas(strings.Split(c.shown, ","), c.opt)
		if has != c.want || known != c.known {
			t.Errorf("%d pages, %q has %q: %v, known %v; want %v, %v", c.pages, c.shown, c.opt, has, known, c.want, c.known)
		}
	}
}
