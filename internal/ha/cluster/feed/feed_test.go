package feed

import (
	"slices"
	"testing"

	"brine/internal/base/wait"
	"brine/internal/ha/cluster/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
	"brine/test/fuzztest"
)

// FuzzFeed: no vector or changes of a peer cause a panic or exceed the bounds.
func FuzzFeed(tf *testing.F) {
	f := fuzztest.Wrap(tf)
	for _, d := range []*value.Dict{
		value.DictOf("rep", "records", "origin", "a", "from", int64(0), "to", int64(2), "items", value.ListOf(value.ListOf(int64(1), []byte("x")))),
		value.DictOf("rep", "records", "vec", value.DictOf("a", int64(3)), "got", int64(1)),
		value.DictOf("rep", "records", "gap", true, "err", "no"),
		value.DictOf("vec", value.DictOf("records", value.DictOf("a", int64(3)))),
	} {
		b, err := msgpack.Marshal(d, msgpack.NewSpec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := msgpack.UnmarshalTyped(b)
		d, _ := v.(*value.Dict)
		if err != nil || d == nil {
			return
		}
		batches := make(chan oplog.Batch, 1)
		var changes wire.Changes
		wire.View(d, &changes)
		if err := (Queues{"records": batches}).Give(&changes); err == nil {
			for _, it := range (<-batches).Items {
				if int64(it.Number) < 0 {
					t.Fatalf("change %d", it.Number)
				}
			}
		}
		fd := &Feed{name: "records", news: wait.NewWakeup(), have: oplog.Vector{}, sent: oplog.Vector{"a": 1}, lag: map[string]lag{}, open: 1}
		var known wire.Known
		wire.View(d, &known)
		fd.Answered(&known)
		if fd.open < 0 {
			t.Fatalf("%d batches are open", fd.open)
		}
		for _, vec := range []oplog.Vector{fd.have, readVector(d.Dict("vec").Dict("records"))} {
			if len(vec) > maxVector {
				t.Fatalf("%d origins", len(vec))
			}
			for origin, n := range vec {
				if n == 0 || int64(n) < 0 || len(origin) > maxOrigin {
					t.Fatalf("%q: %d", origin, n)
				}
			}
		}
	})
}

// ownNames is a stream of which only Self and Own may be called.
type ownNames struct {
	oplog.Stream
	self string
}

func (s ownNames) Self() string           { return s.self }
func (s ownNames) Own(origin string) bool { return origin[0] == s.self[0] }

// TestOwnChangesInOrder: changes from before the start are sent before those after
// it, and changes of other masters after both.
func TestOwnChangesInOrder(t *testing.T) {
	mine := oplog.Vector{"a1": 3, "a2": 2, "b1": 7, "c1": 1}
	for range 50 { // the iteration order of maps varies
		f := &Feed{p: Peer{Behind: func(string, int64) {}}, stream: ownNames{self: "a2"}, have: oplog.Vector{"a1": 1}, sent: oplog.Vector{}, lag: map[string]lag{}}
		var got []string
		for {
			origin, _, ok := f.next(mine)
			if !ok {
				break
			}
			got = append(got, origin)
			f.sent[origin] = mine[origin]
		}
		if !slices.Equal(got, []string{"a1", "a2"}) {
			t.Fatalf("sent %v", got)
		}
	}
}
