package yaml

import (
	"testing"

	"brine/internal/py/value"
	"brine/test/fuzztest"
)

func FuzzLoad(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, g := range readGolden(f, "load.json") {
		f.Add([]byte(g.Doc))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Load(data, "fuzz")
		if err != nil {
			if v != nil {
				t.Fatal("a value beside an error")
			}
			_ = err.Error()
			return
		}
		if n := weight(v, 0); n > 64*(len(data)+MaxExpansion) {
			t.Fatalf("%d bytes became %d values", len(data), n)
		}
		LoadArg(string(data))
	})
}

// weight counts the values in v and panics on a cycle by running out of depth.
func weight(v any, depth int) int {
	if depth > MaxDepth+2 {
		panic("too deep")
	}
	n := 1
	switch x := v.(type) {
	case *value.List:
		for _, it := range x.Items {
			n += weight(it, depth+1)
		}
	case value.Tuple:
		for _, it := range x {
			n += weight(it, depth+1)
		}
	case *value.Dict:
		for _, it := range x.All() {
			n += 1 + weight(it, depth+1)
		}
	}
	return n
}

func BenchmarkLoad(b *testing.B) {
	const sls = "vim:\n  pkg.installed: []\n\n/etc/motd:\n  file.managed:\n    - source: salt://motd\n    - mode: 0644\n    - require:\n      - pkg: vim\n"
	b.SetBytes(int64(len(sls)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Load([]byte(sls), ""); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLoadArg(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		LoadArg("test.ping")
		LoadArg("name=value")
	}
}
