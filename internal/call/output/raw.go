package output

import "brine/internal/py/value"

// raw writes data as Python's repr.
func (p *Printer) raw(data any, _ Call) (string, error) {
	return value.Str(data), nil
}
