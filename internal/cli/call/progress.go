package call

import (
	"fmt"

	"brine/internal/cli/frame"
	"brine/internal/py/value"
)

// progress shows the running state on a terminal: one line that is overwritten,
// and removed when the run ends. It implements engine.Observer.
type progress struct {
	*frame.Line
	done, total    int
	failed, change int
}

// Started implements engine.Observer.
func (p *progress) Started(low *value.Dict) {
	p.tell(value.Str(low.At("state")) + "." + value.Str(low.At("fun")) + " " + value.Str(low.At("__id__")))
}

// Done implements engine.Observer.
func (p *progress) Done(_, result *value.Dict, n, total int) {
	p.done, p.total = n, total
	switch {
	case result.At("result") == false:
		p.failed++
	case value.Truth(result.At("changes")):
		p.change++
	}
	if n >= total {
		p.Clear()
	}
}

func (p *progress) tell(what string) {
	line := "running"
	if p.total > 0 {
		line = fmt.Sprintf("%d/%d", p.done+1, p.total)
	}
	if p.change > 0 {
		line += fmt.Sprintf(", %d changed", p.change)
	}
	if p.failed > 0 {
		line += fmt.Sprintf(", %d failed", p.failed)
	}
	p.Show(line + ": " + what)
}
