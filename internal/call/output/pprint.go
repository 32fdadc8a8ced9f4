package output

import "brine/internal/py/value"

func init() { outputters.Register("pprint", (*Printer).pprint) }

// pprint writes data as Python's pprint module: sorted keys, broken over
// lines where it is wider than 80 columns.
func (p *Printer) pprint(data any, _ Call) (string, error) {
	if ind := p.opts.Indent; ind.Given && ind.Width >= 0 {
		return value.Pretty(data, ind.Width), nil
	}
	return value.Pretty(data, 1), nil
}
