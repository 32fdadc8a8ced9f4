package compat

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
	"brine/internal/sls/render"
)

// root is a root directory of an environment.
type root struct {
	env, dir string
	pillar   bool
	renderer string // of files that name no renderer
	top      string // name of the top file
}

// findRoots finds the directories to check.
func (c *checker) findRoots() error {
	m := c.master
	pipe, topFile := "jinja|yaml", "top.sls"
	if m != nil {
		if s := m.opts.Str("renderer"); s != "" {
			pipe = s
		}
		topFile = filepath.Base(m.conf.Top.File())
	}
	add := func(env, dir string, pillar, given bool) error {
		dir = filepath.Clean(dir)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			switch {
			case given:
				return salt.Errorf(salt.Invalid, "%s is not a directory of SLS files", dir)
			case errors.Is(err, os.ErrPermission):
				c.unread(dir, cause(err))
			default:
				installed{c}.noRoot(dir, pillar)
			}
			return nil
		}
		c.roots = append(c.roots, root{env, dir, pillar, pipe, topFile})
		return nil
	}
	for _, given := range []struct {
		dirs   []string
		pillar bool
	}{{c.cfg.Trees, false}, {c.cfg.Pillars, true}} {
		for _, d := range given.dirs {
			if err := add("base", d, given.pillar, true); err != nil {
				return err
			}
		}
		if m == nil || len(given.dirs) > 0 {
			continue
		}
		configured, usual := m.conf.Served.FileRoots, "/srv/salt"
		if given.pillar {
			configured, usual = m.conf.Pillar.Roots, "/srv/pillar"
		}
		for _, r := range fileserver.Roots(configured, usual) {
			for _, d := range r.Dirs {
				if err := add(r.Env, d, given.pillar, false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// noRoot records a directory that an option names and that does not exist.
func (k installed) noRoot(dir string, pillar bool) {
	c := k.c
	key := "file_roots"
	if pillar {
		key = "pillar_roots"
	}
	if o, set := c.master.tree.Origin(key); set {
		file, line := k.part(c.master.tree, key, dir)
		c.add(Finding{Kind: KindRoot, Name: dir, Places: places(cmp.Or(file, o.File), line), Why: key + " names this directory, which does not exist"})
	}
}

// scan searches the files of a tree.
func (c *checker) scan(r root) error {
	w := &walker{ctx: c.ctx, failed: c.unread}
	w.enter = func(path string) bool {
		name := filepath.Base(path)
		return !strings.HasPrefix(name, ".") && !slices.Contains(pythonKinds, name)
	}
	w.file = func(path string, err error) {
		if filepath.Ext(path) == ".sls" {
			c.slsFile(r, path, err)
		} else if err == nil {
			c.otherFile(r, path)
		}
	}
	return w.walk(r.dir, 0)
}

// slsFile checks one SLS file.
func (c *checker) slsFile(r root, path string, err error) {
	if c.sources[path] {
		return
	}
	c.sources[path] = true
	var text []byte
	if err == nil {
		text, err = readFile(path, maxSLS)
	}
	if err != nil {
		c.unread(path, err)
		return
	}
	if !utf8.Valid(text) {
		c.add(Finding{Kind: KindRender, Name: filepath.Base(path), Places: at(path, invalidLine(text)), Why: "the file is not UTF-8", Missing: true})
		return
	}
	c.sls(r, path, text)
}

// invalidLine returns the line of the first byte that is not valid UTF-8.
func invalidLine(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n < 2 {
			return 1 + bytes.Count(text[:i], []byte{'\n'})
		}
		i += n
	}
	return 0
}

// templates are the extensions of files that are probably templates.
var templates = []string{".jinja", ".jinja2", ".j2", ".jinja_template", ".tmpl"}

// otherFile checks a file that may be a template.
func (c *checker) otherFile(r root, path string) {
	if name := strings.ToUpper(filepath.Base(path)); strings.HasPrefix(name, "README") || strings.HasPrefix(name, "CHANGELOG") {
		return // examples in a text for people
	}
	text, err := readFile(path, maxText)
	if err != nil {
		if !errors.Is(err, errLarge) {
			c.unread(path, err)
		}
		return
	}
	if !bytes.Contains(text, []byte("{{")) && !bytes.Contains(text, []byte("{%")) || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return
	}
	at := onMinion
	if r.pillar {
		at = onMaster
	}
	if slices.Contains(templates, filepath.Ext(path)) {
		if uses, err := c.renderer.Uses(render.Request{Source: text, Path: path}, "salt"); err == nil {
			for _, u := range uses {
				c.use(path, u, at)
			}
			return
		}
	}
	c.byText(path, text, at)
}

// reactions checks the files named by the option reactor.
func (c *checker) reactions() error {
	if c.master == nil {
		return nil
	}
	l, _ := c.master.opts.At("reactor").(*value.List)
	if l == nil {
		return nil
	}
	for _, it := range l.Items {
		d, _ := it.(*value.Dict)
		for _, v := range d.All() {
			for _, name := range value.Texts(v) {
				c.reaction(name)
			}
		}
	}
	return nil
}

// reaction checks one entry: a path, a glob pattern, or a salt:// URL.
func (c *checker) reaction(name string) {
	r := root{env: "base", renderer: "jinja|yaml", top: "top.sls"}
	var found []string
	if rel, ok := strings.CutPrefix(name, "salt://"); ok {
		for _, tree := range c.roots {
			if full := filepath.Join(tree.dir, rel); !tree.pillar && isFile(full) {
				found = append(found, full)
			}
		}
	} else if matches, err := filepath.Glob(name); err == nil {
		found = matches
	}
	if len(found) == 0 {
		at, _ := c.master.tree.Origin("reactor")
		c.add(Finding{Kind: KindNote, Name: name, Places: places(at.File, at.Line), Why: "the option reactor names this file, which does not exist here"})
	}
	for _, path := range found {
		st, err := os.Stat(path)
		if err == nil && !st.Mode().IsRegular() {
			err = errSpecial
		}
		c.slsFile(r, path, err)
	}
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
