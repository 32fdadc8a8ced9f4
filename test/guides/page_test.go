// Package guides does what the pages of docs/guides say, on machines of its own: each has a network
// address, a host name, and directories /etc, /run, /srv and /var of its own, so that files and
// commands are used as they are written there.
package guides

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// directory has the pages, seen from this package.
const directory = "../../docs/guides"

// block is an indented block of a page: a file, or commands.
type block struct {
	// hosts are the machines that it is for.
	hosts []string
	// file is the path of the file, and text what it has; without a file there are commands.
	file, text string
	commands   []command
	line       int // of the page
}

// command is one line of a block of commands.
type command struct {
	text string
	// answer are lines that its output has: the comments below it.
	answer []string
	line   int
}

// page is a page of docs/guides.
type page struct {
	path   string
	blocks []block
}

// machines are the names of all machines of a page, in order.
func (p page) machines() []string {
	var all []string
	for _, b := range p.blocks {
		all = append(all, b.hosts...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// readPage reads the blocks of a page. A block begins with "# on HOST, HOST" or "# HOST: /path".
func readPage(path string) (page, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return page{}, err
	}
	p := page{path: path}
	within, fenced := false, false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case fenced, line == "" && !within:
		case line == "": // a block goes on after an empty line, if it does
			if b := &p.blocks[len(p.blocks)-1]; b.file != "" {
				b.text += "\n"
			}
		case !indented:
			within = false
		case !within || isHead(code):
			b, err := head(code)
			if err != nil {
				return page{}, fmt.Errorf("%s:%d: %w", path, i+1, err)
			}
			b.line = i + 1
			p.blocks, within = append(p.blocks, b), true
		default:
			b := &p.blocks[len(p.blocks)-1]
			b.add(code, i+1)
		}
	}
	for i := range p.blocks {
		p.blocks[i].text = strings.TrimRight(p.blocks[i].text, "\n") + "\n"
	}
	return p, nil
}

func isHead(code string) bool {
	_, err := head(code)
	return err == nil
}

// head reads the first line of a block.
func head(code string) (block, error) {
	rest, comment := strings.CutPrefix(code, "# ")
	names, path, file := strings.Cut(rest, ": /")
	on, commands := strings.CutPrefix(names, "on ")
	if !comment || commands == file {
		return block{}, fmt.Errorf("a block begins with # on MACHINE or # MACHINE: /path/of/file, not with %q", code)
	}
	b := block{hosts: strings.Split(on, ", ")}
	if file {
		b.file = "/" + path
	}
	for _, h := range b.hosts {
		if h == "" || strings.ContainsAny(h, " :/") {
			return block{}, fmt.Errorf("%q is no name of a machine", h)
		}
	}
	return b, nil
}

func (b *block) add(code string, line int) {
	comment, isComment := strings.CutPrefix(code, "# ")
	switch {
	case b.file != "":
		b.text += code + "\n"
	case isComment && len(b.commands) > 0:
		c := &b.commands[len(b.commands)-1]
		c.answer = append(c.answer, comment)
	case len(b.commands) > 0 && strings.HasSuffix(b.commands[len(b.commands)-1].text, "\\"):
		c := &b.commands[len(b.commands)-1]
		c.text += "\n" + code
	default:
		b.commands = append(b.commands, command{text: code, line: line})
	}
}

// pages are the names of all pages with blocks.
func pages(t *testing.T) []page {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(directory, "*.md"))
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	var all []page
	for _, path := range paths {
		p, err := readPage(path)
		if err != nil {
			t.Error(err)
		}
		if len(p.blocks) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// TestPages: each page can be read, and says on which machine each block is.
func TestPages(t *testing.T) {
	if all := pages(t); len(all) < 7 {
		t.Errorf("%d pages with commands", len(all))
	}
	for code, bad := range map[string]bool{"# on m1": false, "# m1, m2: /etc/salt/master": false, "salt-key -L": true, "# a comment": true, "# m1: etc": true} {
		if isHead(code) == bad {
			t.Errorf("%q begins a block: %v", code, !bad)
		}
	}
}

// TestRunbooks: each alert has a section in the page of runbooks, no section is for an alert that
// does not exist, and each alert names its section.
func TestRunbooks(t *testing.T) {
	rules, err := os.ReadFile("../../packaging/prometheus/brine.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(directory, "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(line, "### "); ok {
			sections[strings.TrimSpace(name)] = true
		}
	}
	alerts := 0
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		alerts++
		if !sections[name] {
			t.Errorf("docs/guides/runbooks.md has no section for the alert %s", name)
		}
		delete(sections, name)
		if want := "runbook: docs/guides/runbooks.md#" + strings.ToLower(name) + "\n"; !strings.Contains(rest, want) {
			t.Errorf("the alert %s lacks the annotation %s", name, want)
		}
	}
	if alerts < 20 {
		t.Errorf("%d alerts", alerts)
	}
	for name := range sections {
		t.Errorf("docs/guides/runbooks.md has a section for %s, which is no alert", name)
	}
}
