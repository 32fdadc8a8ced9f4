package textedit

import (
	"brine/internal/base/salt"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

// Flags parses the argument flags of Salt's functions and states that edit by
// regular expressions: a number, a name such as "MULTILINE", or a list of
// names.
func Flags(v any) (pyre.Flags, error) {
	switch v := v.(type) {
	case int64:
		return pyre.Flags(v), nil
	case string:
		return Flags(value.ListOf(v))
	case *value.List:
		var out pyre.Flags
		for _, it := range v.Items {
			flag, ok := pyre.FlagByName(value.Str(it))
			if !ok {
				return 0, salt.Errorf(salt.Invalid, "Invalid re flag given: %s", value.Str(it))
			}
			out |= flag
		}
		return out, nil
	}
	return 0, salt.Errorf(salt.Invalid,
		`Invalid re flags: "%s", must be given either as a single flag string, a list of strings, as an integer, or as an re flag`, value.Str(v))
}
