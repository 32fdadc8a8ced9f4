package runners

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"brine/internal/base/atomicfile"
	"brine/internal/call/fn"
	modnetwork "brine/internal/catalogue/modules/network"
	"brine/internal/py/value"
)

type web struct{ query *fn.Func }

func init() { runners.Register("http", func(Deps) fn.Module { return httpModule() }) }

func httpModule() fn.Module {
	w := web{}
	for _, m := range modnetwork.Modules(modnetwork.Sources{}) {
		for i := range m.Funcs {
			if m.Name == "http" && m.Funcs[i].Name() == "query" {
				w.query = &m.Funcs[i]
			}
		}
	}
	return fn.Module{Name: "http", Doc: `HTTP requests from the master.`, Funcs: []fn.Func{
		fn.Of("query", w.ask, `Send an HTTP request. The keywords are those of the execution function http.query.`,
			fn.Example("salt-run http.query http://somelink.com/"),
			fn.Example("salt-run http.query http://somelink.com/ method=POST params='key1=val1&key2=val2'")),
		fn.Of("update_ca_bundle", w.update, `Download a bundle of CA certificates to target, and append files to it.
			target defaults to the option ca_bundle, or to cacerts.pem in the first of file_roots; source to ca_bundle_url. Salt's default source, which uses plain http, does not exist.`,
			fn.Example("salt-run http.update_ca_bundle source=https://example.com/cacerts.pem target=/path/to/cacerts.pem")),
	}}
}

type askArgs struct {
	URL    string    `salt:"url" doc:"URL"`
	Output any       `salt:"output" ignored:"salt-run shows the result; see salt-run --quiet" default:"true"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

func (w web) ask(ctx context.Context, c *fn.Call, a askArgs) (any, error) {
	return w.query.Call(ctx, c, []any{a.URL}, a.Kwargs.Clean())
}

type bundleArgs struct {
	Target any `salt:"target" doc:"file to write" default:"null"`
	Source any `salt:"source" doc:"URL to fetch from" default:"null"`
	Merge  any `salt:"merge_files" doc:"file, or list of files, to append" default:"null"`
}

func (w web) update(ctx context.Context, c *fn.Call, a bundleArgs) (any, error) {
	target, source := value.Str(a.Target), value.Str(a.Source)
	if a.Target == nil {
		if target, _ = c.Config.Get("ca_bundle").(string); target == "" {
			roots, _ := c.Config.Get("file_roots").(*value.Dict)
			if base := roots.List("base"); len(base) > 0 {
				target = filepath.Join(value.Str(base[0]), "cacerts.pem")
			}
		}
	}
	if a.Source == nil {
		source, _ = c.Config.Get("ca_bundle_url").(string)
	}
	if target == "" || source == "" {
		return nil, fn.Errorf("target and source must be given, or the options ca_bundle and ca_bundle_url")
	}
	got, err := w.query.Call(ctx, c, []any{source}, value.DictOf("text", true, "decode", false, "raise_error", true))
	if err != nil {
		return nil, err
	}
	d, _ := got.(*value.Dict)
	text := d.Str("text")
	if d.Has("error") || text == "" {
		return nil, fn.Errorf("cannot fetch %s: %s", source, value.Str(d.At("error")))
	}
	for _, name := range value.Split(a.Merge) {
		b, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // as in Salt
		}
		if err != nil {
			return nil, fn.Errorf("cannot append a file: %w", err)
		}
		text += "\n" + string(b)
	}
	err = atomicfile.Replace(target, -1, func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	if err != nil {
		return nil, fn.Errorf("cannot write the certificates: %w", err)
	}
	return nil, nil
}
