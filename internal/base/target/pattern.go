package target

import (
	"regexp"
	"sync/atomic"
	"time"

	"brine/internal/py/pyre"
)

// pattern is a regular expression of a target, matched at the start of a
// string.
type pattern interface {
	match(text string) verdict
}

// newPattern compiles a regular expression. Expressions that Go's engine does
// not support, such as look-around, use the backtracking engine, whose searches
// spend budget.
func newPattern(expr string, budget *Budget) (pattern, error) {
	re, err := CompileRegexp(expr)
	if err == nil {
		return linear{re}, nil
	}
	if len(expr) > MaxRegexp {
		return nil, err
	}
	b, fault := pyre.CompileWithin(expr, 0, budget.whole)
	if fault != nil {
		return nil, err
	}
	return &backtracking{re: b, budget: budget}, nil
}

type linear struct{ re *regexp.Regexp }

func (p linear) match(text string) verdict { return verdictOf(p.re.MatchString(text)) }

// DefaultBudget is the search time for a target that an operator specifies.
const DefaultBudget = 5 * time.Second

// Budget bounds the total time of all backtracking searches of one target, so
// that a target cannot block a master.
type Budget struct {
	whole time.Duration
	left  atomic.Int64 // nanoseconds
}

// NewBudget returns a budget of d, wall time.
func NewBudget(d time.Duration) *Budget {
	b := &Budget{whole: d}
	b.left.Store(int64(d))
	return b
}

type backtracking struct {
	re     *pyre.Regexp
	budget *Budget
}

// match returns unknown if the search would exceed the budget.
func (p *backtracking) match(text string) verdict {
	if p.budget.left.Load() <= 0 {
		return unknown
	}
	begin := time.Now()
	m, err := p.re.Match(text)
	p.budget.left.Add(-int64(time.Since(begin)))
	if err != nil {
		return unknown
	}
	return verdictOf(m != nil)
}
