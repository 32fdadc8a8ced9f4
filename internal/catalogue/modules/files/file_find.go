package files

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/target"
	"brine/internal/call/fn"
	"brine/internal/host"
	"brine/internal/host/filesys"
	"brine/internal/host/proc"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
)

func (f file) finds() []fn.Func {
	return []fn.Func{fn.Of("find", f.find, `Find files by what they are called, are and hold, and say or do something about them.
		Criteria are name, iname, regex, iregex, type, owner, group, size, mtime and grep; actions are print, delete and exec; mindepth and maxdepth bound how far down it goes.`,
		fn.Example("salt '*' file.find /var/log type=f name=*.gz mtime=+30d size=+10m"))}
}

type findArgs struct {
	Path   string    `salt:"path" doc:"path or glob where to begin"`
	Args   fn.Args   `salt:"args"`
	Kwargs fn.Kwargs `salt:"kwargs"`
}

// candidate is a file that the search visits.
type candidate struct {
	path  string
	facts filesys.Facts // of the link's target, unless the link is dangling
}

// finder is a search.
type finder struct {
	m        *host.Machine
	criteria []func(candidate) (bool, error)
	actions  []func(candidate) (any, error)
	min, max int // depths; max is -1 for any
	test     bool
}

func (f file) find(ctx context.Context, c *fn.Call, a findArgs) (any, error) {
	opts := a.Kwargs.Clean()
	for _, v := range a.Args {
		switch v {
		case "delete":
			opts.Set("delete", "f")
		case "print":
			opts.Set("print", "path")
		}
	}
	s, err := f.newFinder(ctx, opts)
	if err != nil {
		return "error: " + err.Error(), nil
	}
	roots, err := filepath.Glob(filesys.ExpandUser(a.Path))
	if err != nil {
		return nil, fn.Errorf("%w", err)
	}
	var found []any
	for _, root := range roots {
		if err := s.walk(ctx, root, &found); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(found, func(x, y any) int {
		if c, ok := value.Compare(x, y); ok {
			return c
		}
		return strings.Compare(value.Str(x), value.Str(y))
	})
	return &value.List{Items: found}, nil
}

// depth reads one of the options that limit the depth.
func depth(opts *value.Dict, key string, otherwise int) (int, error) {
	v, ok := opts.Get(key)
	if !ok {
		return otherwise, nil
	}
	opts.Delete(key)
	n, err := strconv.Atoi(value.Str(v))
	if err != nil {
		return 0, fmt.Errorf("%s must be a number", key)
	}
	return n, nil
}

func (f file) newFinder(ctx context.Context, opts *value.Dict) (*finder, error) {
	s := &finder{m: f.m}
	var err error
	if s.min, err = depth(opts, "mindepth", 0); err != nil {
		return nil, err
	}
	if s.max, err = depth(opts, "maxdepth", -1); err != nil {
		return nil, err
	}
	s.test = value.Truth(opts.At("test"))
	opts.Delete("test")
	for k, v := range opts.All() {
		key := value.Str(k)
		if !value.Truth(v) {
			return nil, fmt.Errorf(`missing value for "%s" option`, key)
		}
		if err := s.option(ctx, key, value.Str(v)); err != nil {
			return nil, err
		}
	}
	if len(s.actions) == 0 {
		return s, s.print("path")
	}
	return s, nil
}

func (s *finder) option(ctx context.Context, key, v string) error {
	switch key {
	case "name", "iname":
		return s.byName(v, key == "iname")
	case "regex", "iregex":
		return s.byRegex(v, key == "iregex")
	case "type":
		types, err := fileTypes(v)
		s.criteria = append(s.criteria, func(c candidate) (bool, error) { return types[c.facts.Type], nil })
		return err
	case "owner":
		return s.byID(v, func(name string) (int, bool) { return filesys.UserID(ctx, s.m, name) }, func(c candidate) int { return c.facts.UID }, "user")
	case "group":
		return s.byID(v, func(name string) (int, bool) { return filesys.GroupID(ctx, s.m, name) }, func(c candidate) int { return c.facts.GID }, "group")
	case "size":
		least, most, err := sizes(v)
		s.criteria = append(s.criteria, func(c candidate) (bool, error) { return c.facts.Size >= least && c.facts.Size <= most, nil })
		return err
	case "mtime":
		return s.byTime(v)
	case "grep":
		return s.byContent(v)
	case "print":
		return s.print(v)
	case "delete":
		return s.delete(v)
	case "exec":
		s.actions = append(s.actions, func(c candidate) (any, error) { return execute(ctx, v, c.path), nil })
		return nil
	}
	return fmt.Errorf(`invalid option "%s"`, key)
}

// braces expands {a,b} in a glob, which globs do not support otherwise.
func braces(glob string) []string {
	open := strings.IndexByte(glob, '{')
	if open < 0 {
		return []string{glob}
	}
	end := strings.IndexByte(glob[open:], '}')
	if end < 0 {
		return []string{glob}
	}
	var out []string
	for _, alt := range strings.Split(glob[open+1:open+end], ",") {
		out = append(out, braces(glob[:open]+alt+glob[open+end+1:])...)
		if len(out) > 1000 {
			break
		}
	}
	return out
}

func (s *finder) byName(v string, fold bool) error {
	if fold {
		v = strings.ToLower(v)
	}
	var globs []target.Glob
	for _, g := range braces(strings.ReplaceAll(v, "[^", "[!")) {
		globs = append(globs, target.ParseGlob(g))
	}
	s.criteria = append(s.criteria, func(c candidate) (bool, error) {
		name := filepath.Base(c.path)
		if fold {
			name = strings.ToLower(name)
		}
		return slices.ContainsFunc(globs, func(g target.Glob) bool { return g.Match(name) }), nil
	})
	return nil
}

func (s *finder) byRegex(v string, fold bool) error {
	flags := pyre.Flags(0)
	if fold {
		flags = pyre.IgnoreCase
	}
	re, err := pyre.Compile(v, flags)
	if err != nil {
		return fmt.Errorf(`invalid regular expression: "%s"`, v)
	}
	s.criteria = append(s.criteria, func(c candidate) (bool, error) { m, err := re.Match(filepath.Base(c.path)); return m != nil, err })
	return nil
}

var typeLetters = map[rune]string{'b': "block", 'c': "char", 'd': "dir", 'f': "file", 'l': "link", 'p': "pipe", 's': "socket"}

func fileTypes(v string) (map[string]bool, error) {
	out := map[string]bool{}
	for _, r := range strings.NewReplacer(",", "", " ", "").Replace(v) {
		t, ok := typeLetters[r]
		if !ok {
			return nil, fmt.Errorf(`invalid file type "%c"`, r)
		}
		out[t] = true
	}
	return out, nil
}

func (s *finder) byID(v string, number func(string) (int, bool), of func(candidate) int, what string) error {
	ids := map[int]bool{}
	for _, name := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' }) {
		id, ok := number(name)
		if !ok {
			return fmt.Errorf(`no such %s "%s"`, what, name)
		}
		ids[id] = true
	}
	s.criteria = append(s.criteria, func(c candidate) (bool, error) { return ids[of(c)], nil })
	return nil
}

// sizes parses a size such as +10m.
func sizes(v string) (least, most int64, err error) {
	t := strings.TrimSpace(v)
	sign := byte('=')
	if t != "" && (t[0] == '+' || t[0] == '-') {
		sign, t = t[0], t[1:]
	}
	unit := int64(1)
	if t != "" {
		if i := strings.IndexByte("bkmgt", t[len(t)-1]|0x20); i >= 0 {
			unit, t = 1<<(10*i), strings.TrimSpace(t[:len(t)-1])
		}
	}
	x, err := strconv.ParseFloat(t, 64)
	if err != nil || x < 0 || x*float64(unit) > math.MaxInt64/2 {
		return 0, 0, fmt.Errorf(`invalid size: "%s"`, v)
	}
	n := int64(x * float64(unit))
	switch sign {
	case '-':
		return 0, n, nil
	case '+':
		return n, math.MaxInt64, nil
	}
	return n, n + unit - 1, nil
}

// byTime selects files that were changed longer ago than an interval such as
// 1w3d6h or, with a leading -, more recently.
func (s *finder) byTime(v string) error {
	t := strings.ReplaceAll(strings.ToLower(v), " ", "")
	recent := strings.HasPrefix(t, "-")
	t = strings.TrimLeft(t, "+-")
	units := map[byte]float64{'w': 7 * 86400, 'd': 86400, 'h': 3600, 'm': 60, 's': 1}
	seconds, step := 0.0, 0.0
	for t != "" {
		n := len(t) - len(strings.TrimLeft(t, "0123456789."))
		x, err := strconv.ParseFloat(t[:n], 64)
		unit := units['d'] // a number without a unit counts days
		if n < len(t) {
			unit = units[t[n]]
			n++
		}
		if err != nil || unit == 0 {
			return fmt.Errorf("invalid time interval: '%s'", v)
		}
		seconds, step, t = seconds+x*unit, unit, t[n:]
	}
	if step == 0 {
		return fmt.Errorf("invalid time interval: '%s'", v)
	}
	limit := time.Now().Add(-time.Duration(math.Floor(seconds/step) * step * 1e9))
	s.criteria = append(s.criteria, func(c candidate) (bool, error) {
		if recent {
			return !c.facts.Mod.Before(limit), nil
		}
		return !c.facts.Mod.After(limit), nil
	})
	return nil
}

func (s *finder) byContent(v string) error {
	re, err := pyre.Compile(v, 0)
	if err != nil {
		return fmt.Errorf(`invalid regular expression: "%s"`, v)
	}
	s.criteria = append(s.criteria, func(c candidate) (bool, error) {
		if !c.facts.IsFile() {
			return false, nil
		}
		text, ok := contents(c.path)
		if !ok {
			return false, nil
		}
		m, err := re.Search(text)
		return m != nil, err
	})
	return nil
}

func (s *finder) print(v string) error {
	words := strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		words = []string{"path"}
	}
	s.actions = append(s.actions, func(c candidate) (any, error) {
		out := value.ListOf()
		for _, w := range words {
			if x, ok := c.tell(w); ok {
				out.Append(x)
			}
		}
		if out.Len() == 1 {
			return out.Items[0], nil
		}
		return out, nil
	})
	return nil
}

// tell returns the property of a file that a word of print names.
func (c candidate) tell(word string) (any, bool) {
	f := c.facts
	named := func(name string, id int) any {
		if name == "" {
			return int64(id)
		}
		return name
	}
	switch word {
	case "path":
		return c.path, true
	case "name":
		return filepath.Base(c.path), true
	case "size":
		return f.Size, true
	case "type":
		for r, name := range typeLetters {
			if name == f.Type {
				return string(r), true
			}
		}
		return "?", true
	case "mode":
		n, err := strconv.ParseInt(f.Mode, 8, 64)
		return n & 0o777, err == nil
	case "mtime":
		return f.Mod.Unix(), true
	case "user":
		return named(f.User(), f.UID), true
	case "group":
		return named(f.Group(), f.GID), true
	case "md5":
		sum := ""
		if f.IsFile() {
			sum, _ = hashOf(c.path, "md5")
		}
		return sum, true
	}
	return nil, false
}

func (s *finder) delete(v string) error {
	if strings.Contains(v, "a") {
		v = "bcdpfls"
	}
	types, err := fileTypes(v)
	s.criteria = append(s.criteria, func(c candidate) (bool, error) { return types[c.facts.Type], nil })
	s.actions = append(s.actions, func(c candidate) (any, error) {
		if s.test {
			return c.path, nil
		}
		if filesys.Remove(c.path) != nil {
			return nil, nil
		}
		return c.path, nil
	})
	return err
}

func execute(ctx context.Context, command, path string) any {
	command = strings.ReplaceAll(command, "{}", path)
	words, err := proc.Split(command)
	if err != nil {
		return path + ": Failed"
	}
	r, err := proc.Run(ctx, proc.Cmd{Args: words, Env: os.Environ(), MaxOutput: maxRead})
	if err != nil {
		return path + ": Failed"
	}
	return command + ":\n" + string(r.Stdout) + "\n"
}

// walk visits a path and everything below it.
func (s *finder) walk(ctx context.Context, root string, found *[]any) error {
	if s.min < 1 {
		if err := s.visit(root, found); err != nil {
			return err
		}
	}
	base := strings.Count(filepath.Clean(root), "/")
	if filepath.Clean(root) == "/" {
		base = 0
	}
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil || path == root {
			return nil // skip what cannot be read, as find(1) does
		}
		depth := strings.Count(path, "/") - base
		if s.max >= 0 && depth > s.max {
			return fs.SkipDir
		}
		if depth < s.min {
			return nil
		}
		return s.visit(path, found)
	})
}

func (s *finder) visit(path string, found *[]any) error {
	c := candidate{path: path}
	var err error
	if c.facts, err = filesys.Look(s.m, path, true); err != nil {
		if c.facts, err = filesys.Look(s.m, path, false); err != nil {
			return nil // removed in the meantime
		}
	}
	for _, ok := range s.criteria {
		match, err := ok(c)
		if err != nil {
			return fn.Errorf("%w", err)
		}
		if !match {
			return nil
		}
	}
	for _, act := range s.actions {
		v, err := act(c)
		if err != nil {
			return err
		}
		if v != nil {
			*found = append(*found, v)
		}
	}
	return nil
}
