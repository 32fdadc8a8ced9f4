package output

import (
	"strings"

	"brine/internal/py/value"
)

func init() { outputters.Register("txt", (*Printer).txt) }

// txt prefixes every line of text with the id, which suits the output of shell commands.
func (p *Printer) txt(data any, _ Call) (string, error) {
	switch x := data.(type) {
	case string:
		return x + "\n", nil
	case *value.Dict:
		var b strings.Builder
		for k, v := range x.All() {
			lines := []string{value.Str(v)}
			if s, ok := v.(string); ok {
				lines = value.SplitLines(s, false)
			}
			for _, line := range lines {
				b.WriteString(value.Str(k) + ": " + line + "\n")
			}
		}
		return b.String(), nil
	}
	return value.Pretty(data, 1) + "\n", nil
}
