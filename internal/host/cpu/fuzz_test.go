package cpu

import (
	"testing"

	"brine/test/fuzztest"
)

func FuzzParse(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, s := range []string{"processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags\t\t: fpu vme\n\nprocessor\t: 1\n",
		"processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\n", "MemTotal:       16309284 kB\nSwapTotal: 0 kB\n", "MemTotal: 99999999999999999999 kB",
		"processor 0: version = FF", ": :"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		Parse(text)
		ParseMemory(text)
	})
}
