package packages

import (
	"context"
	"os"
	"regexp"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/py/value"
)

// debconf reads and sets the answers to the questions of Debian's packages.
type debconf struct{ m *host.Machine }

func init() { units.Register("debconf", debconfModule) }

func debconfModule(m *host.Machine) fn.Module {
	d := debconf{m}
	return fn.Module{Name: "debconf", When: d.when, Doc: `Answers to the questions that Debian's packages ask.`, Funcs: []fn.Func{
		fn.Of("get_selections", d.selections, `Return the answers by package: question, kind and answer. This needs the package debconf-utils.`,
			fn.Example("salt '*' debconf.get_selections")),
		fn.Of("show", d.show, `Return the answers of a package, null if there are none.`, fn.Example("salt '*' debconf.show postfix")),
		fn.Of("set", d.set, `Give the answer to a question.`, fn.Example("salt '*' debconf.set postfix postfix/mailname string mail.example.com")),
		fn.Of("set_file", d.setFile, `Give the answers in a file, as debconf-set-selections(1) reads them.`,
			fn.Example("salt '*' debconf.set_file salt://pathto/pkg.selections")),
		fn.Of("set_template", d.setTemplate, `Give the answers in a file that is a template.`,
			fn.Example("salt '*' debconf.set_template salt://pathto/pkg.selections.jinja jinja None None")),
	}}
}

func (d debconf) when(grains fn.Reader) (string, bool) {
	if grains.Get("os_family") != "Debian" {
		return "only available on Debian and its like", false
	}
	return "", true
}

type fetchArgs struct {
	Empty bool `salt:"fetchempty" doc:"answers that are empty, too" default:"true"`
}

func (d debconf) selections(ctx context.Context, _ *fn.Call, a fetchArgs) (*value.Dict, error) {
	out, err := d.m.Do(ctx, "debconf-get-selections")
	if err != nil {
		return nil, fn.Errorf("cannot read the answers: install the package debconf-utils: %w", err)
	}
	line := regexp.MustCompile(`^([^#\s]\S+)[\t ]+(\S+)[\t ]+(\S+)[\t ]+(.*)$`)
	all := value.NewDict(32)
	for text := range strings.Lines(out.Stdout) {
		m := line.FindStringSubmatch(strings.TrimRight(text, "\n"))
		if m == nil || m[4] == "" && !a.Empty {
			continue
		}
		l, _ := all.At(m[1]).(*value.List)
		if l == nil {
			l = value.ListOf()
			all.Set(m[1], l)
		}
		l.Append(value.ListOf(m[2], m[3], m[4]))
	}
	return all, nil
}

type showArg struct {
	Name string `salt:"name" doc:"package"`
}

func (d debconf) show(ctx context.Context, c *fn.Call, a showArg) (any, error) {
	all, err := d.selections(ctx, c, fetchArgs{Empty: true})
	return all.At(a.Name), err
}

// load passes answers to debconf.
func (d debconf) load(ctx context.Context, text []byte) (bool, error) {
	f, err := os.CreateTemp("", "debconf")
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return false, fn.Errorf("cannot write the answers: %w", err)
	}
	out, err := d.m.Do(ctx, "debconf-set-selections", f.Name())
	switch {
	case err != nil:
		return false, fn.Errorf("cannot set the answers: %w", err)
	case out.Exit != 0:
		return false, fn.Errorf("debconf-set-selections: %s", strings.ReplaceAll(strings.TrimSpace(out.Stderr), f.Name(), "answers"))
	}
	return true, nil
}

type setAnswerArgs struct {
	Package  string  `salt:"package" doc:"package"`
	Question string  `salt:"question" doc:"question"`
	Type     string  `salt:"type" doc:"kind: string, boolean, select, password …"`
	Value    any     `salt:"value" doc:"answer"`
	Extra    fn.Args `salt:"extra"`
}

func (d debconf) set(ctx context.Context, _ *fn.Call, a setAnswerArgs) (bool, error) {
	words := []string{a.Package, a.Question, a.Type, value.Str(a.Value)}
	for _, w := range a.Extra {
		words = append(words, value.Str(w))
	}
	line := strings.Join(words, " ")
	if strings.ContainsAny(line, "\n\r") {
		return false, fn.Invalidf("an answer must be one line")
	}
	return d.load(ctx, []byte(line+"\n"))
}

type setFileArgs struct {
	Path    string    `salt:"path" doc:"URL or path of the file"`
	Saltenv string    `salt:"saltenv" doc:"environment of a salt:// file" default:"base"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (d debconf) setFile(ctx context.Context, c *fn.Call, a setFileArgs) (bool, error) {
	path, err := c.Files.CacheFile(ctx, a.Path, a.Saltenv)
	if err != nil {
		c.Log.Error("cannot fetch " + a.Path + ": " + err.Error())
		return false, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	return d.load(ctx, text)
}

type setTemplateArgs struct {
	Path     string    `salt:"path" doc:"URL or path of the template"`
	Template string    `salt:"template" doc:"template engine, such as jinja"`
	Context  any       `salt:"context" doc:"variables of the template"`
	Defaults any       `salt:"defaults" doc:"variables that context can override"`
	Saltenv  string    `salt:"saltenv" doc:"environment of a salt:// file" default:"base"`
	Kwargs   fn.Kwargs `salt:"kwargs"`
}

func (d debconf) setTemplate(ctx context.Context, c *fn.Call, a setTemplateArgs) (bool, error) {
	path, err := c.Files.CacheFile(ctx, a.Path, a.Saltenv)
	if err != nil {
		return false, fn.Errorf("cannot fetch %s: %w", a.Path, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return false, fn.Errorf("%w", err)
	}
	if c.Templates == nil {
		return false, fn.Errorf("templates cannot be filled in here")
	}
	vars := value.NewDict(4)
	for _, v := range []any{a.Defaults, a.Context} {
		if more, ok := v.(*value.Dict); ok {
			vars.Update(more)
		}
	}
	out, err := c.Templates.Text(ctx, c, fn.Template{Engine: a.Template, Source: text, Path: path, Saltenv: a.Saltenv, Context: vars})
	if err != nil {
		return false, err
	}
	return d.load(ctx, []byte(out))
}
