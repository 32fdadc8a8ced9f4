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

// Line is a progress line on a terminal. Each update overwrites it, and it is removed while output
// is written. A nil Line shows nothing. It is safe for concurrent use.
type Line struct {
	w     io.Writer
	width int

	mu    sync.Mutex
	shown bool
}

// NewLine returns a line on a terminal with that number of columns.
func NewLine(w io.Writer, width int) *Line { return &Line{w: w, width: width} }

// Live returns the progress line, or nil unless both standard output and standard error are
// terminals. A program that reads one of them, or a user behind such a program, must not get it.
func (e *Env) Live() *Line {
	if !e.IsTerminal(e.Stdout) {
		return nil
	}
	return e.StderrLine()
}

// StderrLine returns a line on standard error, or nil if that is not a terminal.
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

// Show replaces the text of the line.
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
	// Return the cursor to the first column, so that a log message overwrites the line.
	fmt.Fprintf(l.w, "\r\x1b[K%s\r", text)
	l.shown = true
}

// plain replaces control characters, which could control the terminal, by blanks.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// Clear removes the line.
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

// Aside removes the line and calls write, which may print in its place. The line is not shown again
// before write returns.
func (l *Line) Aside(write func() error) error {
	if l == nil {
		return write()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	return write()
}

// Every shows the result of text at intervals of d, until stop is called, which removes the line.
// One goroutine calls text, and never while Aside writes.
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
