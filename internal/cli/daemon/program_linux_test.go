package daemon

import (
	"slices"
	"strings"
	"testing"
)

// The program continues after it released its pages, and has fewer resident.
func TestUnmapProgram(t *testing.T) {
	resident := func() (kb int) {
		for _, m := range ownProgram() {
			if !m.private {
				kb += m.resident
			}
		}
		return kb
	}
	before := resident()
	if before == 0 {
		t.Fatal("this process has nothing of its program in memory")
	}
	unmapProgram()
	if after := resident(); after > before*3/4 {
		t.Errorf("%d kB of the program in memory, %d kB before", after, before)
	}
}

// Only memory equal to the file may be released.
func TestMappingsOf(t *testing.T) {
	const smaps = `00400000-00500000 r-xp 00000000 fe:00 10                         /usr/bin/brine
Size:               1024 kB
Rss:                 700 kB
Anonymous:             0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me sd
00500000-00600000 r--p 00100000 fe:00 10                         /usr/bin/brine
Rss:                 600 kB
Anonymous:             8 kB
Swap:                  0 kB
00600000-00700000 r--p 00200000 fe:00 10                         /usr/bin/brine
Rss:                 500 kB
Anonymous:             0 kB
Swap:                  4 kB
00700000-00800000 rw-p 00300000 fe:00 10                         /usr/bin/brine
Rss:                 400 kB
Anonymous:             0 kB
Swap:                  0 kB
00800000-00900000 r--p 00000000 fe:00 11                         /usr/lib/other
Rss:                 300 kB
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0 
Rss:                 200 kB
Anonymous:           200 kB
`
	want := []mapping{
		{0x400000, 0x500000, 700, false},
		{0x500000, 0x600000, 600, true},
		{0x600000, 0x700000, 500, true},
		{0x700000, 0x800000, 400, true},
	}
	if got := mappingsOf("/usr/bin/brine", strings.NewReader(smaps)); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
