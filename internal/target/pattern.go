package target

import (
	"regexp"
	"sync/atomic"
	"time"

	"brine/internal/pyre"
)

// pattern is a regular expression of a target, which must fit at the start of
// a text.
type pattern interface {
	match(text string) verdict
}

// newPattern reads a regular expression. One that looks ahead or behind, or
// has else what Go's engine cannot do, is left to one that backtracks.
func newPattern(expr string) (pattern, error) {
	re, err := CompileRegexp(expr)
	if err == nil {
		return linear{re}, nil
	}
	if len(expr) > MaxRegexp {
		return nil, err
	}
	b, fault := pyre.Compile(expr, 0)
	if fault != nil {
		return nil, err
	}
	p := &backtracking{re: b}
	p.left.Store(int64(patience))
	return p, nil
}

type linear struct{ re *regexp.Regexp }

func (p linear) match(text string) verdict { return verdictOf(p.re.MatchString(text)) }

// patience is how long the searches of one backtracking pattern may take
// altogether, so that a target cannot stop a master. A single one ends after
// pyre.Timeout.
const patience = 5 * time.Second

type backtracking struct {
	re   *pyre.Regexp
	left atomic.Int64 // nanoseconds
}

// match does not know about what would take too long.
func (p *backtracking) match(text string) verdict {
	if p.left.Load() <= 0 {
		return unknown
	}
	begin := time.Now()
	m, err := p.re.Match(text)
	p.left.Add(-int64(time.Since(begin)))
	if err != nil {
		return unknown
	}
	return verdictOf(m != nil)
}
