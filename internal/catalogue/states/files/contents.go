package files

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/call/fn"
	"brine/internal/py/value"
	"brine/internal/sls/state"
	"brine/internal/sls/state/sources"
)

// contentArgs are the arguments that determine the content of a file.
type contentArgs struct {
	Source          any    `salt:"source" doc:"where the content comes from: salt://, http://, https:// or ftp:// URL, or path; of a list, the first that exists" default:"null"`
	SourceHash      string `salt:"source_hash" doc:"hash of the source, kind=hash, or a file of hashes; needed for http, https and ftp" default:"null"`
	SourceHashName  string `salt:"source_hash_name" doc:"name of the source in a file of hashes" default:"null"`
	SkipVerify      bool   `salt:"skip_verify" doc:"take a source of http, https or ftp without a hash" default:"false"`
	VerifySSL       bool   `salt:"verify_ssl" doc:"check the certificates of https servers" default:"true"`
	UseETag         bool   `salt:"use_etag" doc:"ask the http server whether the file has changed, in place of a hash" default:"false"`
	KeepSource      bool   `salt:"keep_source" doc:"keep the source in the minion's cache" default:"true"`
	Contents        any    `salt:"contents" doc:"the content, or a list of its lines" default:"null"`
	ContentsPillar  any    `salt:"contents_pillar" doc:"pillar key that holds the content, or a list of such keys" default:"null"`
	ContentsGrains  any    `salt:"contents_grains" doc:"grain that holds the content, or a list of grains" default:"null"`
	ContentsNewline bool   `salt:"contents_newline" doc:"end the content with a line break" default:"true"`
	ContentsDelim   string `salt:"contents_delimiter" doc:"what separates the parts of a pillar key or grain" default:":"`
	AllowEmpty      bool   `salt:"allow_empty" doc:"accept contents that are empty" default:"true"`
	Encoding        string `salt:"encoding" doc:"encoding of the file, such as latin-1" default:"null"`
	EncodingErrors  string `salt:"encoding_errors" doc:"what to do with characters that the encoding lacks: strict, ignore or replace" default:"strict"`
	Template        string `salt:"template" doc:"template engine that makes the content, such as jinja" default:"null"`
	Context         any    `salt:"context" doc:"variables of the template" default:"null"`
	Defaults        any    `salt:"defaults" doc:"variables of the template that context can override" default:"null"`
}

// given returns the content given in the SLS, pillar or grains: a string, or
// bytes.
func (a *contentArgs) given(e *state.Env) (text any, ok bool, err error) {
	var v any
	what := "'contents'"
	switch {
	case a.ContentsPillar != nil:
		what = "contents_pillar " + value.Str(a.ContentsPillar)
		v, err = lookUp(e.Pillar, "Pillar", a.ContentsPillar, a.ContentsDelim)
	case a.ContentsGrains != nil:
		what = "contents_grains " + value.Str(a.ContentsGrains)
		v, err = lookUp(e.Grains, "Grain", a.ContentsGrains, a.ContentsDelim)
	case a.Contents != nil:
		v = a.Contents
	default:
		return nil, false, nil
	}
	switch {
	case err != nil:
		return nil, false, err
	case !a.AllowEmpty && !value.Truth(v):
		return nil, false, fn.Errorf("%s value would result in empty contents. Set allow_empty to True to allow the managed file to be empty.", what)
	}
	if b, isBytes := v.([]byte); isBytes {
		if !utf8.Valid(b) {
			return b, true, nil
		}
		v = string(b)
	}
	parts := []any{v}
	if l, isList := v.(*value.List); isList {
		if parts = l.Items; len(parts) == 0 {
			return nil, false, fn.Errorf("Contents specified by contents/contents_pillar/contents_grains is not a string or list of strings, and is not " +
				"binary data. SLS is likely malformed.")
		}
	}
	var out strings.Builder
	for _, p := range parts {
		for _, line := range value.SplitLines(value.Str(p), false) {
			out.WriteString(line + "\n")
		}
	}
	s := out.String()
	if !a.ContentsNewline {
		s = strings.TrimRight(strings.TrimRight(s, "\n"), "\r")
	}
	return s, true, nil
}

func lookUp(in fn.Reader, what string, key any, delimiter string) (any, error) {
	one := func(k any) (any, error) {
		v, ok := value.Traverse(in.All(), value.Str(k), delimiter)
		if !ok {
			return nil, fn.Errorf("%s %s does not exist", what, value.Str(k))
		}
		return v, nil
	}
	l, ok := key.(*value.List)
	if !ok {
		return one(key)
	}
	parts := make([]string, 0, l.Len())
	for _, k := range l.Items {
		v, err := one(k)
		if err != nil {
			return nil, err
		}
		parts = append(parts, value.Str(v))
	}
	return strings.Join(parts, "\n"), nil
}

// fileTemplate renders the content of a file.
type fileTemplate struct {
	e      *state.Env
	args   *contentArgs
	target sources.Target
	// more holds variables from the SLS besides context and defaults.
	more *value.Dict
}

// render renders a string from the SLS, pillar or grains.
func (r fileTemplate) render(ctx context.Context, text string) (string, error) {
	return r.run(ctx, state.Template{Source: text, Name: r.target.Name, Saltenv: r.e.Saltenv, Context: r.variables("")})
}

// renderFrom renders a source.
func (r fileTemplate) renderFrom(ctx context.Context, text string, s sources.Source) (string, error) {
	return r.run(ctx, state.Template{Source: text, Name: s.URL, Saltenv: s.Env, Context: r.variables(s.URL)})
}

// supported rejects an unknown template engine.
func (r fileTemplate) supported() error {
	if r.e.Template == nil || !slices.Contains(engines, strings.ToLower(r.args.Template)) {
		return fn.Errorf("Specified template format %s is not supported", r.args.Template)
	}
	return nil
}

// engines are the template engines that Salt's files may name.
var engines = []string{"cheetah", "genshi", "jinja", "mako", "py", "wempy"}

func (r fileTemplate) run(ctx context.Context, t state.Template) (string, error) {
	t.Engine = r.args.Template
	if err := r.supported(); err != nil {
		return "", err
	}
	return r.e.Template(ctx, t)
}

// variables returns the variables of the template. Those from the SLS override
// those about the file.
func (r fileTemplate) variables(url string) *value.Dict {
	v := r.target.Variables(url, r.more, r.args.Defaults, r.args.Context)
	if acc := accumulators(r.e.Run).of(r.target.Name); acc != nil {
		v.Set("accumulator", acc)
	}
	return v
}
