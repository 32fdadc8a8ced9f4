package compat

import (
	"bytes"
	"strings"
	"time"
)

// maxRender bounds the time to render one file, excluding the functions that it calls.
const maxRender = 20 * time.Second

// lineCounter returns the line numbers of offsets. Increasing offsets are fast.
type lineCounter struct {
	text       []byte
	line, last int
}

func (l *lineCounter) at(offset int) int {
	if offset < l.last {
		l.line, l.last = 0, 0
	}
	l.line += bytes.Count(l.text[l.last:offset], []byte{'\n'})
	l.last = offset
	return l.line + 1
}

// lineIndex caches the lines of files.
type lineIndex struct {
	files map[string]*fileLines
	bytes int
}

// maxIndex bounds the cached lines, in bytes.
const maxIndex = 64 << 20

// maxLooked bounds the comparisons in one file, because each state of a large file may need a
// search of all its lines. Above the bound, places have no line number.
const maxLooked = 20_000_000

type fileLines struct {
	lines  []string
	looked int
}

func (i *lineIndex) of(path string) *fileLines {
	if l, ok := i.files[path]; ok {
		return l
	}
	text, err := readFile(path, maxSLS)
	if err != nil {
		return &fileLines{}
	}
	if i.bytes += len(text); i.files == nil || i.bytes > maxIndex {
		i.files, i.bytes = map[string]*fileLines{}, len(text)
	}
	l := &fileLines{lines: strings.Split(string(text), "\n")}
	i.files[path] = l
	return l
}

// find returns the line of the function of state id: the line that names the function after the id,
// else the line of the id, 0 if neither is found.
func (l *fileLines) find(id, full string) int {
	module, _, _ := strings.Cut(full, ".")
	start := l.after(1, id+":")
	for _, word := range []string{full, module + ":"} {
		if n := l.after(start, word); n > 0 {
			return n
		}
	}
	return start
}

// after returns the first line from start on that contains a word, or 0.
func (l *fileLines) after(start int, word string) int {
	for i := max(start, 1) - 1; i < len(l.lines) && l.looked < maxLooked; i++ {
		l.looked++
		if strings.Contains(l.lines[i], word) {
			return i + 1
		}
	}
	return 0
}

// inside returns the first line that contains a word among those of the option that begins at start, or 0.
func (l *fileLines) inside(start int, word string) int {
	for i := max(start, 1) - 1; i < len(l.lines) && l.looked < maxLooked; i++ {
		l.looked++
		line := l.lines[i]
		if i >= start && line != "" && !strings.ContainsAny(line[:1], " \t#-}]\r") {
			return 0 // the next option
		}
		if strings.Contains(line, word) {
			return i + 1
		}
	}
	return 0
}
