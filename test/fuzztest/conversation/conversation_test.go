package conversation

import (
	"math/rand/v2"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func talk() []*value.Dict {
	return []*value.Dict{value.DictOf("cmd", "a", "list", value.ListOf("x", value.DictOf("y", int64(1)))), value.DictOf("cmd", "b", "raw", []byte("z"))}
}

func encode(t *testing.T, ms []*value.Dict) string {
	l := value.ListOf()
	for _, m := range ms {
		l.Append(m)
	}
	b, err := msgpack.Marshal(l, msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOperations: each operation changes the conversation, and does not modify the recording.
func TestOperations(t *testing.T) {
	values := Values("other")
	was := encode(t, talk())
	for op := range operations {
		recorded := talk()
		got := Mutate([]byte{byte(op), 0, 1, 2, 3, 'a', 'b'}, recorded, values)
		if encode(t, got) == was {
			t.Errorf("operation %d changes nothing", op)
		}
		if encode(t, recorded) != was {
			t.Errorf("operation %d changes what was recorded", op)
		}
	}
	if got := encode(t, Mutate(nil, talk(), values)); got != was {
		t.Error("no program changes something")
	}
	got := Mutate(append([]byte{Write, 0, 0, 6}, "victim"...), talk(), values)
	if got[0].Str("cmd") != "victim" {
		t.Errorf("%s", value.Repr(got[0]))
	}
}

// TestAnyProgram: every program terminates, with a conversation of bounded length.
func TestAnyProgram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := Values("other")
	for range 3000 {
		b := make([]byte, r.IntN(200))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		if got := Mutate(b, talk(), values); len(got) > maxMessages+1 {
			t.Fatalf("%d messages", len(got))
		}
	}
	for _, s := range Seeds(2, values) {
		Mutate(s, talk(), values)
	}
}
