package salt

import (
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// IsTrue reads a value as Salt's functions read an argument that is to be true or false: numbers, also in
// texts, are true above 0 (of a fraction that is no text the whole part), a text is true if it is "true" in any case, and anything else has Python's truth.
// Source: salt.utils.data.is_true.
func IsTrue(v any) bool {
	switch x := v.(type) {
	case string:
		if n, ok := numberIn(x); ok {
			return n > 0
		}
		return strings.EqualFold(x, "true")
	case []byte:
		if n, ok := numberIn(string(x)); ok {
			return n > 0
		}
	case int64:
		return x > 0
	case float64:
		return x >= 1 // Salt takes its whole part
	}
	return value.Truth(v)
}

// numberIn reads a number as Python's float does.
func numberIn(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if strings.ContainsAny(s, "xXpP") { // Go's hexadecimal form
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}
