// Package complete lets shells complete the command lines of all programs.
//
// `brine completion SHELL` prints a script for bash, zsh or fish. At each Tab the script starts the
// hidden program `brine __complete`. It takes options and their values from the programs'
// declarations, functions and their arguments from the built-in catalogues, and minions and
// nodegroups from the master's directories on this machine. It connects to no master, reads only
// the names of key files, and reports no read errors.
//
// The output has one candidate per line, with a tab and a short explanation if there is one. A
// candidate that ends in one of "=:,/" is incomplete, so no blank may follow it. The line ":files"
// or ":dirs" makes the shell complete file names.
package complete

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/cli/frame"
)

const (
	files = ":files"
	dirs  = ":dirs"
)

// candidate is a word to complete to, or files or dirs.
type candidate struct{ word, help string }

// line is a command line up to the word to complete.
type line struct {
	env     *frame.Env
	applets []frame.Applet
	program string
	options map[string]*frame.Option // by spelling, "-L" and "--list"
	all     []*frame.Option
	given   map[string]string // dest -> value, "" for none
	args    []string          // positional arguments
	subs    []candidate       // subcommands of the program
	word    string            // to complete
}

// candidates returns the completions of the last of words.
func candidates(env *frame.Env, applets []frame.Applet, words []string) []candidate {
	if len(words) < 2 {
		return nil
	}
	name := filepath.Base(words[0])
	if name == "brine" {
		if len(words) == 2 {
			return programs(applets, words[1], false)
		}
		name, words = words[1], words[1:]
	}
	for i := range applets {
		if a := &applets[i]; a.Name == name || a.Name == "salt-"+name {
			l := &line{env: env, applets: applets, program: a.Name, options: map[string]*frame.Option{}, given: map[string]string{}}
			l.declare(a.Describe())
			return begins(l.complete(words[1:]), l.word)
		}
	}
	return nil
}

func programs(applets []frame.Applet, word string, full bool) []candidate {
	var out []candidate
	for _, a := range applets {
		if !a.Hidden && !(full && a.Name == "man") {
			out = append(out, candidate{a.Name, a.Summary})
		}
	}
	return begins(out, word)
}

// begins keeps the candidates that begin with word.
func begins(all []candidate, word string) []candidate {
	return slices.DeleteFunc(all, func(c candidate) bool {
		return c.word != files && c.word != dirs && !strings.HasPrefix(c.word, word)
	})
}

func (l *line) declare(d frame.Description) {
	for _, s := range d.Command.Subs {
		help, _, _ := strings.Cut(s.Doc, ". ")
		l.subs = append(l.subs, candidate{s.Name, strings.TrimSuffix(help, ".")})
	}
	for _, g := range d.Groups {
		for i := range g.Options {
			o := &g.Options[i]
			l.all = append(l.all, o)
			if o.Short != "" {
				l.options["-"+o.Short] = o
			}
			for _, name := range o.Long {
				l.options["--"+name] = o
			}
		}
	}
}

// complete parses the words and returns candidates for the last.
func (l *line) complete(words []string) []candidate {
	l.word = words[len(words)-1]
	words = words[:len(words)-1]
	onlyArgs := false
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case onlyArgs || len(w) < 2 || w[0] != '-':
			l.args = append(l.args, w)
		case w == "--":
			onlyArgs = true
		default:
			o, v, takes := l.option(w)
			if takes {
				if i++; i == len(words) {
					return l.value(o, "")
				}
				v = words[i]
			}
			if o != nil {
				l.given[o.Dest] = v
			}
		}
	}
	if onlyArgs || l.word == "" || l.word[0] != '-' {
		return l.argument()
	}
	if name, _, ok := strings.Cut(l.word, "="); ok && l.options[name] != nil {
		return l.value(l.options[name], name+"=")
	}
	return l.spellings()
}

// option returns the option that a word sets, and its value. takes means that the value is the next
// word. If a word has several short options, it returns the last and records the others in given.
func (l *line) option(w string) (o *frame.Option, v string, takes bool) {
	if strings.HasPrefix(w, "--") {
		name, v, has := strings.Cut(w, "=")
		o = l.options[name]
		return o, v, o != nil && o.Arg != "" && !has
	}
	for i := 1; i < len(w); i++ {
		if o = l.options["-"+w[i:i+1]]; o == nil {
			return nil, "", false
		}
		if o.Arg != "" {
			return o, w[i+1:], i+1 == len(w)
		}
		l.given[o.Dest] = ""
	}
	return o, "", false
}

func (l *line) spellings() []candidate {
	var out []candidate
	for _, o := range l.all {
		if o.Hidden {
			continue
		}
		help, _, _ := strings.Cut(o.Text(), ". ")
		help = strings.TrimSuffix(help, ".")
		for _, name := range o.Long[:1] {
			out = append(out, candidate{"--" + name, help})
		}
		if o.Short != "" && !strings.HasPrefix(l.word, "--") {
			out = append(out, candidate{"-" + o.Short, help})
		}
	}
	// Offer other spellings only when the user begins to type one.
	if len(begins(slices.Clone(out), l.word)) == 0 {
		for name := range l.options {
			out = append(out, candidate{name, ""})
		}
		slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	}
	return out
}

// comma completes the last item of a comma-separated list.
func (l *line) comma(all []candidate) []candidate {
	i := strings.LastIndexByte(l.word, ',') + 1
	before := strings.Split(l.word[:i], ",")
	var out []candidate
	for _, c := range all {
		if !slices.Contains(before, c.word) {
			out = append(out, candidate{l.word[:i] + c.word, c.help})
		}
	}
	return out
}

// words returns candidates without help.
func words(all []string) []candidate {
	out := make([]candidate, 0, len(all))
	for _, w := range all {
		out = append(out, candidate{word: w})
	}
	return out
}

// print writes candidates for a shell.
func print(env *frame.Env, all []candidate, cut int) {
	var b strings.Builder
	for _, c := range all {
		switch {
		case c.word == files || c.word == dirs:
			b.WriteString(c.word)
		case cut < len(c.word):
			b.WriteString(c.word[cut:])
		default:
			continue
		}
		if c.help != "" {
			b.WriteString("\t" + strings.ReplaceAll(c.help, "\n", " "))
		}
		b.WriteByte('\n')
	}
	fmt.Fprint(env.Stdout, b.String())
}

var hidden = frame.Command{
	Name: "__complete", Usage: "SHELL WORD...",
	Doc: "Answers the completion scripts of shells.",
}

// Answer returns the hidden program that the scripts run. list returns all programs.
func Answer(list func() []frame.Applet) frame.Applet {
	return frame.Applet{Name: hidden.Name, Summary: "answer the completion scripts", Hidden: true,
		Run: func(_ context.Context, env *frame.Env, args []string) int {
			if len(args) < 2 {
				return hidden.Fail(env, "it is for the scripts of brine completion")
			}
			cut := 0
			line := args[1:]
			if args[0] == "bash" {
				if len(args) != 3 {
					return hidden.Fail(env, "for bash it takes the line and its last part")
				}
				line = split(args[1])
				last, part := line[len(line)-1], unquote(args[2])
				cut = len(last) - len(part)
				if part == "=" || part == ":" || !strings.HasSuffix(last, part) {
					cut = len(last) // the part to complete begins after it
				}
			}
			print(env, candidates(env, list(), line), cut)
			return frame.ExitOK
		}}
}

// split splits a line like a shell. The last word is the one at the cursor. It may be empty or have
// an unclosed quote.
func split(s string) []string {
	var out []string
	var word strings.Builder
	quote, begun := rune(0), false
	escaped := false
	for _, c := range s {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			if begun {
				out = append(out, word.String())
			}
			word.Reset()
			begun = false
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	return append(out, word.String())
}

// unquote removes the quotes of one word.
func unquote(s string) string {
	all := split(s)
	return all[len(all)-1]
}
