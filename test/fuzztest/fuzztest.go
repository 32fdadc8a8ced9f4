// Package fuzztest runs fuzz targets at full speed, without the
// instrumentation of `go test -fuzz`, and chooses the inputs worth keeping.
//
// A target wraps its testing.F:
//
//	func FuzzX(tf *testing.F) {
//		f := fuzztest.Wrap(tf)
//
// and is otherwise an ordinary fuzz target. Environment variables change what
// `go test -run '^Fuzz'` does with it:
//
//   - BRINE_FUZZ_COUNT=10s mutates the seeds for that long and reports the
//     number of executions; BRINE_FUZZ_LOG names a file for the reports.
//   - BRINE_FUZZ_KEEP=DIR copies into testdata/fuzz those of the inputs in
//     DIR/<package>/<target> that cover statements no smaller input covers.
//     It needs -cover.
package fuzztest

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// F is a testing.F that stores its seeds.
type F struct {
	*testing.F
	pkg   string
	seeds [][]any
}

// Wrap returns f; call Add and Fuzz on the result.
func Wrap(f *testing.F) *F {
	pc, _, _, _ := runtime.Caller(1)
	return &F{F: f, pkg: packageOf(runtime.FuncForPC(pc).Name())}
}

// packageOf returns the import path in the name of a function. Tests of a
// package x_test count as those of x, as in the cache of `go test -fuzz`.
func packageOf(fun string) string {
	slash := strings.LastIndexByte(fun, '/') + 1
	name, _, _ := strings.Cut(fun[slash:], ".")
	return fun[:slash] + strings.TrimSuffix(name, "_test")
}

// Add adds a seed, as testing.F.Add.
func (f *F) Add(args ...any) {
	f.Helper()
	f.seeds = append(f.seeds, args)
	f.F.Add(args...)
}

// Fuzz runs fn, as testing.F.Fuzz, or as the environment asks.
func (f *F) Fuzz(fn any) {
	f.Helper()
	if v := os.Getenv("BRINE_FUZZ_COUNT"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			f.Fatalf("BRINE_FUZZ_COUNT: %v", err)
		}
		f.withT(fn, func(t *testing.T) { f.count(t, fn, d) })
		return
	}
	if dir := os.Getenv("BRINE_FUZZ_KEEP"); dir != "" {
		if testing.CoverMode() == "" {
			f.Fatal("BRINE_FUZZ_KEEP needs go test -cover")
		}
		f.withT(fn, func(t *testing.T) { f.keep(t, fn, dir) })
		return
	}
	f.F.Fuzz(fn)
}

// withT calls do once with a testing.T, which only testing.F.Fuzz creates.
func (f *F) withT(fn any, do func(*testing.T)) {
	typ := reflect.TypeOf(fn)
	if len(f.seeds) == 0 {
		zero := make([]any, typ.NumIn()-1)
		for i := range zero {
			zero[i] = reflect.Zero(typ.In(i + 1)).Interface()
		}
		f.Add(zero...)
	}
	done := false
	f.F.Fuzz(reflect.MakeFunc(typ, func(args []reflect.Value) []reflect.Value {
		if !done {
			done = true
			do(args[0].Interface().(*testing.T))
		}
		return nil
	}).Interface())
}

// caller returns a function that calls fn, without reflection for the usual
// types of fuzz functions.
func caller(fn any) func(*testing.T, []any) {
	switch fn := fn.(type) {
	case func(*testing.T, []byte):
		return func(t *testing.T, args []any) { fn(t, args[0].([]byte)) }
	case func(*testing.T, string):
		return func(t *testing.T, args []any) { fn(t, args[0].(string)) }
	case func(*testing.T, []byte, []byte):
		return func(t *testing.T, args []any) { fn(t, args[0].([]byte), args[1].([]byte)) }
	case func(*testing.T, string, string):
		return func(t *testing.T, args []any) { fn(t, args[0].(string), args[1].(string)) }
	}
	v := reflect.ValueOf(fn)
	return func(t *testing.T, args []any) {
		in := make([]reflect.Value, len(args)+1)
		in[0] = reflect.ValueOf(t)
		for i, a := range args {
			in[i+1] = reflect.ValueOf(a)
		}
		v.Call(in)
	}
}

// run is a counted run of one target.
type run struct {
	f       *F
	call    func(*testing.T, []any)
	n       atomic.Int64
	current atomic.Pointer[[]any]
	slowest time.Duration
}

// Stuck is how long one execution may take before the run ends with its
// input. It is far above what a loaded machine adds.
const Stuck = time.Minute

func (f *F) count(t *testing.T, fn any, d time.Duration) {
	m := newMutator(rand.Uint64(), append(f.seeds, f.readCorpus(t, filepath.Join("testdata", "fuzz", f.Name()))...))
	r := &run{f: f, call: caller(fn)}
	stop := make(chan struct{})
	defer close(stop)
	go r.watch(stop)

	begun := time.Now()
	now := begun
	for now.Sub(begun) < d && !t.Failed() {
		// A subtest ends each batch, so that temporary directories are removed.
		t.Run("", func(t *testing.T) {
			failed := true
			defer func() {
				if failed || t.Failed() {
					r.save(*r.current.Load())
				}
			}()
			for end := now.Add(50 * time.Millisecond); now.Before(end) && !t.Failed(); {
				args := m.next()
				r.current.Store(&args)
				r.call(t, args)
				was := now
				now = time.Now()
				r.slowest = max(r.slowest, now.Sub(was))
				r.n.Add(1)
			}
			failed = false
		})
		now = time.Now()
	}
	r.report(now.Sub(begun))
}

// watch ends the program if one execution does not return in time.
func (r *run) watch(stop chan struct{}) {
	last, since := int64(-1), time.Now()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Second):
		}
		if n := r.n.Load(); n != last {
			last, since = n, time.Now()
		} else if time.Since(since) > Stuck {
			panic(fmt.Sprintf("one execution takes more than %v: see %s", Stuck, r.save(*r.current.Load())))
		}
	}
}

func (r *run) report(took time.Duration) {
	line := fmt.Sprintf("%s %s %d executions in %.0f s, slowest %.1f ms\n", r.f.pkg, r.f.Name(), r.n.Load(), took.Seconds(),
		float64(r.slowest.Microseconds())/1000)
	fmt.Print(line)
	name := os.Getenv("BRINE_FUZZ_LOG")
	if name == "" {
		return
	}
	log, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		r.f.Fatal(err)
	}
	defer log.Close()
	if _, err := log.WriteString(line); err != nil {
		r.f.Fatal(err)
	}
}

// save writes a failing input where `go test` will find it.
func (r *run) save(args []any) string {
	name, err := write(filepath.Join("testdata", "fuzz", r.f.Name()), args)
	if err != nil {
		fmt.Println("cannot save a failing input:", err)
	}
	fmt.Println("failing input:", name)
	return name
}

func write(dir string, args []any) (name string, err error) {
	text := marshal(args)
	name = filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256(text))[:16])
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return name, err
	}
	return name, os.WriteFile(name, text, 0o644)
}
