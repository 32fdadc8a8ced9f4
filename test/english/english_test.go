// Package english rejects coined, poetic and outdated words in comments, string
// literals and documents. CONTRIBUTING.md says how to extend it.
package english

import (
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// words are the words to avoid and their replacements. They are unambiguous:
// no plain sentence needs one of them.
var words = map[string]string{
	`folders?`:        "directory",
	`anew`:            "again",
	`nobody`:          "no client, no process, ...",
	`whoever`:         "the caller, the client, ...",
	`somebody`:        "the user, a client, ...",
	`gripes?`:         "rate-limited log",
	`tidings`:         "update",
	`acquaintances?`:  "known witness",
	`lest`:            "so that ... not",
	`heeds?`:          "uses, honours",
	`heeded`:          "used, honoured",
	`foretold`:        "predicted",
	`foretells?`:      "predicts",
	`newcomers?`:      "reconnecting minions",
	`whereabouts`:     "subscribers",
	`in vain`:         "without effect",
	`strangers?`:      "unauthenticated peer",
	`overseers?`:      "job control functions",
	`(?:is|are) away`: "is unreachable",
	`(?:masters?|minions?) of (?:Salt|Brine)'s`: "stock masters, Brine minions, ...",
}

// names are words that string literals may contain: tests use them as ids of
// minions, users and files.
var names = map[string]bool{`nobody`: true, `somebody`: true, `strangers?`: true}

// allowed are phrases that may contain one of the words.
var allowed = []string{
	"still shares a folder that others have left", // decides in older releases: see ha/cluster/refusal
	"such as folder, anew or nobody",
	`"own folders "`, // compared with what earlier versions send
}

// passed are the directories whose texts have been rewritten, their
// subdirectories included, and documents. Add one when it has no findings.
var passed = []string{
	"CHANGELOG.md",
	"CONTRIBUTING.md",
	"README.md",
	"SECURITY.md",
	"bench",
	"cmd",
	"docs",
	"internal/base",
	"internal/call",
	"internal/catalogue",
	"internal/cli",
	"internal/daemons",
	"internal/files",
	"internal/ha",
	"internal/host",
	"internal/net",
	"internal/py",
	"internal/sls",
	"internal/store",
	"test",
}

// own is this directory, which names the words.
const own = "test/english"

func TestPlainWords(t *testing.T) {
	avoid := patterns()
	for _, dir := range passed {
		if findings := search(t, dir, avoid); len(findings) > 0 {
			t.Error(strings.Join(findings, "\n"))
		}
	}
}

// TestFindsWords checks that each kind of text is searched.
func TestFindsWords(t *testing.T) {
	avoid := patterns()
	for name, text := range map[string]string{
		"a.go": "package a\n\n// Anew\nvar x = 1\n",
		"b.go": "package a\n\nvar x = \"an empty folder\"\n",
		"c.md": "The folder of Salt.\n",
	} {
		if got := inFile(name, []byte(text), avoid); len(got) != 1 {
			t.Errorf("%s: %q, want one finding", name, got)
		}
	}
	for name, text := range map[string]string{
		"d.go": "package a\n\nvar folder = 1 // a directory\n",
		"e.go": "package a\n\nvar user = \"nobody\"\n",
		"f.md": "A directory.\n",
	} {
		if got := inFile(name, []byte(text), avoid); len(got) != 0 {
			t.Errorf("%s: %q, want none", name, got)
		}
	}
}

func patterns() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for word := range words {
		out[word] = regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(word, " ", `\s+(?://\s*)?`) + `\b`)
	}
	return out
}

// search returns the findings in the Go and Markdown files of a directory, or
// in a single file.
func search(t *testing.T, dir string, avoid map[string]*regexp.Regexp) (findings []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(dir)), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if d.Name() == "testdata" || d.Name() == "reference" { // the reference repeats declarations
				return filepath.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if ext := filepath.Ext(path); ext != ".go" && ext != ".md" || strings.HasPrefix(rel, own+"/") {
			return nil
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		findings = append(findings, inFile(rel, text, avoid)...)
		return nil
	})
	if err != nil || files == 0 {
		t.Errorf("%s: %d files read, %v", dir, files, err)
	}
	return findings
}

// inFile returns the findings in the comments and string literals of a Go file,
// or in a Markdown file.
func inFile(name string, text []byte, avoid map[string]*regexp.Regexp) (findings []string) {
	check := func(line int, s string, literal bool) {
		for _, phrase := range allowed {
			s = strings.ReplaceAll(s, phrase, "")
		}
		for word, re := range avoid {
			if literal && names[word] {
				continue
			}
			if at := re.FindString(s); at != "" {
				findings = append(findings, name+":"+strconv.Itoa(line)+": "+at+" (write "+words[word]+")")
			}
		}
	}
	if filepath.Ext(name) == ".md" {
		for i, line := range strings.Split(string(text), "\n") {
			check(i+1, line, false)
		}
		return findings
	}
	file := token.NewFileSet().AddFile(name, -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		pos, tok, lit := s.Scan()
		switch tok {
		case token.EOF:
			return findings
		case token.COMMENT:
			check(file.Line(pos), lit, false)
		case token.STRING:
			if strings.Contains(lit, " ") { // one word is a name
				check(file.Line(pos), lit, true)
			}
		}
	}
}
