package serialize

import (
	"fmt"
	"math/big"
	"time"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func init() { register("msgpack", Format{writeMsgpack, readMsgpack}) }

func writeMsgpack(v any, opts *value.Dict) (any, error) {
	o := of("msgpack", opts)
	dialect := msgpack.NewSpec
	if !o.truth("use_bin_type", true) {
		dialect = msgpack.Wire
	}
	o.null("datetime", "default", "use_single_float")
	o.take("autoreset")
	o.take("strict_types")
	o.take("unicode_errors")
	o.take("encoding")
	if err := o.done(); err != nil {
		return nil, err
	}
	if err := packable(v, 0); err != nil {
		return nil, err
	}
	return msgpack.Marshal(v, dialect)
}

// packable fails for values that msgpack cannot represent.
func packable(v any, depth int) error {
	if depth > MaxDepth {
		return errDeep
	}
	var items []any
	switch x := v.(type) {
	case *value.List:
		items = x.Items
	case value.Tuple:
		items = x
	case *value.Dict:
		for k, w := range x.All() {
			items = append(items, k, w)
		}
	case *big.Int:
		if x.Sign() < 0 || x.BitLen() > 64 {
			return fmt.Errorf("msgpack: the number %s is out of range", x)
		}
	case time.Time:
		return fmt.Errorf("msgpack: the time %s cannot be written", value.Str(x))
	}
	for _, it := range items {
		if err := packable(it, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func readMsgpack(data []byte, opts *value.Dict) (any, error) {
	o := of("msgpack", opts)
	o.null("raw", "object_hook", "object_pairs_hook", "list_hook", "timestamp")
	for _, n := range []string{"use_list", "strict_map_key", "unicode_errors", "encoding"} {
		o.take(n)
	}
	if err := o.done(); err != nil {
		return nil, err
	}
	return msgpack.UnmarshalTyped(data)
}
