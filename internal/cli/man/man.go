// Package man is the program `brine man`: it writes the manual pages of all programs, from the same
// declarations as their help.
package man

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/cli/frame"
)

var command = frame.Command{
	Name: "man", Usage: "[options] [PROGRAM]",
	Doc: "Writes the manual page of a program in the language of man(7), to be read with man -l -. With --dir the pages of all programs are written to files.",
}

type options struct {
	Dir string `flag:"--dir" arg:"DIR" doc:"Write the pages of all programs to this directory, which is made if it is not there."`
}

// section returns the manual section of a program: 8, for administrators, for the master and the
// minion.
func section(program string) int {
	if program == "salt-master" || program == "salt-minion" || program == "brine-hub" {
		return 8
	}
	return 1
}

// Applet returns the program, which describes the given programs.
func Applet(applets []frame.Applet) frame.Applet {
	return frame.Applet{Name: command.Name, Summary: "write manual pages", Run: func(_ context.Context, env *frame.Env, args []string) int {
		o := &options{}
		inv, code, ok := command.Parse(env, o, args)
		if !ok {
			return code
		}
		switch {
		case o.Dir != "" && len(inv.Args) > 0:
			return command.Fail(env, "--dir writes the pages of all programs: name none")
		case o.Dir != "":
			if err := writeAll(o.Dir, applets); err != nil {
				env.Errorf("man: %v", err)
				return frame.ExitFailure
			}
			return frame.ExitOK
		case len(inv.Args) != 1:
			return command.Fail(env, "name one program, or a directory with --dir")
		}
		for i := range applets {
			if name := applets[i].Name; name == inv.Args[0] || name == "salt-"+inv.Args[0] {
				fmt.Fprint(env.Stdout, page(&applets[i], applets))
				return frame.ExitOK
			}
		}
		return command.Fail(env, "no such program: "+inv.Args[0])
	}}
}

func writeAll(dir string, applets []frame.Applet) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var faults []error
	for i := range applets {
		a := &applets[i]
		name := fmt.Sprintf("%s.%d", title(a), section(a.Name))
		faults = append(faults, atomicfile.Write(filepath.Join(dir, name), []byte(page(a, applets)), 0o644, false))
	}
	return errors.Join(faults...)
}

// separate reports whether a program is no subcommand of brine.
func separate(a *frame.Applet) bool {
	return strings.HasPrefix(a.Name, "salt") || strings.HasPrefix(a.Name, "brine-")
}

// Page returns the manual page of a program that is not part of brine.
func Page(a frame.Applet) string { return page(&a, []frame.Applet{{Name: "salt-master"}}) }

// title returns the name of the page. Programs that are not Salt's are subcommands of brine.
func title(a *frame.Applet) string {
	if separate(a) {
		return a.Name
	}
	return "brine-" + a.Name
}

// page returns the manual page of a program.
func page(a *frame.Applet, applets []frame.Applet) string {
	d := a.Describe()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s %d \"\" \"Brine %s\" \"Brine\"\n", quote(strings.ToUpper(title(a))), section(a.Name), frame.Version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", text(title(a)), text(a.Summary))
	usage := d.Usage
	if usage == "" {
		usage = "[options]"
	}
	typed := title(a)
	if !separate(a) {
		typed = "brine " + a.Name
	}
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n%s\n", text(typed), line(usage))
	fmt.Fprintf(&b, ".SH DESCRIPTION\n%s\n", line(d.Doc))
	if len(d.Subs) > 0 {
		b.WriteString(".SH SUBCOMMANDS\n")
	}
	for _, s := range d.Subs {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", text(strings.TrimSpace(s.Name+" "+s.Args)), line(s.Doc))
		if s.Example != "" {
			fmt.Fprintf(&b, "Example: %s\n", line(s.Example))
		}
	}
	for _, g := range d.Groups {
		writeGroup(&b, g)
	}
	b.WriteString(exitCodes)
	b.WriteString(".SH SEE ALSO\n")
	var others []string
	for i := range applets {
		if o := &applets[i]; o.Name != a.Name {
			others = append(others, fmt.Sprintf(".BR %s (%d)", text(title(o)), section(o.Name)))
		}
	}
	b.WriteString(strings.Join(others, ",\n") + "\n")
	return b.String()
}

func writeGroup(b *strings.Builder, g frame.Group) {
	name := g.Name
	if name == "" {
		name = "Options"
	}
	shown := 0
	for i := range g.Options {
		o := &g.Options[i]
		if o.Hidden {
			continue
		}
		if shown++; shown == 1 {
			fmt.Fprintf(b, ".SH %s\n", quote(strings.ToUpper(name)))
			if g.Doc != "" {
				b.WriteString(line(g.Doc) + "\n")
			}
		}
		fmt.Fprintf(b, ".TP\n%s\n%s\n", spellings(o), line(o.Text()))
		if o.Env != "" {
			fmt.Fprintf(b, "Environment: $%s.\n", text(o.Env))
		}
	}
}

// spellings returns all spellings of an option.
func spellings(o *frame.Option) string {
	var out []string
	add := func(name, joint string) {
		s := "\\fB" + text(name) + "\\fR"
		if o.Arg != "" {
			s += joint + "\\fI" + text(o.Arg) + "\\fR"
		}
		out = append(out, s)
	}
	if o.Short != "" {
		add("-"+o.Short, " ")
	}
	for _, l := range o.Long {
		add("--"+l, "=")
	}
	return strings.Join(out, ", ")
}

// text escapes characters that are special in man(7).
func text(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", `\[u2026]`).Replace(s)
}

// wide is the maximum length of a line in bytes.
const wide = 75

// line formats running text: a new line for each sentence, as man(7) recommends, and where a line
// becomes too long. No line can be parsed as a request.
func line(s string) string {
	var lines []string
	begin := true
	for _, w := range strings.Fields(s) {
		w = text(w)
		last := len(lines) - 1
		if begin || len(lines[last])+1+len(w) > wide {
			if w[0] == '.' {
				w = `\&` + w
			}
			lines = append(lines, w)
		} else {
			lines[last] += " " + w
		}
		begin = strings.ContainsAny(w[len(w)-1:], ".?!")
	}
	return strings.Join(lines, "\n")
}

// quote quotes an argument of a request.
func quote(s string) string { return `"` + strings.ReplaceAll(text(s), `"`, `\(dq`) + `"` }

const exitCodes = `.SH EXIT STATUS
.TP
.B 0
All went well.
.TP
.B 1
Something failed.
.TP
.B 64
The command line is wrong.
.TP
.B 77
The user may not read the configuration.
`
