package core

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/files/fileclient"
	"brine/internal/py/serialize"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

type slsutil struct{}

func init() {
	s := slsutil{}
	units.Declare("slsutil", func() fn.Module {
		return fn.Module{Name: "slsutil", Doc: `What templates of states need: merging maps, texts of values, files of the state tree.`, Funcs: []fn.Func{
			fn.Of("merge", s.merge, `Return two maps put together.
			The strategies are smart, recurse, aggregate, overwrite, list and none.`, fn.Example(`salt '*' slsutil.merge '{foo: Foo}' '{bar: Bar}'`)),
			fn.Of("merge_all", s.mergeAll, `Return several maps put together in their order.`,
				fn.Example(`salt '*' slsutil.merge_all '[{foo: Foo}, {foo: Bar}]'`)),
			fn.Of("update", s.update, `Lay one map over another, which is changed, and return it.`,
				fn.Example(`salt '*' slsutil.update '{foo: Foo}' '{bar: Bar}'`)),
			fn.Of("boolstr", s.boolstr, `Return one text if a value is true, and another otherwise.`,
				fn.Example("salt '*' slsutil.boolstr True true=yes false=no")),
			fn.Of("banner", s.banner, `Return a comment that says that a file is managed.`, fn.Example("salt '*' slsutil.banner commentchar='//'")),
			fn.Of("renderer", s.renderer, `Return what a file or a text comes to by a pipe of renderers. Further keywords are variables of templates.`,
				fn.Example("salt '*' slsutil.renderer salt://path/to/file jinja")),
			fn.Of("serialize", s.serialize,
				`Return a value as text in the format of a serializer: json, yaml, yamlex, toml, plist, configparser, keyvalue, python or msgpack.
			Keywords are options of what writes the format.`, fn.Example(`salt '*' slsutil.serialize 'json' obj="{'foo': 'Foo!'}"`)),
			fn.Of("deserialize", s.deserialize, `Return the value that a text in the format of a serializer means; of those of slsutil.serialize all but python.`,
				fn.Example(`salt '*' slsutil.deserialize 'json' '{"foo": "Foo!"}'`)),
			fn.Of("file_exists", s.fileExists, `Say whether there is a file in the state tree.`, fn.Example("salt '*' slsutil.file_exists nginx/defaults.yaml")),
			fn.Of("dir_exists", s.dirExists, `Say whether there is a directory in the state tree.`, fn.Example("salt '*' slsutil.dir_exists nginx/files")),
			fn.Of("path_exists", s.pathExists, `Say whether there is a file or directory in the state tree.`,
				fn.Example("salt '*' slsutil.path_exists nginx/defaults.yaml")),
			fn.Of("findup", s.findup, `Return the first of some names that exists in a directory of the state tree or in one above it.`,
				fn.Example("salt '*' slsutil.findup formulas/shared/nginx map.jinja")),
		}}
	})
}

type rendererArgs struct {
	Path    string    `salt:"path" doc:"file: a URL or path" default:"null"`
	String  any       `salt:"string" doc:"text, in place of a file" default:"null"`
	Default string    `salt:"default_renderer" doc:"the pipe, unless the text begins with one" default:"jinja|yaml"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func (slsutil) renderer(ctx context.Context, c *fn.Call, a rendererArgs) (any, error) {
	text, isText := a.String.(string)
	if a.String != nil && !isText {
		text = value.Str(a.String)
	}
	switch {
	case a.Path == "" && text == "":
		return nil, fn.Invalidf("Must pass either path or string")
	case a.Path != "" && text != "":
		return nil, fn.Invalidf("Must not pass both path and string")
	case c.Templates == nil:
		return nil, fn.Errorf("there are no renderers here")
	}
	vars := a.Kwargs.Clean()
	t := fn.Template{Source: []byte(text), Path: textPath, Saltenv: "base", Context: vars}
	if env, ok := vars.Get("saltenv"); ok {
		t.Saltenv = value.Str(env)
	}
	if a.Path != "" {
		local, err := c.Files.CacheFile(ctx, a.Path, t.Saltenv)
		if err == nil {
			t.Source, err = os.ReadFile(local)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist), salt.KindOf(err) == salt.NotFound: // as in Salt; templates rely on it
			c.Log.Warn("slsutil.renderer: no such file; returning an empty result", "path", a.Path)
			return value.NewDict(0), nil
		case err != nil:
			return nil, fn.Errorf("cannot fetch %s: %w", a.Path, err)
		}
		t.Path = local
	}
	v, err := c.Templates.Data(ctx, c, a.Default, t)
	if errors.Is(err, render.ErrNoRenderer) { // as in Salt
		c.Log.Error(fmt.Sprintf("The renderer %q is not available", a.Default))
		return value.NewDict(0), nil
	}
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return v, nil
}

type slsMergeArgs struct {
	A        any    `salt:"obj_a" doc:"a map"`
	B        any    `salt:"obj_b" doc:"the map that is laid over it"`
	Strategy string `salt:"strategy" doc:"how to merge" default:"smart"`
	Renderer string `salt:"renderer" doc:"renderer by which smart decides" default:"yaml"`
	Lists    bool   `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
}

func (slsutil) merge(_ context.Context, _ *fn.Call, a slsMergeArgs) (any, error) {
	return value.Merge(a.A, a.B, a.Strategy, a.Renderer, a.Lists)
}

type mergeAllArgs struct {
	Lst      *value.List `salt:"lst" doc:"list of maps"`
	Strategy string      `salt:"strategy" doc:"how to merge" default:"smart"`
	Renderer string      `salt:"renderer" doc:"renderer by which smart decides" default:"yaml"`
	Lists    bool        `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
}

func (slsutil) mergeAll(_ context.Context, _ *fn.Call, a mergeAllArgs) (any, error) {
	var out any = value.NewDict(0)
	for _, it := range a.Lst.Items {
		var err error
		if out, err = value.Merge(out, it, a.Strategy, a.Renderer, a.Lists); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type slsUpdateArgs struct {
	Dest      *value.Dict `salt:"dest" doc:"the map that is changed"`
	Upd       *value.Dict `salt:"upd" doc:"the map that is laid over it"`
	Recursive bool        `salt:"recursive_update" doc:"map by map, not only at the top" default:"true"`
	Lists     bool        `salt:"merge_lists" doc:"put lists together instead of replacing them" default:"false"`
}

func (slsutil) update(_ context.Context, _ *fn.Call, a slsUpdateArgs) (*value.Dict, error) {
	if a.Recursive {
		value.Update(a.Dest, a.Upd, a.Lists)
	} else {
		a.Dest.Update(a.Upd)
	}
	return a.Dest, nil
}

type boolstrArgs struct {
	Value any `salt:"value" doc:"the value"`
	True  any `salt:"true" doc:"what to return if it is true" default:"'true'"`
	False any `salt:"false" doc:"what to return otherwise" default:"'false'"`
}

func (slsutil) boolstr(_ context.Context, _ *fn.Call, a boolstrArgs) (any, error) {
	if value.Truth(a.Value) {
		return a.True, nil
	}
	return a.False, nil
}

type bannerArgs struct {
	Width       int    `salt:"width" doc:"characters in a line" default:"72"`
	Commentchar string `salt:"commentchar" doc:"what begins a comment, and ends its lines" default:"#"`
	Borderchar  string `salt:"borderchar" doc:"character of the lines above and below" default:"#"`
	Blockstart  any    `salt:"blockstart" doc:"line before the comment" default:"null"`
	Blockend    any    `salt:"blockend" doc:"line after the comment" default:"null"`
	Title       any    `salt:"title" doc:"first line" default:"null"`
	Text        any    `salt:"text" doc:"further text" default:"null"`
	Newline     bool   `salt:"newline" doc:"end with a newline" default:"false"`
}

func (slsutil) banner(_ context.Context, _ *fn.Call, a bannerArgs) (string, error) {
	title, text := "THIS FILE IS MANAGED BY SALT - DO NOT EDIT",
		"The contents of this file are managed by Salt. Any changes to this file may be overwritten automatically and without warning."
	if a.Title != nil {
		title = value.Str(a.Title)
	}
	if a.Text != nil {
		text = value.Str(a.Text)
	}
	left, right := strings.TrimRight(a.Commentchar, " \t\n"), strings.TrimSpace(a.Commentchar)
	width := a.Width - utf8.RuneCountInString(left) - utf8.RuneCountInString(right) - 2
	if width <= 0 {
		return "", fn.Errorf("Width is too small to render banner")
	}
	blanks := func(n int) string { return strings.Repeat(" ", max(n, 0)) }
	edge := ""
	if a.Borderchar != "" {
		edge = string([]rune(a.Borderchar)[:1])
	}
	border := a.Commentchar + strings.Repeat(edge, width+2) + right
	spacer := a.Commentchar + " " + blanks(a.Width-2*utf8.RuneCountInString(a.Commentchar)-1) + a.Commentchar
	if a.Width-2*utf8.RuneCountInString(a.Commentchar) <= 0 {
		spacer = a.Commentchar + " " + a.Commentchar
	}
	var lines []string
	if a.Blockstart != nil {
		lines = append(lines, value.Str(a.Blockstart))
	}
	lines = append(lines, border, spacer)
	for _, l := range wrap(title, width) {
		room := width - utf8.RuneCountInString(l)
		before := room/2 + room&width&1 // rounds like Python's str.center
		lines = append(lines, left+" "+blanks(before)+l+blanks(room-before)+" "+right)
	}
	lines = append(lines, spacer)
	for _, l := range wrap(text, width) {
		lines = append(lines, left+" "+l+blanks(width-utf8.RuneCountInString(l))+" "+right)
	}
	lines = append(lines, border)
	if a.Blockend != nil {
		lines = append(lines, value.Str(a.Blockend))
	}
	out := strings.Join(lines, "\n")
	if a.Newline {
		out += "\n"
	}
	return out, nil
}

// wrap breaks a string into lines at blanks. It splits a word that is too long
// for a line, starting on the line before if there is room.
func wrap(text string, width int) []string {
	var lines []string
	line := []rune(nil)
	for _, w := range strings.Fields(text) {
		word := []rune(w)
		room := width - len(line) - 1
		if len(line) > 0 && len(word) > room && (len(word) <= width || room <= 0) {
			lines, line = append(lines, string(line)), nil
		}
		if len(line) > 0 {
			line = append(line, ' ')
		}
		for len(line)+len(word) > width {
			room := width - len(line)
			lines = append(lines, strings.TrimRight(string(line)+string(word[:room]), " "))
			line, word = nil, word[room:]
		}
		line = append(line, word...)
	}
	if len(line) > 0 {
		lines = append(lines, string(line))
	}
	return lines
}

type serializeArgs struct {
	Serializer string    `salt:"serializer" doc:"name of the serializer"`
	Obj        any       `salt:"obj" doc:"the value"`
	Kwargs     fn.Kwargs `salt:"mod_kwargs"`
}

func (slsutil) serialize(_ context.Context, _ *fn.Call, a serializeArgs) (any, error) {
	format, ok := serialize.Named(a.Serializer)
	if !ok {
		return nil, fn.Errorf("Serializer '%s' not found.", a.Serializer)
	}
	out, err := format.Write(a.Obj, a.Kwargs.Clean())
	if err != nil {
		return nil, fn.Errorf("cannot write the value as %s: %w", a.Serializer, err)
	}
	return out, nil
}

type deserializeArgs struct {
	Serializer string    `salt:"serializer" doc:"name of the serializer"`
	Text       any       `salt:"stream_or_string" doc:"the text"`
	Kwargs     fn.Kwargs `salt:"mod_kwargs"`
}

func (slsutil) deserialize(_ context.Context, _ *fn.Call, a deserializeArgs) (v any, err error) {
	data := []byte(value.Str(a.Text))
	if b, ok := a.Text.([]byte); ok {
		data = b
	}
	format, ok := serialize.Named(a.Serializer)
	switch {
	case !ok:
		return nil, fn.Errorf("Serializer '%s' not found.", a.Serializer)
	case format.Read == nil:
		return nil, fn.Errorf("the serializer %s can only write", a.Serializer)
	}
	if v, err = format.Read(data, a.Kwargs.Clean()); err != nil {
		return nil, fn.Errorf("%w", err)
	}
	return serialize.Plain(v), nil
}

type treeArgs struct {
	Path    string `salt:"path" doc:"path below the root of the state tree"`
	Saltenv string `salt:"saltenv" doc:"environment of the state tree" default:"base"`
}

func (slsutil) has(ctx context.Context, c *fn.Call, a treeArgs, lists ...fileclient.Listing) (bool, error) {
	for _, l := range lists {
		names, err := c.Files.List(ctx, l, a.Saltenv, "")
		if err != nil {
			return false, fn.Errorf("cannot list the state tree: %w", err)
		}
		if slices.Contains(names, a.Path) {
			return true, nil
		}
	}
	return false, nil
}

func (s slsutil) fileExists(ctx context.Context, c *fn.Call, a treeArgs) (bool, error) {
	return s.has(ctx, c, a, fileclient.Files)
}

func (s slsutil) dirExists(ctx context.Context, c *fn.Call, a treeArgs) (bool, error) {
	return s.has(ctx, c, a, fileclient.Dirs)
}

func (s slsutil) pathExists(ctx context.Context, c *fn.Call, a treeArgs) (bool, error) {
	return s.has(ctx, c, a, fileclient.Files, fileclient.Dirs)
}

type findupArgs struct {
	Start   any    `salt:"startpath" doc:"directory to begin in; empty for the root"`
	Names   any    `salt:"filenames" doc:"name, or list of names"`
	Saltenv string `salt:"saltenv" doc:"environment of the state tree" default:"base"`
}

func (s slsutil) findup(ctx context.Context, c *fn.Call, a findupArgs) (string, error) {
	start := ""
	if value.Truth(a.Start) {
		start = path.Clean(value.Str(a.Start))
		if ok, err := s.pathExists(ctx, c, treeArgs{start, a.Saltenv}); !ok || err != nil {
			if err == nil {
				err = fn.Invalidf("Starting path not found in the state tree: %s", start)
			}
			return "", err
		}
	}
	var names []any
	switch x := a.Names.(type) {
	case string:
		names = []any{x}
	case *value.List:
		names = x.Items
	default:
		return "", fn.Invalidf("Filenames argument must be a string or list of strings")
	}
	for {
		for _, n := range names {
			full := path.Join(start, value.Str(n))
			if ok, err := s.pathExists(ctx, c, treeArgs{full, a.Saltenv}); ok || err != nil {
				return full, err
			}
		}
		if start == "" || start == "." || start == "/" {
			return "", fn.Errorf("File pattern(s) not found in path ancestry")
		}
		if start = path.Dir(start); start == "." {
			start = ""
		}
	}
}
