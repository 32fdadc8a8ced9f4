package system

import (
	"context"
	"regexp"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// aliases are the other names of mailboxes, as sendmail's file has them.
type aliases struct{ m *host.Machine }

func aliasesModule(m *host.Machine) fn.Module {
	a := aliases{m}
	return fn.Module{Name: "aliases", Doc: `Aliases of mailboxes, in the file of the option aliases.file, /etc/aliases for most.`, Funcs: []fn.Func{
		fn.Of("list_aliases", a.list, `Return the targets of all aliases.`, fn.Example("salt '*' aliases.list_aliases")),
		fn.Of("get_target", a.get, `Return the target of an alias, an empty text if there is none.`, fn.Example("salt '*' aliases.get_target root")),
		fn.Of("has_target", a.has, `Say whether an alias has a target.`, fn.Example("salt '*' aliases.has_target root joe@example.com")),
		fn.Of("set_target", a.set, `Set the target of an alias.`, fn.Example("salt '*' aliases.set_target root joe@example.com")),
		fn.Of("rm_alias", a.remove, `Remove an alias.`, fn.Example("salt '*' aliases.rm_alias root")),
	}}
}

func (aliases) path(c *fn.Call) string {
	if v := c.Config.Get("aliases.file"); value.Truth(v) {
		return value.Str(v)
	}
	return "/etc/aliases"
}

// aliasLine is a line of the file; alias is "" for a comment.
type aliasLine struct{ alias, target, comment, raw string }

func (a aliases) lines(c *fn.Call) (out []aliasLine) {
	re := regexp.MustCompile(`^([^:#]*)\s*:?\s*([^#]*?)(\s+#.*|$)`)
	for _, raw := range a.m.Lines(a.path(c)) {
		l := aliasLine{raw: raw}
		if m := re.FindStringSubmatch(raw); m != nil && strings.TrimSpace(m[1]) != "" && m[2] != "" {
			l.alias, l.target, l.comment = m[1], m[2], m[3]
		}
		out = append(out, l)
	}
	return out
}

func (a aliases) write(ctx context.Context, c *fn.Call, lines []aliasLine) error {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.raw + "\n")
	}
	if err := a.m.WriteFile(a.path(c), []byte(b.String())); err != nil {
		return fn.Errorf("cannot write the aliases: %w", err)
	}
	if a.m.Which("newaliases") == "" {
		return nil
	}
	_, err := run(ctx, a.m, "newaliases")
	return err
}

func (a aliases) list(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	d := value.NewDict(8)
	for _, l := range a.lines(c) {
		if l.alias != "" {
			d.Set(l.alias, l.target)
		}
	}
	return d, nil
}

type aliasArgs struct {
	Alias string `salt:"alias" doc:"alias"`
}

func (a aliases) get(ctx context.Context, c *fn.Call, args aliasArgs) (string, error) {
	d, err := a.list(ctx, c, none{})
	return d.Str(args.Alias), err
}

type aliasTargetArgs struct {
	Alias  string `salt:"alias" doc:"alias"`
	Target any    `salt:"target" doc:"mailbox, or a list of them"`
}

// target is the text of a target.
func (a aliasTargetArgs) target() (string, error) {
	text := strings.Join(value.Texts(a.Target), ", ")
	if text == "" {
		return "", fn.Invalidf("target can not be an empty string")
	}
	return text, nil
}

func (a aliases) has(ctx context.Context, c *fn.Call, args aliasTargetArgs) (bool, error) {
	want, err := args.target()
	if err != nil {
		return false, err
	}
	now, err := a.get(ctx, c, aliasArgs{args.Alias})
	return now == want, err
}

func (a aliases) set(ctx context.Context, c *fn.Call, args aliasTargetArgs) (bool, error) {
	want, err := args.target()
	switch {
	case err != nil:
		return false, err
	case args.Alias == "":
		return false, fn.Invalidf("alias can not be an empty string")
	case strings.ContainsAny(args.Alias+want, "\n\r"):
		return false, fn.Invalidf("neither alias nor target can have several lines")
	}
	var out []aliasLine
	done := false
	for _, l := range a.lines(c) {
		if l.alias == args.Alias {
			if done {
				continue // once is enough
			}
			done = true
			if l.target != want {
				l.raw = args.Alias + ": " + want + l.comment
			}
		}
		out = append(out, l)
	}
	if !done {
		out = append(out, aliasLine{raw: args.Alias + ": " + want})
	}
	return true, a.write(ctx, c, out)
}

func (a aliases) remove(ctx context.Context, c *fn.Call, args aliasArgs) (bool, error) {
	var out []aliasLine
	all := a.lines(c)
	for _, l := range all {
		if l.alias != args.Alias || l.alias == "" {
			out = append(out, l)
		}
	}
	if len(out) == len(all) {
		return true, nil
	}
	return true, a.write(ctx, c, out)
}
