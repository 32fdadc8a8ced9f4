package output

import (
	"fmt"
	"slices"
	"strings"

	"brine/internal/py/value"
)

// keyStates maps each key state to its heading and colours.
var keyStates = map[string]struct {
	heading     string
	head, entry color
}{
	"local":            {"Local Keys:", lightMagenta, magenta},
	"minions":          {"Accepted Keys:", lightGreen, green},
	"minions_denied":   {"Denied Keys:", lightMagenta, magenta},
	"minions_pre":      {"Unaccepted Keys:", lightRed, red},
	"minions_rejected": {"Rejected Keys:", lightBlue, blue},
}

func init() { outputters.Register("key", (*Printer).key) }

// key shows minion keys by state: a map of state to ids, or to a map of id to
// fingerprint or key.
func (p *Printer) key(data any, _ Call) (string, error) {
	d, ok := data.(*value.Dict)
	if !ok {
		return "", fmt.Errorf("the key outputter needs a map, not %s", value.TypeName(data))
	}
	var b strings.Builder
	for _, k := range sortedKeys(d) {
		st, ok := keyStates[value.Str(k)]
		if !ok {
			return "", fmt.Errorf("%s is not a key state", value.Repr(k))
		}
		b.WriteString(p.pal.paint(st.head, st.heading) + "\n")
		switch ids := d.At(k).(type) {
		case *value.List:
			for _, id := range slices.Sorted(slices.Values(value.Texts(ids))) {
				b.WriteString(p.pal.paint(st.entry, p.clean(id)) + "\n")
			}
		case *value.Dict:
			for _, id := range sortedKeys(ids) {
				b.WriteString(p.pal.paint(st.entry, p.clean(value.Str(id))+":  "+p.clean(value.Str(ids.At(id)))) + "\n")
			}
		}
	}
	return b.String(), nil
}
