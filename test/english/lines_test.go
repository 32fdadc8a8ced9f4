package english

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	goColumns       = 160
	markdownColumns = 100
)

// TestLineLengths: Go lines have at most 160 characters, lines of documents 100.
// What cannot be broken may be longer: struct tags and strings of several lines,
// tables, headings, code and links of documents. changelog/gather wraps fragments.
func TestLineLengths(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && (name == "testdata" || name == "bin" || name == "changelog" || name == ".git" || name == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || filepath.Ext(path) != ".go" && filepath.Ext(path) != ".md" {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		long := longGo
		if filepath.Ext(path) == ".md" {
			long = longMarkdown
		}
		for _, line := range long(text) {
			t.Errorf("%s:%d: break this line", path, line)
		}
		return nil
	})
	if err != nil || files < 1000 {
		t.Errorf("%d files read, %v", files, err)
	}
}

// TestFindsLongLines checks what counts as too long.
func TestFindsLongLines(t *testing.T) {
	long := strings.Repeat("word ", 40)
	for _, c := range []struct {
		find func([]byte) []int
		text string
		want int
	}{
		{longGo, "package a\n\n// " + long + "\n", 1},
		{longGo, "package a\n\nvar x = \"" + long + "\"\n", 1},
		{longGo, "package a\n\nvar x = `" + long + "`\n", 1},
		{longGo, "package a\n\nvar x = `\n" + long + "\n`\n", 0},
		{longGo, "package a\n\ntype x struct {\n\ty int `doc:\"" + long + "\"`\n}\n", 0},
		{longMarkdown, long + "\n", 1},
		{longMarkdown, "| " + long + " |\n", 0},
		{longMarkdown, "```\n" + long + "\n```\n" + long, 1},
		{longMarkdown, "https://example.com/" + strings.ReplaceAll(long, " ", "/") + "\n", 0},
	} {
		if got := c.find([]byte(c.text)); len(got) != c.want {
			t.Errorf("%.40q: lines %v, want %d", c.text, got, c.want)
		}
	}
}

// longGo returns the numbers of the lines of a Go file that are too long.
func longGo(text []byte) (found []int) {
	free := map[int]bool{} // lines of strings that cannot be broken
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for before := token.ILLEGAL; ; {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			break
		}
		if tok == token.STRING && lit[0] == '`' {
			first, last := file.Line(pos), file.Line(pos)+strings.Count(lit, "\n")
			tag := before == token.IDENT || before == token.RBRACK || before == token.RBRACE
			for line := first; line <= last && (tag || last > first); line++ {
				free[line] = true
			}
		}
		before = tok
	}
	for i, line := range strings.Split(string(text), "\n") {
		if utf8.RuneCountInString(line) > goColumns && !free[i+1] {
			found = append(found, i+1)
		}
	}
	return found
}

// longMarkdown returns the numbers of the lines of a document that are too long.
func longMarkdown(text []byte) (found []int) {
	code := false
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
		}
		whole := code || strings.HasPrefix(line, "    ") || strings.HasPrefix(trimmed, "|") || strings.HasPrefix(trimmed, "#")
		if utf8.RuneCountInString(line) > markdownColumns && !whole && longestWord(trimmed) < markdownColumns-10 {
			found = append(found, i+1)
		}
	}
	return found
}

// longestWord returns the length of the longest word, which a link may be.
func longestWord(line string) (n int) {
	for _, w := range strings.Fields(line) {
		n = max(n, utf8.RuneCountInString(w))
	}
	return n
}
