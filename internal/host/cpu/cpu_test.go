package cpu

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Info{
		"": {Flags: []string{}},
		"processor\t: 0\nmodel name\t: A: B\nflags\t: x y\n\nprocessor\t: 1\n": {Count: 2, Model: "A", Flags: []string{"x", "y"}},
		"processor\t: 0\nno colon\nFeatures\t: fp\n":                           {Count: 1, Flags: []string{"fp"}},
		"# processors    : many\n# processors    : 4\n":                        {Count: 4, Flags: []string{}},
		"processor\t: 0\nProcessor\t: ARMv7 rev-5\n":                           {Count: 1, Model: "ARMv7 rev", Flags: []string{}},
	} {
		if got := Parse(text); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	got := ParseMemory("MemTotal:       16237148 kB\nMemFree: 1 kB\nSwapTotal: 7\nMemTotal:\nSwapTotal: much kB\n")
	if want := (Memory{Total: 16237148, Swap: 7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
