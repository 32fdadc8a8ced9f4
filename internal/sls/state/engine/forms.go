package engine

import (
	"fmt"
	"slices"

	"brine/internal/py/value"
)

// forms finds keywords of a chunk with meaningless values. An error here prevents
// the state from running.
func forms(low *value.Dict) (faults []string) {
	for _, k := range []string{"onlyif", "unless"} {
		v, ok := low.Get(k)
		if !ok {
			continue
		}
		for _, it := range items(v) {
			if fault := conditionFault(k, it); fault != "" {
				faults = append(faults, fault)
			}
		}
	}
	for k, what := range map[string]string{"creates": "the path of a file", "check_cmd": "a command"} {
		v, ok := low.Get(k)
		if !ok {
			continue
		}
		for _, it := range items(v) {
			if _, ok := it.(string); !ok {
				faults = append(faults, fmt.Sprintf("%s: %s is a %s, where %s is expected, or a list of them", k, value.Repr(it), value.TypeName(it), what))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

func conditionFault(keyword string, v any) string {
	if x, ok := v.(*value.Dict); ok {
		if _, ok := x.At("fun").(string); !ok && x.Has("fun") { // a missing fun only causes a warning, as in Salt
			return fmt.Sprintf("%s: %s names no function: write it as fun: module.function", keyword, value.Repr(x))
		}
	}
	return "" // idle warns about other values
}

// idle reports keywords that Salt ignores: conditions without effect, because a
// template made them True, False or a number instead of a command, and settings of retry that fall back to defaults. Trees that
// have them work with Salt, so they only cause a warning.
func idle(low *value.Dict) (warnings []string) {
	for _, k := range []string{"onlyif", "unless"} {
		for _, it := range items(low.At(k)) {
			switch it.(type) {
			case string, nil, *value.Dict:
			default:
				warnings = append(warnings, fmt.Sprintf("%s: %s is no command, and decides nothing; to decide while the file is rendered, "+
					"put the state into {%% if %%}, or write the text 'true' or 'false' in quotes", k, value.Repr(it)))
			}
		}
	}
	if v, ok := low.Get("retry"); ok {
		warnings = append(warnings, retryWarnings(v)...)
	}
	return warnings
}

// retryWarnings reports settings of retry that readRetry ignores.
func retryWarnings(v any) (warnings []string) {
	switch x := v.(type) {
	case bool:
	case *value.Dict:
		for k, v := range x.All() {
			var ok bool
			want := "a whole number"
			switch k {
			case "until":
				_, ok = v.(bool)
				want = "True or False"
			case "attempts", "interval", "splay":
				_, ok = wholeNumber(v)
			default:
				warnings = append(warnings, fmt.Sprintf("retry has no setting %s; it has attempts, interval, splay and until", value.Repr(k)))
				continue
			}
			if !ok {
				warnings = append(warnings, fmt.Sprintf("retry: %s is %s, but must be %s; the default is used", value.Str(k), value.Repr(v), want))
			}
		}
	default:
		warnings = append(warnings, fmt.Sprintf("retry: %s is not True, nor a mapping of attempts, interval, splay and until; the defaults are used", value.Repr(v)))
	}
	return warnings
}
