// Package hosts implements the execution module hosts and the state host.
package hosts

import (
	"context"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/hostsfile"
	"brine/internal/py/value"
)

// File is the hosts file of a machine.
type File struct{ M *host.Machine }

// read reads the hosts file. An option sets its path.
func (h File) read(c *fn.Call) (*hostsfile.File, error) {
	path, _ := c.Config.Get("hosts.file").(string)
	if path == "" {
		path = "/etc/hosts"
	}
	f, err := hostsfile.Read(h.M, path)
	if err != nil {
		return nil, fn.Errorf("cannot read %s: %w", path, err)
	}
	return f, nil
}

// change changes the file.
func (h File) change(c *fn.Call, do func(*hostsfile.File) error) (bool, error) {
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

// List implements hosts.list_hosts.
func (h File) List(_ context.Context, c *fn.Call, _ struct{}) (*value.Dict, error) {
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

// NameArgs are the arguments of Ip.
type NameArgs struct {
	Host string `salt:"host" doc:"name"`
}

// Ip implements hosts.get_ip.
func (h File) Ip(_ context.Context, c *fn.Call, a NameArgs) (string, error) {
	f, err := h.read(c)
	if err != nil {
		return "", err
	}
	return f.IP(a.Host), nil
}

// IPArgs are the arguments of Names.
type IPArgs struct {
	IP string `salt:"ip" doc:"address"`
}

// Names implements hosts.get_alias.
func (h File) Names(_ context.Context, c *fn.Call, a IPArgs) (*value.List, error) {
	f, err := h.read(c)
	if err != nil {
		return nil, err
	}
	return value.Strings(f.Names(a.IP)), nil
}

// PairArgs are the arguments of Has, Add, Remove.
type PairArgs struct {
	IP    string `salt:"ip" doc:"address"`
	Alias any    `salt:"alias" doc:"name"`
}

// aliases reads a list of names, or a string with blanks between names.
func (a PairArgs) aliases() []string {
	if l, ok := a.Alias.(*value.List); ok {
		return value.ListTexts(l)
	}
	return strings.Fields(value.Str(a.Alias))
}

// Has implements hosts.has_pair.
func (h File) Has(_ context.Context, c *fn.Call, a PairArgs) (bool, error) {
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

// SetArgs are the arguments of Set.
type SetArgs struct {
	IP      string `salt:"ip" doc:"address"`
	Alias   any    `salt:"alias" doc:"names, with blanks between"`
	Comment any    `salt:"comment" doc:"comment of the line" default:"null"`
}

// Set implements hosts.set_host.
func (h File) Set(_ context.Context, c *fn.Call, a SetArgs) (bool, error) {
	comment := ""
	if value.Truth(a.Comment) {
		comment = value.Str(a.Comment)
	}
	return h.change(c, func(f *hostsfile.File) error { return f.Set(a.IP, PairArgs{a.IP, a.Alias}.aliases(), comment) })
}

// Add implements hosts.add_host.
func (h File) Add(_ context.Context, c *fn.Call, a PairArgs) (bool, error) {
	return h.change(c, func(f *hostsfile.File) error {
		for _, n := range a.aliases() {
			if err := f.Add(a.IP, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Remove implements hosts.rm_host.
func (h File) Remove(_ context.Context, c *fn.Call, a PairArgs) (bool, error) {
	return h.change(c, func(f *hostsfile.File) error {
		for _, n := range a.aliases() {
			f.Remove(a.IP, n)
		}
		return nil
	})
}

// CommentArgs are the arguments of Comment.
type CommentArgs struct {
	IP      string `salt:"ip" doc:"address"`
	Comment string `salt:"comment" doc:"the comment"`
}

// Comment implements hosts.set_comment.
func (h File) Comment(_ context.Context, c *fn.Call, a CommentArgs) (bool, error) {
	found := false
	_, err := h.change(c, func(f *hostsfile.File) error {
		found = f.SetComment(a.IP, a.Comment)
		return nil
	})
	return found, err
}
