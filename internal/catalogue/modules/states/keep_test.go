package states

import (
	"bytes"
	"fmt"
	"testing"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// TestPack checks that encoding entry by entry yields the same bytes as encoding at once.
func TestPack(t *testing.T) {
	long := value.NewDict(0)
	for i := range 3000 {
		long.Set(fmt.Sprint("state_", i), value.DictOf("file", value.ListOf("managed", value.DictOf("name", fmt.Sprint("/etc/", i)))))
	}
	for _, v := range []any{value.NewDict(0), value.DictOf("a", 1), long, value.ListOf("a fault"), nil} {
		var b bytes.Buffer
		err := pack(&b, v)
		want, e := msgpack.Marshal(v, msgpack.Wire)
		if err != nil || e != nil || !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%.60s: %d bytes, not %d: %v %v", value.Repr(v), b.Len(), len(want), err, e)
		}
	}
}
