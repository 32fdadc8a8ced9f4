package wheel

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"brine/internal/base/atomicfile"
	"brine/internal/base/log/redact"
	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/py/yaml"
)

type configuration struct{}

func init() { modules.Register("config", func(Deps) fn.Module { return configModule() }) }

func configModule() fn.Module {
	return fn.Module{Name: "config", Doc: `The options of the master.`, Funcs: []fn.Func{
		fn.Of("values", configuration{}.values, `Return the options of the master, without passwords.`),
		fn.Of("apply", configuration{}.apply,
			`Set one option in the master's configuration file. It takes effect at the next start, or on reload if the option allows that.`),
		fn.Of("update_config", configuration{}.update, `Write options to a file in the directory of default_include, replacing a file with that name.
			They take effect at the next start, or on reload if the options allow that.`),
	}}
}

type applyArgs struct {
	Key   string `salt:"key" doc:"name of the option"`
	Value any    `salt:"value" doc:"its value"`
}

// apply changes the lines of one option and keeps the rest of the file,
// including its comments.
func (configuration) apply(_ context.Context, c *fn.Call, a applyArgs) (any, error) {
	file := value.Str(c.Config.Get("conf_file"))
	if a.Key == "" || file == "" {
		return nil, fn.Errorf("key must name an option, and the master must have a configuration file")
	}
	if fi, err := os.Stat(file); err == nil && fi.IsDir() {
		file = filepath.Join(file, "master")
	}
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fn.Errorf("cannot read the configuration: %w", err)
	}
	text, err := withOption(string(old), a.Key, a.Value)
	if err != nil {
		return nil, fn.Errorf("cannot set %s in %s: %w", a.Key, file, err)
	}
	err = atomicfile.Replace(file, -1, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	if err != nil {
		return nil, fn.Errorf("cannot write the configuration: %w", err)
	}
	return nil, nil
}

// withOption returns a configuration file with one option set: it replaces the
// option's old lines, or is appended.
func withOption(text, key string, v any) (string, error) {
	before, err := options(text)
	if err != nil {
		return "", err
	}
	want := before.Clone()
	want.Set(key, v)
	block := yaml.Dump(value.DictOf(key, v))
	var out strings.Builder
	in, done := false, false
	for line := range strings.Lines(text) {
		top := !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "-") &&
			strings.TrimSpace(line) != ""
		if top {
			in = false
			if d, err := options(line); err == nil && d.Has(key) || strings.HasPrefix(line, key+":") {
				if in = true; !done {
					out.WriteString(block)
				}
				done = true
			}
		}
		if !in {
			out.WriteString(line)
		}
	}
	if !done {
		if text != "" && !strings.HasSuffix(text, "\n") {
			out.WriteByte('\n')
		}
		out.WriteString(block)
	}
	// A file that does not consist of lines of options, such as one flow map, is
	// rewritten, which loses its comments.
	if got, err := options(out.String()); err != nil || !value.Equal(got, want) {
		return yaml.Dump(want, yaml.KeepOrder()), nil
	}
	return out.String(), nil
}

// options parses a configuration file.
func options(text string) (*value.Dict, error) {
	v, err := yaml.Load([]byte(text), "configuration")
	if err != nil || v == nil {
		return value.NewDict(0), err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("the file is not a map of options")
	}
	return d, nil
}

type updateArgs struct {
	FileName string `salt:"file_name" doc:"name of the file, without .conf"`
	Contents any    `salt:"yaml_contents" doc:"map of options"`
}

func (configuration) update(_ context.Context, c *fn.Call, a updateArgs) (string, error) {
	if _, ok := a.Contents.(*value.Dict); !ok {
		return "", fn.Errorf("yaml_contents must be a map of options, not %s: the master could not read such a file", value.TypeName(a.Contents))
	}
	include, ok := c.Config.Get("default_include").(string)
	file := value.Str(c.Config.Get("conf_file"))
	if !ok || include == "" || file == "" {
		return "", fn.Errorf("default_include does not name a directory")
	}
	dir := filepath.Dir(include)
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	name := a.FileName + ".conf"
	if a.FileName == "" || filepath.Base(name) != name || !filepath.IsLocal(name) {
		return "Invalid path", nil
	}
	root, err := openOrMake(dir, 0o755)
	if err != nil {
		return "", fn.Errorf("cannot open %s: %w", dir, err)
	}
	defer root.Close()
	if fi, err := root.Lstat(name); err == nil && !fi.Mode().IsRegular() {
		return "Invalid path", nil
	}
	// It may hold a password.
	if err := place(root, name, []byte(yaml.Dump(a.Contents)), 0o640); err != nil {
		return "", fn.Errorf("cannot write %s: %w", filepath.Join(dir, name), err)
	}
	return "Wrote " + name, nil
}

// hidden is shown instead of a password.
const hidden = "**********"

// secret reports whether an option, or a key in one, has the name of a
// password: as a whole, or after the last dot or underscore.
func secret(name string) bool {
	name = strings.ToLower(name)
	if name == "s3.key" || name == "sharedsecret" {
		return true
	}
	if i := strings.LastIndexAny(name, "._^-"); i >= 0 {
		name = name[i+1:]
	}
	switch name {
	case "pass", "passwd", "password", "passphrase", "secret", "bindpw", "token", "apikey":
		return true
	}
	return false
}

// hide returns v with its passwords hidden, at any depth.
func hide(v any) any {
	switch x := v.(type) {
	case *value.Dict:
		out := value.NewDict(x.Len())
		for k, v := range x.All() {
			text, _ := k.(string)
			switch v.(type) {
			case *value.Dict, *value.List, bool, nil:
				v = hide(v)
			default:
				if v = hide(v); secret(text) && value.Truth(v) {
					v = hidden
				}
			}
			if key, ok := hide(k).(string); ok {
				k = key // the URL of a repository, for example
			}
			out.Set(k, v)
		}
		return out
	case *value.List:
		out := &value.List{}
		for _, it := range x.Items {
			out.Append(hide(it))
		}
		return out
	case string:
		return redact.Text(x)
	}
	return v
}

func (configuration) values(_ context.Context, c *fn.Call, _ none) (*value.Dict, error) {
	return hide(c.Config.All()).(*value.Dict), nil
}
