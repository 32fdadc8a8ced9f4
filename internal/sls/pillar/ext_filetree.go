package pillar

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/base/target"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

func init() { externals.Register("file_tree", fileTree) }

var fileTreeArgs = []string{"root_dir", "follow_dir_links", "debug", "keep_newline", "render_default", "renderer_blacklist", "renderer_whitelist",
	"template"}

// fileTree builds pillar from the names and contents of files: those of the
// minion's nodegroups below nodegroups/NAME, then those below hosts/ID.
func fileTree(ctx context.Context, r *run, _ *value.Dict, a args) (any, error) {
	in, err := a.bind(fileTreeArgs...)
	if err != nil {
		return nil, err
	}
	t := tree{run: r, ctx: ctx, follow: value.Truth(in["follow_dir_links"]), template: in["template"] == true, render: textOr(in["render_default"], r.c.Default),
		white: value.ListTexts(in["renderer_whitelist"]), black: value.ListTexts(in["renderer_blacklist"])}
	switch k := in["keep_newline"].(type) {
	case nil:
	case bool:
		t.keepAll = k
	case *value.List:
		for _, p := range value.ListTexts(k) {
			t.keep = append(t.keep, target.ParseGlob(p))
		}
	default:
		r.log.Error("file_tree: keep_newline must be either True/False or a list of file globs. Skipping this ext_pillar")
		return nil, nil
	}
	out := value.NewDict(4)
	for _, dir := range t.roots(textOr(in["root_dir"], "")) {
		d, err := t.root(dir)
		if err != nil {
			return nil, err
		}
		out = Merge(out, d, false)
	}
	return out, nil
}

func textOr(v any, usual string) string {
	if !value.Truth(v) {
		return usual
	}
	return value.Str(v)
}

type tree struct {
	*run
	ctx          context.Context
	follow       bool
	keepAll      bool
	keep         []target.Glob
	template     bool
	render       string
	white, black []string
	depth        int
}

// roots returns the directories: a relative one is below each directory of
// pillar_roots of the pillar's environment.
func (t *tree) roots(dir string) []string {
	switch {
	case dir == "":
		t.log.Error("file_tree: no root_dir specified")
		return nil
	case filepath.IsAbs(dir):
		return []string{dir}
	case t.env == "":
		t.log.Error("file_tree: root_dir is relative but pillarenv is not set")
		return nil
	}
	var out []string
	for _, root := range t.Compiler.roots {
		if root.Env == t.env {
			for _, d := range root.Dirs {
				out = append(out, filepath.Join(d, dir))
			}
		}
	}
	return slices.Compact(out)
}

func (t *tree) root(dir string) (*value.Dict, error) {
	out := value.NewDict(4)
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		t.log.Error("file_tree: root_dir " + dir + " does not exist or is not a directory")
		return out, nil
	}
	groups := t.groups()
	entries, _ := os.ReadDir(filepath.Join(dir, "nodegroups"))
	for _, e := range entries {
		if !slices.Contains(groups, e.Name()) {
			continue
		}
		d, err := t.dirMap(filepath.Join(dir, "nodegroups", e.Name()), ".")
		if err != nil {
			return nil, err
		}
		out = Merge(out, d, false)
	}
	if salt.CheckID(t.q.ID) != nil {
		return out, nil
	}
	host := filepath.Join(dir, "hosts", t.q.ID)
	switch st, err := os.Stat(host); {
	case errors.Is(err, fs.ErrNotExist):
		return out, nil
	case err != nil || !st.IsDir():
		t.log.Error("file_tree: " + host + " exists, but is not a directory")
		return out, nil
	}
	d, err := t.dirMap(host, ".")
	if err != nil {
		return nil, err
	}
	return Merge(out, d, false), nil
}

// dirMap converts a directory into a map. rel is its path from the top.
func (t *tree) dirMap(dir, rel string) (*value.Dict, error) {
	if t.depth++; t.depth > maxDepth {
		return nil, salt.Errorf(salt.Invalid, "file_tree: directories are more than %d levels deep below %s", maxDepth, dir)
	}
	defer func() { t.depth-- }()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.log.Error("file_tree: cannot read a directory", "err", err)
		return value.NewDict(0), nil
	}
	out := value.NewDict(len(entries))
	for _, e := range entries {
		full := filepath.Join(dir, e.Name())
		st, err := os.Stat(full)
		switch {
		case err != nil || !st.IsDir() && !st.Mode().IsRegular():
			t.log.Error("file_tree: " + full + ": not a regular file")
		case st.IsDir() && e.Type()&fs.ModeSymlink != 0 && !t.follow:
			out.Set(e.Name(), value.NewDict(0))
		case st.IsDir():
			d, err := t.dirMap(full, filepath.Join(rel, e.Name()))
			if err != nil {
				return nil, err
			}
			out.Set(e.Name(), d)
		default:
			v, ok, err := t.file(full, filepath.Join(rel, e.Name()))
			if err != nil {
				return nil, err
			}
			if ok {
				out.Set(e.Name(), v)
			}
		}
	}
	return out, nil
}

func (t *tree) file(full, rel string) (any, bool, error) {
	b, err := os.ReadFile(full)
	if err != nil {
		t.log.Error("file_tree: cannot read a file", "err", err)
		return nil, false, nil
	}
	if bytes.HasSuffix(b, []byte("\n")) && !t.keepAll && !slices.ContainsFunc(t.keep, func(g target.Glob) bool { return g.Match(rel) || g.Match("./"+rel) }) {
		b = b[:len(b)-1]
	}
	if t.template {
		v, err := t.c.Renderer.Render(t.ctx, render.Request{Source: b, Path: full, Saltenv: "base", Default: t.render, Whitelist: t.white, Blacklist: t.black,
			Funcs: t.funcs, Grains: t.q.Grains, Pillar: t.pillar, Opts: t.opts, Loader: loader{t.files}, Local: loader{t.files}.local})
		return v, true, err
	}
	if utf8.Valid(b) {
		return string(b), true, nil
	}
	return b, true, nil
}
