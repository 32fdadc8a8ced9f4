package call

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"brine/internal/value"
)

// progress shows on a terminal which state of a run is at work: one line that
// is written over, and gone when the run ends. It implements engine.Observer.
type progress struct {
	w              io.Writer
	width          int
	done, total    int
	failed, change int
	shown          bool
}

// Started implements engine.Observer.
func (p *progress) Started(low *value.Dict) {
	p.show(value.Str(low.At("state")) + "." + value.Str(low.At("fun")) + " " + value.Str(low.At("__id__")))
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
		p.clear()
	}
}

func (p *progress) show(what string) {
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
	line += ": " + plain(what)
	if utf8.RuneCountInString(line) >= p.width {
		line = string([]rune(line)[:p.width-1])
	}
	// The cursor goes back, so that a line of the log takes the place.
	fmt.Fprintf(p.w, "\r\x1b[K%s\r", line)
	p.shown = true
}

// plain makes of a text what cannot steer a terminal.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
