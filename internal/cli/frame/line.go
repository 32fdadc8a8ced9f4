package frame

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Line is a line on a terminal that tells how work goes on. It is written over
// in place, and is gone while output is written. A nil Line shows nothing. It
// may be used by several goroutines.
type Line struct {
	w     io.Writer
	width int

	mu    sync.Mutex
	shown bool
}

// NewLine returns a line on a terminal of so many columns.
func NewLine(w io.Writer, width int) *Line { return &Line{w: w, width: width} }

// Live returns the line for what goes on while users wait: nil unless standard
// output and standard error are terminals, for a program that reads one of
// them, and who reads the other through it, is not to find it there.
func (e *Env) Live() *Line {
	if !e.IsTerminal(e.Stdout) {
		return nil
	}
	return e.StderrLine()
}

// StderrLine returns a line on standard error, nil unless that is a terminal.
func (e *Env) StderrLine() *Line {
	if !e.IsTerminal(e.Stderr) {
		return nil
	}
	width := 80
	if f, ok := e.Stderr.(interface{ Fd() uintptr }); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 20 {
			width = n
		}
	}
	return NewLine(e.Stderr, width)
}

// Show puts text in place of what the line shows.
func (l *Line) Show(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.show(text)
}

func (l *Line) show(text string) {
	text = plain(text)
	if utf8.RuneCountInString(text) >= l.width {
		text = string([]rune(text)[:l.width-1])
	}
	// The cursor goes back, so that a line of the log takes the place.
	fmt.Fprintf(l.w, "\r\x1b[K%s\r", text)
	l.shown = true
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

// Clear takes the line away.
func (l *Line) Clear() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.clear()
	}
}

func (l *Line) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.shown = false
	}
}

// Aside takes the line away, lets write say something in its place, and shows
// nothing before write is done.
func (l *Line) Aside(write func() error) error {
	if l == nil {
		return write()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	return write()
}

// Every shows what text returns each time that d has passed, until stop is
// called, which takes the line away. text is called by one goroutine at a time,
// and never while Aside writes.
func (l *Line) Every(d time.Duration, text func() string) (stop func()) {
	if l == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				l.mu.Lock()
				l.show(text())
				l.mu.Unlock()
			}
		}
	})
	return sync.OnceFunc(func() {
		close(ended)
		done.Wait()
		l.Clear()
	})
}
