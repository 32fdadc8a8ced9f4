package output

import "brine/internal/py/value"

// raw writes data as Python would print it.
func (p *Printer) raw(data any, _ Call) (string, error) {
	return value.Str(data), nil
}
