package fleet

import (
	"testing"

	"brine/internal/net/transport"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// clear sends a clear request and returns the reply.
func clear(t testing.TB, r transport.Requester, load *value.Dict) any {
	t.Helper()
	body, err := msgpack.Marshal(value.DictOf("enc", "clear", "load", load, "version", 3), msgpack.Wire)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := r.Request(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	v, err := msgpack.Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
