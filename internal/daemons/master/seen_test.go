package master

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"brine/internal/net/channel"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestPackSeen: reports arrive unchanged, in messages of bounded size;
// malformed entries are skipped.
func TestPackSeen(t *testing.T) {
	var seen []channel.Seen
	for i := range 3 * seenMinions {
		e := channel.Seen{ID: fmt.Sprint("minion", i), Key: 1<<63 + uint64(i), Generation: uint32(i % 3), Floor: 1<<32 - 1}
		for n := range i % 40 {
			e.Nonces = append(e.Nonces, channel.SeenNonce{Hash: 1<<64 - 1 - uint64(n), Sent: uint32(n)})
		}
		seen = append(seen, e)
	}
	var got []channel.Seen
	for rest := seen; len(rest) > 0; {
		var chunk *value.List
		chunk, rest = packSeen(rest)
		b, err := msgpack.Marshal(chunk, msgpack.NewSpec)
		if err != nil || len(b) > 1<<20 {
			t.Fatalf("%d bytes, %v", len(b), err)
		}
		v, err := msgpack.UnmarshalTyped(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, unpackSeen(v.(*value.List).Items)...)
	}
	if !reflect.DeepEqual(got, seen) {
		t.Errorf("%d entries of %d arrive, or others", len(got), len(seen))
	}
	one := channel.Seen{ID: "a", Nonces: make([]channel.SeenNonce, 2*seenChunk)}
	if chunk, rest := packSeen([]channel.Seen{one, one}); len(chunk.Items) != 1 || len(rest) != 1 {
		t.Errorf("one entry that is larger than a message: %d and %d", len(chunk.Items), len(rest))
	}
	key := make([]byte, 8)
	for _, bad := range []any{nil, 1, "a", value.ListOf(), value.ListOf("a", key, int64(0), int64(0)), value.ListOf("a", key[:7], int64(0), int64(0), []byte{}),
		value.ListOf("a", key, "0", int64(0), []byte{}), value.ListOf(1, key, int64(0), int64(0), []byte{}), value.ListOf("a", key, int64(0), nil, []byte{})} {
		if got := unpackSeen([]any{bad}); len(got) > 0 {
			t.Errorf("%v is read as %v", value.Repr(bad), got)
		}
	}
}

// TestTellSeenGoesOn: after a message that another master did not answer, the next
// attempt continues with it; acknowledged messages are not repeated, and each
// message has its own timeout. Only if too much is queued, everything is sent
// again.
func TestTellSeenGoesOn(t *testing.T) {
	var seen []channel.Seen
	for i := range 3*seenMinions - 1 {
		seen = append(seen, channel.Seen{ID: fmt.Sprint("minion", i), Floor: 1})
	}
	news := []channel.Seen{{ID: "new", Floor: 1}}
	var got []channel.Seen
	calls, fail, p := 0, 2, &seenPeer{told: true, busy: true, waits: news}
	var last context.Context
	s := &seenTeller{peers: map[string]*seenPeer{"other": p}, ask: func(ctx context.Context, _ string, arg *value.Dict) error {
		if _, timed := ctx.Deadline(); !timed || ctx == last {
			t.Error("a message without its own time")
		}
		last = ctx
		if calls++; calls == fail {
			return errors.New("no answer")
		}
		got = append(got, unpackSeen(arg.List("seen"))...)
		return nil
	}}
	s.tell(t.Context(), "other", p, seen)
	if calls != fail || p.busy || !p.told || len(p.waits) != len(seen)-seenMinions+len(news) {
		t.Fatalf("after %d messages %d entries wait (%v, %v)", calls, len(p.waits), p.busy, p.told)
	}
	rest := p.waits
	p.waits = nil
	s.tell(t.Context(), "other", p, rest)
	if want := append(seen, news...); len(got) != len(want) || got[0].ID != want[0].ID || got[len(got)-1].ID != "new" || len(p.waits) > 0 {
		t.Errorf("%d entries of %d were told, %d wait", len(got), len(want), len(p.waits))
	}

	for name, seen := range map[string][]channel.Seen{"too much": {{ID: "a", Nonces: make([]channel.SeenNonce, seenWaits)}}, "the first message": nil} {
		p.told, p.waits, fail = true, news, calls+1
		if s.tell(t.Context(), "other", p, seen); p.told || len(p.waits) > 0 {
			t.Errorf("%s: not told from the beginning", name)
		}
	}
	p.waits, fail = nil, calls+1 // it restarted while a message was in flight
	if s.tell(t.Context(), "other", p, news); p.told || len(p.waits) > 0 {
		t.Error("a master that was started again is not told from the beginning")
	}
}

// TestQuickRestartIsTold: a master that restarted before its lost connection was noticed gets
// everything again.
func TestQuickRestartIsTold(t *testing.T) {
	p := &seenPeer{told: true, waits: []channel.Seen{{ID: "new"}}}
	s := &seenTeller{peers: map[string]*seenPeer{"other": p}}
	s.meet("unknown", "1")
	s.meet("other", "1")
	s.meet("other", "1")
	if !p.told || len(p.waits) != 1 {
		t.Error("its first message counts as a restart")
	}
	s.meet("other", "2")
	if p.told || len(p.waits) != 0 {
		t.Error("a restart is not noticed")
	}
	p.told = true
	if s.meet("other", "2"); !p.told {
		t.Error("each message counts as a restart")
	}
}
