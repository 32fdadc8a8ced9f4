package network

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/hostsfile"
	"brine/internal/py/value"
)

type hosts struct{ m *host.Machine }

func init() { units.Register("hosts", hostsModule) }

func hostsModule(m *host.Machine) fn.Module {
	h := hosts{m}
	return fn.Module{Name: "hosts", Doc: `The file that names addresses: /etc/hosts, or what the option hosts.file names.`, Funcs: []fn.Func{
		fn.Of("list_hosts", h.list, `Return all addresses with their names.`, fn.Example("salt '*' hosts.list_hosts")),
		fn.Of("get_ip", h.ip, `Return the address of a name, or an empty text.`, fn.Example("salt '*' hosts.get_ip db1")),
		fn.Of("get_alias", h.names, `Return the names of an address.`, fn.Example("salt '*' hosts.get_alias 10.0.0.1")),
		fn.Of("has_pair", h.has, `Say whether an address has a name, or all of several.`, fn.Example("salt '*' hosts.has_pair 10.0.0.1 db1")),
		fn.Of("set_host", h.set, `Make a name, or several with blanks, all the names of an address; an empty text removes it.`,
			fn.Example("salt '*' hosts.set_host 10.0.0.1 db1")),
		fn.Of("add_host", h.add, `Give an address another name.`, fn.Example("salt '*' hosts.add_host 10.0.0.1 db1")),
		fn.Of("rm_host", h.remove, `Take a name from an address.`, fn.Example("salt '*' hosts.rm_host 10.0.0.1 db1")),
		fn.Of("set_comment", h.comment, `Set the comment of an address.`, fn.Example("salt '*' hosts.set_comment 10.0.0.1 'the database'")),
	}}
}

// read reads the file, whose name is an option.
func (h hosts) read(c *fn.Call) (*hostsfile.File, error) {
	path, _ := c.Config.Get("hosts.file").(string)
	if path == "" {
		path = "/etc/hosts"
	}
	f, err := hostsfile.Read(h.m, path)
	if err != nil {
		return nil, fn.Errorf("cannot read %s: %w", path, err)
	}
	return f, nil
}

// change changes the file.
func (h hosts) change(c *fn.Call, do func(*hostsfile.File) error) (bool, error) {
	f, err := h.read(c)
	if err != nil {
		return false, err
	}
	if err := do(f); err != nil {
		return false, fn.Errorf("%w", err)
	}
	if err := f.Write(); err != nil {
		return false, fn.Errorf("cannot write the file: %w", err)
	}
	return true, nil
}

func (h hosts) list(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	f, err := h.read(c)
	if err != nil {
		return nil, err
	}
	out, comments := value.NewDict(len(f.Lines)), 0
	for _, l := range f.Lines {
		if l.IP == "" {
			if text := strings.TrimSpace(l.String()); text != "" {
				out.Set("comment-"+value.Str(int64(comments)), value.ListOf(text))
				comments++
			}
			continue
		}
		d := out.Dict(l.IP)
		if d == nil {
			d = value.DictOf("aliases", &value.List{})
			out.Set(l.IP, d)
		}
		for _, n := range l.Names {
			d.At("aliases").(*value.List).Append(n)
		}
		if l.Comment != "" {
			d.Set("comment", l.Comment)
		}
	}
	return out, nil
}

type hostNameArgs struct {
	Host string `salt:"host" doc:"name"`
}

func (h hosts) ip(_ context.Context, c *fn.Call, a hostNameArgs) (string, error) {
	f, err := h.read(c)
	if err != nil {
		return "", err
	}
	return f.IP(a.Host), nil
}

type hostIPArgs struct {
	IP string `salt:"ip" doc:"address"`
}

func (h hosts) names(_ context.Context, c *fn.Call, a hostIPArgs) (*value.List, error) {
	f, err := h.read(c)
	if err != nil {
		return nil, err
	}
	return value.Strings(f.Names(a.IP)), nil
}

type pairArgs struct {
	IP    string `salt:"ip" doc:"address"`
	Alias any    `salt:"alias" doc:"name"`
}

// aliases reads a list, or a text with blanks.
func (a pairArgs) aliases() []string {
	if l, ok := a.Alias.(*value.List); ok {
		var out []string
		for _, it := range l.Items {
			out = append(out, value.Str(it))
		}
		return out
	}
	return strings.Fields(value.Str(a.Alias))
}

func (h hosts) has(_ context.Context, c *fn.Call, a pairArgs) (bool, error) {
	f, err := h.read(c)
	if err != nil {
		return false, err
	}
	have := map[string]bool{}
	for _, n := range f.Names(a.IP) {
		have[n] = true
	}
	for _, n := range a.aliases() {
		if !have[n] {
			return false, nil
		}
	}
	return len(have) > 0, nil
}

type setHostArgs struct {
	IP      string `salt:"ip" doc:"address"`
	Alias   any    `salt:"alias" doc:"names, with blanks between"`
	Comment any    `salt:"comment" doc:"comment of the line" default:"null"`
}

func (h hosts) set(_ context.Context, c *fn.Call, a setHostArgs) (bool, error) {
	comment := ""
	if value.Truth(a.Comment) {
		comment = value.Str(a.Comment)
	}
	return h.change(c, func(f *hostsfile.File) error { return f.Set(a.IP, pairArgs{a.IP, a.Alias}.aliases(), comment) })
}

func (h hosts) add(_ context.Context, c *fn.Call, a pairArgs) (bool, error) {
	return h.change(c, func(f *hostsfile.File) error {
		for _, n := range a.aliases() {
			if err := f.Add(a.IP, n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (h hosts) remove(_ context.Context, c *fn.Call, a pairArgs) (bool, error) {
	return h.change(c, func(f *hostsfile.File) error {
		for _, n := range a.aliases() {
			f.Remove(a.IP, n)
		}
		return nil
	})
}

type hostCommentArgs struct {
	IP      string `salt:"ip" doc:"address"`
	Comment string `salt:"comment" doc:"the comment"`
}

func (h hosts) comment(_ context.Context, c *fn.Call, a hostCommentArgs) (bool, error) {
	found := false
	_, err := h.change(c, func(f *hostsfile.File) error {
		found = f.SetComment(a.IP, a.Comment)
		return nil
	})
	return found, err
}
