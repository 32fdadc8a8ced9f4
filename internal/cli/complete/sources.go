package complete

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/call/client"
	"brine/internal/call/fn"
	"brine/internal/call/output"
	"brine/internal/catalogue/runners"
	"brine/internal/cli/frame"
	"brine/internal/daemons/config"
	"brine/internal/daemons/minion"
	"brine/internal/host/filesys"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// argument completes a positional argument.
func (l *line) argument() []candidate {
	n := len(l.args)
	if n == 0 && len(l.subs) > 0 {
		return l.subs
	}
	switch l.program {
	case "salt":
		switch n {
		case 0:
			return l.target()
		case 1:
			return l.functions(minion.Catalogue())
		}
		return l.arguments(minion.Catalogue(), l.args[1])
	case "salt-call":
		if n == 0 {
			return l.functions(minion.Catalogue())
		}
		return l.arguments(minion.Catalogue(), l.args[0])
	case "salt-run":
		if n == 0 {
			return l.functions(runners.New(runners.Deps{}))
		}
		return l.arguments(runners.New(runners.Deps{}), l.args[0])
	case "salt-cp":
		if n == 0 {
			return l.target()
		}
		return []candidate{{word: files}}
	case "completion":
		return words([]string{"bash", "zsh", "fish"})
	case "man":
		return programs(l.applets, l.word, true)
	}
	return nil
}

// target completes a target by its type.
func (l *line) target() []candidate {
	has := func(dest string) bool { _, ok := l.given[dest]; return ok }
	switch {
	case has("nodegroup"):
		return words(l.nodegroups())
	case has("list"):
		return l.comma(words(l.minions(keystore.Accepted)))
	case has("compound"):
		i := strings.LastIndexAny(l.word, " (") + 1
		all := words(l.minions(keystore.Accepted))
		for _, g := range l.nodegroups() {
			all = append(all, candidate{word: "N@" + g})
		}
		for j := range all {
			all[j].word = l.word[:i] + all[j].word
		}
		return all
	case has("grain"), has("grain_pcre"), has("pillar_target"), has("pillar_pcre"), has("pcre"), has("ipcidr"), has("range"):
		return nil
	}
	return words(l.minions(keystore.Accepted))
}

// master reads the master's configuration.
func (l *line) master() (*config.Master, error) {
	dir, given := l.given["config_dir"]
	if !given {
		dir = ""
	}
	dir = filesys.ExpandUserFrom(dir, l.env.Getenv("HOME"))
	quiet := slog.New(slog.DiscardHandler)
	tree, err := config.Load(config.Path(config.MasterKind, dir, l.env.Getenv), config.MasterKind, quiet)
	if err != nil {
		return nil, err
	}
	machine := config.ThisMachine()
	machine.FullName = func(name string) string { return name } // no DNS lookup
	return config.NewMaster(tree, machine, quiet)
}

// minions returns the sorted ids with keys in one of the states.
func (l *line) minions(states ...keystore.State) []string {
	m, err := l.master()
	if err != nil {
		return nil
	}
	prefix := l.word[strings.LastIndexAny(l.word, ",( ")+1:]
	if i := strings.LastIndexByte(prefix, '='); i >= 0 {
		prefix = prefix[i+1:]
	}
	var ids []string
	for _, st := range states {
		d, err := os.Open(filepath.Join(m.Files.PKIDir, st.DirName()))
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(-1) // use the names read before an error
		d.Close()
		for _, id := range names {
			if strings.HasPrefix(id, prefix) && salt.CheckID(id) == nil && id[0] != '.' {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (l *line) nodegroups() []string {
	m, err := l.master()
	if err != nil {
		return nil
	}
	return keys(m.Client)
}

func keys(o client.Options) []string {
	var out []string
	for k := range o.Nodegroups.All() {
		out = append(out, value.Str(k))
	}
	slices.Sort(out)
	return out
}

// functions completes the name of a function: first the module, then the function. In a
// comma-separated list it completes the last name.
func (l *line) functions(modules []fn.Module) []candidate {
	word := l.word[strings.LastIndexByte(l.word, ',')+1:]
	var out []candidate
	for i := range modules {
		m := &modules[i]
		for _, name := range append([]string{m.Name}, m.Aliases...) {
			if len(m.Funcs) == 0 || name != m.Name && !strings.HasPrefix(word, name) {
				continue
			}
			for j := range m.Funcs {
				f := &m.Funcs[j]
				out = append(out, candidate{name + "." + f.Name(), strings.TrimSuffix(f.Summary(), ".")})
			}
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return l.comma(out)
}

// arguments completes the names of a function's arguments, and the values of boolean ones.
func (l *line) arguments(modules []fn.Module, function string) []candidate {
	mod, name, _ := strings.Cut(function, ".")
	for i := range modules {
		m := &modules[i]
		if m.Name != mod && !slices.Contains(m.Aliases, mod) {
			continue
		}
		for j := range m.Funcs {
			if f := &m.Funcs[j]; f.Name() == name {
				return append(l.parameters(f), l.named(f)...)
			}
		}
	}
	return []candidate{{word: files}}
}

// named completes the value of the argument that word names.
func (l *line) named(f *fn.Func) []candidate {
	key, _, ok := strings.Cut(l.word, "=")
	p, known := f.Param(key)
	if !ok || !known {
		if strings.ContainsAny(l.word, "/.") {
			return []candidate{{word: files}}
		}
		return nil
	}
	if _, is := p.Default.(bool); is {
		return words([]string{key + "=True", key + "=False"})
	}
	return nil
}

func (l *line) parameters(f *fn.Func) []candidate {
	if strings.Contains(l.word, "=") {
		return nil
	}
	var out []candidate
	for _, p := range f.Params() {
		out = append(out, candidate{p.Name + "=", p.Doc})
	}
	return out
}

// keyStates are the arguments of salt-key -l.
var keyStates = []string{"acc", "accepted", "all", "den", "denied", "pre", "rej", "rejected", "un", "unaccepted"}

var anyKey = []keystore.State{keystore.Accepted, keystore.Pending, keystore.Rejected, keystore.Denied}

// value completes the value of an option. prefix is the part of the word before the value.
func (l *line) value(o *frame.Option, prefix string) []candidate {
	if o == nil {
		return nil
	}
	word := l.word
	l.word = strings.TrimPrefix(word, prefix)
	out := l.values(o)
	l.word = word
	for i := range out {
		if out[i].word != files && out[i].word != dirs {
			out[i].word = prefix + out[i].word
		}
	}
	return out
}

func (l *line) values(o *frame.Option) []candidate {
	if len(o.Choices) > 0 {
		return words(o.Choices)
	}
	if l.program == "salt-key" {
		switch o.Dest {
		case "list":
			return words(keyStates)
		case "accept":
			return l.comma(words(l.minions(keystore.Pending, keystore.Rejected, keystore.Denied)))
		case "reject":
			return l.comma(words(l.minions(keystore.Pending, keystore.Accepted)))
		case "delete", "print", "finger":
			return l.comma(words(l.minions(anyKey...)))
		}
	}
	switch o.Dest {
	case "output":
		return words(output.Names())
	case "state_output":
		return words([]string{"full", "terse", "mixed", "changes", "filter", "full_id", "terse_id", "mixed_id", "changes_id", "filter_id"})
	case "id":
		return words(l.minions(keystore.Accepted))
	}
	switch {
	case o.Arg == "BOOL":
		return words([]string{"True", "False"})
	case o.Arg == "DIR" || strings.HasSuffix(o.Arg, "_DIRS") || o.Dest == "config_dir":
		return []candidate{{word: dirs}}
	case o.Arg == "FILE" || strings.HasSuffix(o.Arg, "FILE"):
		return []candidate{{word: files}}
	}
	return nil
}
