package salt

import (
	"fmt"
	"io"
)

// progress is the line of -p on a terminal that counts returns. It goes to
// stderr, so that the output stays whole.
type progress struct {
	w           io.Writer // nil: nothing is shown
	done, total int
	shown       bool
}

func (p *program) newProgress(total int) *progress {
	if !p.opts.Progress || !p.Env.IsTerminal(p.Env.Stderr) {
		return &progress{}
	}
	pr := &progress{w: p.Env.Stderr, total: total, done: -1}
	pr.step()
	return pr
}

// step counts a return.
func (p *progress) step() {
	if p.w == nil {
		return
	}
	p.done++
	p.shown = true
	const wide = 40
	n := wide
	if p.total > 0 {
		n = min(wide, wide*p.done/p.total)
	}
	fmt.Fprintf(p.w, "\r[%-*s] %d/%d", wide, bar[:n], p.done, p.total)
}

const bar = "########################################"

// clear removes the line, so that output can be written in its place.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
