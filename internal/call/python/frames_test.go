package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/py/marshal"
	"brine/internal/py/value"
	"brine/test/fuzztest"
)

// bare is a helper without a process. Its answers are dropped.
func bare(t testing.TB, env *Env) *helper {
	t.Helper()
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	log := slog.New(slog.DiscardHandler)
	h := &helper{pool: New(Config{Log: log}), log: log, out: out, gone: make(chan struct{}), silent: make(chan struct{}),
		answers: map[int64]chan answer{1: make(chan answer, 1)}, envs: map[int64]*activity{}}
	h.envs[1] = &activity{t.Context(), env}
	return h
}

// frameOf encodes a message of Python.
func frameOf(t testing.TB, items ...any) []byte {
	t.Helper()
	b, marked, err := marshal.Append(make([]byte, 5), value.Tuple(items))
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(b, uint32(len(b)-5))
	if marked {
		b[4] = flagMarked
	}
	return b
}

// blocked is a set of functions that never return.
type blocked struct {
	Functions
	until chan struct{}
}

func (b blocked) Has(string) bool { <-b.until; return false }

// TestFloodOfRequests checks that a helper that makes any number of requests, and waits for no
// answer, uses bounded memory.
func TestFloodOfRequests(t *testing.T) {
	b := blocked{until: make(chan struct{})}
	defer close(b.until)
	h := bare(t, &Env{Call: (&fn.Call{}).Prepare(), Functions: map[string]Functions{"modules": b}})
	m := value.Tuple{"q", int64(1), "has", int64(1), "modules", "x.y"}
	var err error
	made := 0
	for err == nil && made <= 2*maxServing {
		err = h.take(m)
		made++
	}
	if !errors.Is(err, errFlood) || made != maxServing+1 {
		t.Errorf("%d requests: %v", made, err)
	}
}

// FuzzFrames checks that any message of a helper is rejected or handled within bounds.
func FuzzFrames(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	raised := value.DictOf("names", value.ListOf("salt.exceptions.CommandExecutionError"), "text", "x", "trace", "y", "number", 3,
		"info", value.DictOf("a", 1), "summary", nil)
	for _, items := range [][]any{
		{"r", int64(1), true, value.DictOf("a", 1), int64(2)}, {"r", int64(1), false, raised, nil}, {"r", int64(9), true, nil, int64(1) << 60},
		{"l", int64(30), "logger", "text"}, {"l", nil, nil, nil}, {"q", int64(5), "has", int64(1), "modules", "x"}, {"q", int64(5), "tree", int64(1), "opts", nil},
		{"q", int64(5), "tree", int64(1), "grains", value.ListOf(1)}, {"q", int64(5), "call", int64(1), "modules", "x.y", value.ListOf(), value.NewDict(0)},
		{"q", int64(5), "yaml_load", int64(1), "a: [b"}, {"q", int64(5), "yaml_dump", int64(1), value.DictOf("a", nil), value.DictOf("indent", 4)},
		{"q", int64(5), "render", int64(1), "jinja", "{{ 1 }}", "base", "", nil}, {"q", int64(5), "names", int64(7), "x"}, {"q", int64(5), "doc", int64(1)},
	} {
		f.Add(frameOf(f, items...))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		h := bare(t, &Env{Call: (&fn.Call{}).Prepare()})
		r := bytes.NewReader(in)
		for {
			m, err := readFrame(r)
			if err != nil {
				if !errors.Is(err, errMalformed) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatal(err)
				}
				return
			}
			if len(m) > 4 && m[0] == "q" && len(m) < 64 {
				if name, ok := m[2].(string); ok {
					h.serve(h.envs[1], 1, name, m[4:])
					continue
				}
			}
			if err := h.take(m); err != nil && !errors.Is(err, errMalformed) {
				t.Fatal(err)
			}
		}
	})
}
