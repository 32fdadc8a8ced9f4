package audit

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"brine/internal/py/json"
	"brine/internal/py/value"
)

func benchRecord() *value.Dict {
	return value.DictOf("time", "2026-01-02T03:04:05.123456", "user", "alice", "auth", "eauth", "fun", "state.apply", "tgt", "web*", "from", "10.0.0.1",
		"cmd", "publish", "result", "done", "jid", "20260101120000000000")
}

// BenchmarkAdd compares a record of the chain with a line of the same content without hashes.
func BenchmarkAdd(b *testing.B) {
	b.Run("chain", func(b *testing.B) {
		l, err := Open(filepath.Join(b.TempDir(), "audit"), []byte("k"))
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		b.ReportAllocs()
		for b.Loop() {
			if _, err := l.Add(benchRecord()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("plain", func(b *testing.B) {
		f, err := os.OpenFile(filepath.Join(b.TempDir(), "audit"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		var mu sync.Mutex
		b.ReportAllocs()
		size := int64(0)
		for b.Loop() {
			text, err := json.Dump(benchRecord(), json.Format{ASCII: true})
			if err != nil {
				b.Fatal(err)
			}
			mu.Lock()
			n, err := f.WriteString(text + "\n")
			if size += int64(n); size >= maxSize {
				if err := f.Truncate(0); err != nil {
					b.Fatal(err)
				}
				size = 0
			}
			mu.Unlock()
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}
