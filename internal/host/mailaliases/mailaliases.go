// Package mailaliases reads and changes mail aliases in sendmail's file.
package mailaliases

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"brine/internal/host"
)

// File is a file of aliases.
type File struct {
	M    *host.Machine
	Path string // "" means /etc/aliases
}

func (f File) path() string {
	if f.Path == "" {
		return "/etc/aliases"
	}
	return f.Path
}

// line is a line of the file; alias is "" for a comment.
type line struct{ alias, target, comment, raw string }

var pattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([^:#]*)\s*:?\s*([^#]*?)(\s+#.*|$)`)
})

func (f File) lines() (out []line) {
	for _, raw := range f.M.Lines(f.path()) {
		l := line{raw: raw}
		if m := pattern().FindStringSubmatch(raw); m != nil && strings.TrimSpace(m[1]) != "" && m[2] != "" {
			l.alias, l.target, l.comment = m[1], m[2], m[3]
		}
		out = append(out, l)
	}
	return out
}

func (f File) write(ctx context.Context, lines []line) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.raw + "\n")
	}
	if err := f.M.WriteFile(f.path(), []byte(b.String())); err != nil {
		return fmt.Errorf("cannot write the aliases: %w", err)
	}
	if f.M.Which("newaliases") == "" {
		return nil
	}
	out, err := f.M.Do(ctx, "newaliases")
	switch {
	case err != nil:
		return fmt.Errorf("cannot run newaliases: %w", err)
	case out.Exit != 0:
		return fmt.Errorf("newaliases failed: %s", out.Message())
	}
	return nil
}

// Alias is an alias and its comma-separated mailboxes.
type Alias struct{ Name, Target string }

// All returns all aliases in the order of the file.
func (f File) All() (all []Alias) {
	for _, l := range f.lines() {
		if l.alias != "" {
			all = append(all, Alias{l.alias, l.target})
		}
	}
	return all
}

// Target returns the target of an alias, or "". The last line counts.
func (f File) Target(alias string) (target string) {
	for _, a := range f.All() {
		if a.Name == alias {
			target = a.Target
		}
	}
	return target
}

// join returns the text of a target.
func join(targets []string) (string, error) {
	text := strings.Join(targets, ", ")
	if text == "" {
		return "", host.Invalidf("target can not be an empty string")
	}
	return text, nil
}

// Has reports whether an alias has exactly these mailboxes.
func (f File) Has(alias string, targets []string) (bool, error) {
	want, err := join(targets)
	return err == nil && f.Target(alias) == want, err
}

// Set sets the mailboxes of an alias.
func (f File) Set(ctx context.Context, alias string, targets []string) error {
	want, err := join(targets)
	switch {
	case err != nil:
		return err
	case alias == "":
		return host.Invalidf("alias can not be an empty string")
	case strings.ContainsAny(alias+want, "\n\r"):
		return host.Invalidf("neither alias nor target can have several lines")
	}
	var out []line
	done := false
	for _, l := range f.lines() {
		if l.alias == alias {
			if done {
				continue // drop duplicates
			}
			done = true
			if l.target != want {
				l.raw = alias + ": " + want + l.comment
			}
		}
		out = append(out, l)
	}
	if !done {
		out = append(out, line{raw: alias + ": " + want})
	}
	return f.write(ctx, out)
}

// Remove removes an alias.
func (f File) Remove(ctx context.Context, alias string) error {
	var out []line
	all := f.lines()
	for _, l := range all {
		if l.alias != alias || l.alias == "" {
			out = append(out, l)
		}
	}
	if len(out) == len(all) {
		return nil
	}
	return f.write(ctx, out)
}
