package output

import "errors"

var errNoBar = errors.New("the progress outputter cannot render a return")

func init() { outputters.Register("progress", (*Printer).progress) }

// progress replaces Salt's progress bar, which the command line draws from the number of returns. A
// return itself cannot be drawn as a bar, so that --out=progress falls back to nested, as in Salt.
func (p *Printer) progress(any, Call) (string, error) { return "", errNoBar }
