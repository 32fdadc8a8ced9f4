package salt

import (
	"errors"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/cli/frame"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

// call is a parsed command line.
type call struct {
	target any
	fun    any         // a name, or a list of names
	arg    *value.List // or a list of lists
}

const sysDoc = "sys.doc"

// doc reports whether the function is sys.doc, whose result is shown in a special form.
func (c *call) doc() bool { return c.fun == sysDoc }

// funs returns the names of the functions.
func (c *call) funs() []string {
	if l, ok := c.fun.(*value.List); ok {
		return words(l)
	}
	return []string{value.Str(c.fun)}
}

// kwargs returns the keyword arguments of a single function.
func (c *call) kwargs() *value.Dict {
	if c.arg.Len() == 0 {
		return nil
	}
	d, ok := c.arg.Items[c.arg.Len()-1].(*value.Dict)
	if !ok || !d.Has("__kwarg__") {
		return nil
	}
	return d
}

// usageError is a command line error that Salt does not report as a usage error.
type usageError struct {
	text string
	help bool // show the help first
}

func (e usageError) Error() string { return e.text }

// wrongUse is an ordinary usage error.
type wrongUse string

func (e wrongUse) Error() string { return string(e) }

// incomplete reports an error of parse.
func incomplete(env *frame.Env, err error) int {
	var u usageError
	if !errors.As(err, &u) {
		return command.Fail(env, err.Error())
	}
	if u.help {
		command.Parse(env, &options{}, []string{"--help"})
	}
	env.Errorf("%s", u.text)
	return frame.ExitIncomplete
}

// parse parses the arguments after the options.
func (o *options) parse(args []string) (*call, error) {
	if o.Preview {
		args = append(args, "preview")
	}
	if o.Doc {
		if args = docArgs(args); len(args) > 3 {
			return nil, wrongUse("You can only get documentation for one method at one time.")
		}
	}
	switch {
	case len(args) == 0 || o.Preview && len(args) == 1:
		return nil, usageError{"\nCannot execute command without defining a target.\n", !o.Preview}
	case len(args) == 1:
		return nil, usageError{"\nIncomplete options passed.\n", true}
	}
	c := &call{target: parseTarget(o.targetType(), args[0]), fun: args[1]}
	raw := map[string]bool{}
	for _, n := range o.Names() {
		raw[n] = true
	}
	if strings.Contains(args[1], ",") {
		return c, c.several(args[2:], o.Separator, raw)
	}
	c.arg = wire(args[2:], raw)
	return c, nil
}

// docArgs adds the arguments that -d implies.
func docArgs(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"*", sysDoc}
	case len(args) == 1:
		return append(args, sysDoc)
	case args[1] != sysDoc:
		return append([]string{args[0], sysDoc}, args[1:]...)
	}
	return args
}

func wire(words []string, raw map[string]bool) *value.List {
	args, kwargs := fn.ParseWords(words, raw)
	return &value.List{Items: fn.Wire(args, kwargs)}
}

// several parses the arguments of more than one function. They are separated by a word equal to
// sep, or else by sep within words.
func (c *call) several(args []string, sep string, raw map[string]bool) error {
	funs := splitComma(value.Str(c.fun))
	c.fun = value.Strings(funs)
	alone := 0
	for _, a := range args {
		if a == sep {
			alone++
		}
	}
	lists := [][]string{nil}
	for _, a := range args {
		parts := []string{a}
		if alone != len(funs)-1 && sep != "" {
			parts = strings.Split(a, sep)
		} else if a == sep {
			parts = []string{"", ""}
		}
		for i, part := range parts {
			if i > 0 {
				lists = append(lists, nil)
			}
			if part != "" || len(parts) == 1 {
				lists[len(lists)-1] = append(lists[len(lists)-1], part)
			}
		}
	}
	switch {
	case len(lists) < len(funs):
		return usageError{text: "Cannot execute compound command without defining all arguments."}
	case len(lists) > len(funs):
		return usageError{text: "Cannot execute compound command with more arguments than commands."}
	}
	c.arg = &value.List{}
	for _, l := range lists {
		c.arg.Append(wire(l, raw))
	}
	return nil
}

func splitComma(s string) []string { return strings.Split(s, ",") }

// tell returns the additional keys for master and minions, in Salt's order.
func (p *program) tell() *value.Dict {
	o := &p.opts
	kw := value.DictOf("show_timeout", !o.HideTimeout, "show_jid", o.ShowJID, "delimiter", o.Delimiter)
	if o.ReturnConfig != "" {
		kw.Set("ret_config", o.ReturnConfig)
	}
	for _, y := range []struct{ name, text string }{
		{"ret_kwargs", o.ReturnKwargs}, {"module_executors", o.Executors}, {"executor_opts", o.ExecutorOpts}, {"metadata", o.Metadata},
	} {
		if y.text != "" {
			kw.Set(y.name, yaml.LoadArg(y.text))
		}
	}
	if o.SiteSummary {
		kw.Set("site_summary", true)
	}
	p.setExpire(kw)
	return kw
}
