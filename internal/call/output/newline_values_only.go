package output

import (
	"errors"
	"strings"

	"brine/internal/py/value"
)

func init() { outputters.Register("newline_values_only", (*Printer).newlineValuesOnly) }

// newlineValuesOnly writes the values without the ids, one list item per line.
func (p *Printer) newlineValuesOnly(data any, _ Call) (string, error) {
	d, ok := data.(*value.Dict)
	if !ok {
		return "", errors.New("newline_values_only needs a map")
	}
	var lines []string
	for _, v := range d.All() {
		if l, ok := v.(*value.List); ok {
			for _, it := range l.Items {
				lines = append(lines, value.Str(it))
			}
			continue
		}
		lines = append(lines, value.Str(v))
	}
	return strings.Join(lines, "\n"), nil
}
