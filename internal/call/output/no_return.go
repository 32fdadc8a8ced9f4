package output

import (
	"strings"

	"brine/internal/py/value"
)

func init() { outputters.Register("no_return", (*Printer).noReturn) }

// noReturn shows messages about minions that did not return: all red. It omits values other than
// strings and maps.
func (p *Printer) noReturn(data any, _ Call) (string, error) {
	var b strings.Builder
	p.addNoReturn(&b, data, 0)
	return b.String(), nil
}

func (p *Printer) addNoReturn(b *strings.Builder, v any, indent int) {
	pad := strings.Repeat(" ", indent)
	switch x := v.(type) {
	case string:
		for line := range strings.SplitSeq(x, "\n") {
			b.WriteString(p.pal.paint(red, pad+p.clean(line)) + "\n")
		}
	case *value.Dict:
		for _, k := range sortedKeys(x) {
			b.WriteString(p.pal.paint(cyan, pad+p.clean(value.Str(k))) + ":\n")
			p.addNoReturn(b, x.At(k), indent+4)
		}
	}
}
