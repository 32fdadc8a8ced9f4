package files

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// acl asks getfacl(1) and setfacl(1).
type acl struct{ m *host.Machine }

func init() { units.Register("acl", aclModule) }

func aclModule(m *host.Machine) fn.Module {
	a := acl{m}
	when := func(fn.Reader) (string, bool) {
		return "The linux_acl execution module cannot be loaded: the getfacl binary is not in the path.", m.Which("getfacl") != ""
	}
	return fn.Module{Name: "acl", When: when, Doc: `Access control lists of files.`, Funcs: []fn.Func{
		fn.Of("version", a.version, `Return the version of getfacl.`, fn.Example("salt '*' acl.version")),
		fn.Of("getfacl", a.get, `Return the access control lists of files by their paths. The keyword is recursive.`, fn.Example("salt '*' acl.getfacl /tmp/house/kitchen recursive=true")),
		fn.Of("wipefacls", a.wipe, `Remove all but the owner's, the group's and others' rights. The keyword is recursive.`, fn.Example("salt '*' acl.wipefacls /tmp/house/kitchen")),
		fn.Of("modfacl", a.modify, `Set the rights of a user or group: acl_type is user, group or mask, for the rights that new files get with "default:" before it.
			The keywords are recursive and raise_err.`, fn.Example("salt '*' acl.modfacl default:group mygroup rx /tmp/house/kitchen recursive=True")),
		fn.Of("delfacl", a.remove, `Remove the rights of a user or group. The keyword is recursive.`, fn.Example("salt '*' acl.delfacl user myuser /tmp/house/kitchen")),
	}}
}

func (a acl) run(ctx context.Context, program string, words ...string) (host.Output, error) {
	out, err := a.m.Do(ctx, program, words...)
	if err != nil {
		return out, fn.Errorf("cannot run %s: %w", program, err)
	}
	return out, nil
}

func (a acl) version(ctx context.Context, _ *fn.Call, _ struct{}) (string, error) {
	out, err := a.run(ctx, "getfacl", "--version")
	if f := strings.Fields(out.Stdout); err == nil && len(f) > 1 {
		return f[1], nil
	}
	return "", err
}

type aclArgs struct {
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// paths are the files, after "--", and before them the option for directories.
func (a aclArgs) paths() ([]string, error) {
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

func (a acl) get(ctx context.Context, _ *fn.Call, args aclArgs) (*value.Dict, error) {
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

// unescaped undoes how getfacl writes bytes of names: \ooo in octal.
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

// aclsOf reads what getfacl prints.
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
		line, _, _ = strings.Cut(line, "\t") // the effective rights
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

func (a acl) wipe(ctx context.Context, _ *fn.Call, args aclArgs) (bool, error) {
	words, err := args.paths()
	if err != nil {
		return false, err
	}
	_, err = a.run(ctx, "setfacl", append([]string{"-b"}, words...)...)
	return err == nil, err
}

// aclPrefix is the beginning of an entry as setfacl reads it.
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

type aclModifyArgs struct {
	Type   string    `salt:"acl_type" doc:"user, group or mask, possibly after default:"`
	Name   string    `salt:"acl_name" doc:"name of the user or group; none for the owner" default:""`
	Perms  string    `salt:"perms" doc:"rights, as rwx" default:""`
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (a acl) modify(ctx context.Context, c *fn.Call, args aclModifyArgs) (bool, error) {
	words, err := aclArgs{args.Files, args.Kwargs}.paths()
	if err != nil {
		return false, err
	}
	words = append([]string{"-m", aclPrefix(args.Type) + ":" + args.Name + ":" + args.Perms}, words...)
	out, err := a.run(ctx, "setfacl", words...)
	return a.done(c, out, err, args.Kwargs.Bool("raise_err"))
}

// done is how changes end: a failure is reported only where that is asked for.
func (a acl) done(c *fn.Call, out host.Output, err error, tell bool) (bool, error) {
	if err == nil && out.Exit != 0 {
		c.SetRetcode(out.Exit)
		if tell {
			err = fn.Errorf("%s", strings.TrimSpace(out.Stderr))
		}
	}
	return err == nil, err
}

type aclRemoveArgs struct {
	Type   string    `salt:"acl_type" doc:"user or group, possibly after default:"`
	Name   string    `salt:"acl_name" doc:"name of the user or group" default:""`
	Files  fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (a acl) remove(ctx context.Context, c *fn.Call, args aclRemoveArgs) (bool, error) {
	words, err := aclArgs{args.Files, args.Kwargs}.paths()
	if err != nil {
		return false, err
	}
	out, err := a.run(ctx, "setfacl", append([]string{"-x", aclPrefix(args.Type) + ":" + args.Name}, words...)...)
	return a.done(c, out, err, args.Kwargs.Bool("raise_err"))
}
