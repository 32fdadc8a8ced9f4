// Package acl implements the execution module and the states acl: it reads and
// changes access control lists and returns them in Salt's format.
package acl

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// Lists calls getfacl(1) and setfacl(1).
type Lists struct{ M *host.Machine }

func (a Lists) run(ctx context.Context, program string, words ...string) (host.Output, error) {
	out, err := a.M.Do(ctx, program, words...)
	if err != nil {
		return out, fn.Errorf("cannot run %s: %w", program, err)
	}
	return out, nil
}

// Version implements acl.version.
func (a Lists) Version(ctx context.Context, _ *fn.Call, _ struct{}) (string, error) {
	out, err := a.run(ctx, "getfacl", "--version")
	if f := strings.Fields(out.Stdout); err == nil && len(f) > 1 {
		return f[1], nil
	}
	return "", err
}

// Args are the arguments of Get, Wipe.
type Args struct {
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// paths returns the paths after "--", preceded by -R if recursive is set.
func (a Args) paths() ([]string, error) {
	if len(a.Files) == 0 {
		return nil, fn.Errorf("You need to specify at least one file or directory to work with!")
	}
	var words []string
	if a.Kwargs.Bool("recursive") {
		words = append(words, "-R")
	}
	words = append(words, "--")
	for _, f := range a.Files {
		words = append(words, value.Str(f))
	}
	return words, nil
}

// Get implements acl.getfacl.
func (a Lists) Get(ctx context.Context, _ *fn.Call, args Args) (*value.Dict, error) {
	words, err := args.paths()
	if err != nil {
		return nil, err
	}
	out, err := a.run(ctx, "getfacl", append([]string{"--absolute-names"}, words...)...)
	if err != nil {
		return nil, err
	}
	return aclsOf(out.Stdout), nil
}

// unescaped decodes the octal escapes (\ooo) that getfacl writes in names.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && strings.Trim(s[i+1:i+4], "01234567") == "" {
			b.WriteByte((s[i+1]-'0')<<6 | (s[i+2]-'0')<<3 | (s[i+3] - '0'))
			i += 3
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// aclsOf parses the output of getfacl.
func aclsOf(text string) *value.Dict {
	all := value.NewDict(1)
	var file, comment *value.Dict
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# "); ok {
			k, v, _ := strings.Cut(rest, ": ")
			v = unescaped(v)
			if k == "file" {
				comment = value.NewDict(3)
				file = value.DictOf("comment", comment, "user", &value.List{}, "group", &value.List{})
				all.Set(v, file)
			}
			if file == nil {
				continue
			}
			comment.Set(k, v)
			if k == "flags" && len(v) > 2 {
				for i, name := range []string{"suid", "sgid", "sticky"} {
					if v[i] != '-' {
						file.Set(name, true)
					}
				}
			}
			continue
		}
		line, _, _ = strings.Cut(line, "\t") // without the effective permissions
		f := strings.Split(line, ":")
		into := file
		if f[0] == "default" && file != nil {
			if into = file.Dict("defaults"); into == nil {
				into = value.NewDict(4)
				file.Set("defaults", into)
			}
			f = f[1:]
		}
		if file == nil || len(f) != 3 {
			continue
		}
		addEntry(into, comment, f[0], unescaped(f[1]), f[2])
	}
	return all
}

func addEntry(into, comment *value.Dict, kind, name, rights string) {
	has := func(c string) bool { return strings.Contains(rights, c) }
	octal := int64(0)
	for i, c := range []string{"x", "w", "r"} {
		if has(c) {
			octal += 1 << i
		}
	}
	entry := value.DictOf("permissions", value.DictOf("read", has("r"), "write", has("w"), "execute", has("x")), "octal", octal)
	switch kind {
	case "user", "group":
		if name == "" {
			if name = comment.Str("owner"); kind == "group" {
				name = comment.Str("group")
			}
		}
		l, _ := into.At(kind).(*value.List)
		if l == nil {
			l = &value.List{}
			into.Set(kind, l)
		}
		l.Append(value.DictOf(name, entry))
	case "other", "mask":
		into.Set(kind, value.ListOf(value.DictOf("", entry)))
	}
}

// Wipe implements acl.wipefacls.
func (a Lists) Wipe(ctx context.Context, _ *fn.Call, args Args) (bool, error) {
	words, err := args.paths()
	if err != nil {
		return false, err
	}
	_, err = a.run(ctx, "setfacl", append([]string{"-b"}, words...)...)
	return err == nil, err
}

// aclPrefix returns the beginning of an entry in setfacl's syntax.
func aclPrefix(kind string) string {
	prefix := ""
	for _, d := range []string{"default:", "d:"} {
		if rest, ok := strings.CutPrefix(kind, d); ok {
			prefix, kind = "d:", rest
			break
		}
	}
	switch kind {
	case "user", "u":
		prefix += "u"
	case "group", "g":
		prefix += "g"
	case "mask", "m":
		prefix += "m"
	case "other", "o":
		prefix += "o"
	}
	return prefix
}

// ModifyArgs are the arguments of Modify.
type ModifyArgs struct {
	Type   string    `salt:"acl_type" doc:"user, group or mask, possibly after default:"`
	Name   string    `salt:"acl_name" doc:"name of the user or group; none for the owner" default:""`
	Perms  string    `salt:"perms" doc:"rights, as rwx" default:""`
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// Modify implements acl.modfacl.
func (a Lists) Modify(ctx context.Context, c *fn.Call, args ModifyArgs) (bool, error) {
	words, err := Args{args.Files, args.Kwargs}.paths()
	if err != nil {
		return false, err
	}
	words = append([]string{"-m", aclPrefix(args.Type) + ":" + args.Name + ":" + args.Perms}, words...)
	out, err := a.run(ctx, "setfacl", words...)
	return a.done(c, out, err, args.Kwargs.Bool("raise_err"))
}

// done returns the result of a change. A failure of the program is an error
// only if tell is set.
func (a Lists) done(c *fn.Call, out host.Output, err error, tell bool) (bool, error) {
	if err == nil && out.Exit != 0 {
		c.SetRetcode(out.Exit)
		if tell {
			err = fn.Errorf("%s", strings.TrimSpace(out.Stderr))
		}
	}
	return err == nil, err
}

// RemoveArgs are the arguments of Remove.
type RemoveArgs struct {
	Type   string    `salt:"acl_type" doc:"user or group, possibly after default:"`
	Name   string    `salt:"acl_name" doc:"name of the user or group" default:""`
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// Remove implements acl.delfacl.
func (a Lists) Remove(ctx context.Context, c *fn.Call, args RemoveArgs) (bool, error) {
	words, err := Args{args.Files, args.Kwargs}.paths()
	if err != nil {
		return false, err
	}
	out, err := a.run(ctx, "setfacl", append([]string{"-x", aclPrefix(args.Type) + ":" + args.Name}, words...)...)
	return a.done(c, out, err, args.Kwargs.Bool("raise_err"))
}
