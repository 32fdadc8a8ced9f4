package output

import "brine/internal/py/value"

func init() { outputters.Register("raw", (*Printer).raw) }

// raw writes data as Python's repr.
func (p *Printer) raw(data any, _ Call) (string, error) {
	return value.Str(data), nil
}
