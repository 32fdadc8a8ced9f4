package event

import (
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Trimmed replaces a value that was too large for the bus. Source: Salt's
// salt.utils.dicttrim.
const Trimmed = "VALUE_TRIMMED"

// encodeData encodes the data of an event. If it takes more than limit bytes, values are replaced:
// first those larger than half the limit, then smaller ones in steps of a tenth, until the rest
// fits or nothing is left to replace. 0 means no limit.
func encodeData(d *value.Dict, limit int) ([]byte, error) {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil || limit <= 0 {
		return b, err
	}
	for percent := 50; len(b) > limit && percent >= 0; percent -= 10 {
		d = trimDict(d, limit/100*percent)
		if b, err = msgpack.Marshal(d, msgpack.NewSpec); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// trimDict returns d with every value larger than size replaced. Values in a nested dict are
// replaced one by one.
func trimDict(d *value.Dict, size int) *value.Dict {
	out := value.NewDict(d.Len())
	for k, v := range d.All() {
		if inner, ok := v.(*value.Dict); ok {
			v = trimDict(inner, size)
		} else if k != "_stamp" && largerThan(v, size) {
			v = Trimmed
		}
		out.Set(k, v)
	}
	return out
}

func largerThan(v any, size int) bool {
	switch x := v.(type) {
	case nil, bool, int64, float64:
		return false
	case string:
		return len(x) > max(size, len(Trimmed))
	case []byte:
		return len(x) > max(size, len(Trimmed))
	}
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	return err != nil || len(b) > max(size, len(Trimmed))
}
