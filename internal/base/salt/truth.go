package salt

import (
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// IsTrue converts a value to a boolean like Salt's functions: numbers, also as strings, are true above 0 (fractions that are not strings are truncated
// first), a string is true if it is "true" in any case, and other values have Python's truth value. Source: salt.utils.data.is_true.
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
		return x >= 1 // Salt truncates it first
	}
	return value.Truth(v)
}

// numberIn parses a number like Python's float.
func numberIn(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	if strings.ContainsAny(s, "xXpP") { // Go's hexadecimal floats
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}
