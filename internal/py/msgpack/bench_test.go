package msgpack

import (
	"fmt"
	"runtime"
	"testing"

	"brine/internal/py/value"
)

// allocated returns the number of bytes allocated so far.
func allocated() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.TotalAlloc)
}

// highstate returns a job return of some 25 KB, as a minion sends it after a
// highstate.
func highstate(t testing.TB, d Dialect) []byte {
	t.Helper()
	b, err := Marshal(highstateValue(), d)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func highstateValue() any {
	states := value.NewDict(75)
	for i := range 75 {
		states.Set(fmt.Sprintf("file_|-/etc/app/conf.d/%02d.conf_|-/etc/app/conf.d/%02d.conf_|-managed", i, i), value.DictOf(
			"changes", value.DictOf("diff", fmt.Sprintf("--- \n+++ \n@@ -1 +1 @@\n-port = %d\n+port = %d\n", i, i+1)),
			"comment", fmt.Sprintf("File /etc/app/conf.d/%02d.conf updated", i),
			"name", fmt.Sprintf("/etc/app/conf.d/%02d.conf", i),
			"result", true,
			"__sls__", "app.config",
			"__run_num__", i,
			"start_time", fmt.Sprintf("12:01:%02d.000123", i),
			"duration", 12.345+float64(i),
			"__id__", fmt.Sprintf("/etc/app/conf.d/%02d.conf", i),
		))
	}
	return value.DictOf("cmd", "_return", "id", "web01.example.org", "jid", "20240102030405123456",
		"return", states, "retcode", 0, "success", true, "fun", "state.highstate", "fun_args", []any{}, "out", "highstate")
}

// TestAllocations bounds the allocations for a typical large message.
func TestAllocations(t *testing.T) {
	b := highstate(t, Wire)
	if len(b) < 20_000 || len(b) > 30_000 {
		t.Fatalf("the sample has %d bytes", len(b))
	}
	v := highstateValue()
	buf := make([]byte, 0, 2*len(b))
	for name, c := range map[string]struct {
		most float64
		run  func()
	}{
		"Unmarshal": {1800, func() { _, _ = Unmarshal(b) }},
		"Append":    {0, func() { _, _ = Append(buf, v, Wire) }},
		"Skip":      {1, func() { _, _ = Skip(b) }},
		"Field":     {2, func() { _, _, _ = Field(b, "return") }},
	} {
		if got := testing.AllocsPerRun(10, c.run); got > c.most {
			t.Errorf("%s: %v allocations, at most %v are expected", name, got, c.most)
		}
	}
}

func BenchmarkUnmarshal(b *testing.B) {
	in := highstate(b, Wire)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Unmarshal(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkUnmarshalSmall(b *testing.B) {
	in, _ := Marshal(value.DictOf("enc", "aes", "load", make([]byte, 200), "version", 3, "id", "web01"), Wire)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Unmarshal(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMarshal(b *testing.B) {
	v := highstateValue()
	b.SetBytes(int64(len(highstate(b, Wire))))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Marshal(v, Wire); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppend(b *testing.B) {
	v := highstateValue()
	buf := make([]byte, 0, 64<<10)
	b.SetBytes(int64(len(highstate(b, Wire))))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Append(buf, v, Wire); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSkip(b *testing.B) {
	in := highstate(b, Wire)
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Skip(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkField(b *testing.B) {
	in := highstate(b, Wire)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Field(in, "return"); err != nil {
			b.Fatal(err)
		}
	}
}
