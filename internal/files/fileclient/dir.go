package fileclient

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/base/target"
)

func sorted(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}

// GetDir copies a directory of a file server, including empty directories, to a directory below dest with the
// same last name, and returns the sorted paths of all files in it.
func (c *Client) GetDir(ctx context.Context, url, dest string, o GetOptions) ([]string, error) {
	at, ok := locate(url, o.Saltenv)
	if !ok {
		return nil, errScheme(url)
	}
	dir := strings.TrimRight(at.path, "/")
	above := ""
	if i := strings.LastIndexByte(dir, '/'); i >= 0 {
		above = dir[:i]
	}
	place := func(name string) (string, bool) {
		if !filepath.IsLocal(name) || len(name) <= len(dir) || name[len(dir)] != '/' {
			return "", false // salt://foo is not salt://foobar
		}
		return dest + "/" + strings.TrimLeft(name[len(above):], "/"), true
	}
	files, err := c.List(ctx, Files, at.env, dir)
	if err != nil {
		return nil, err
	}
	out := []string{}
	o.Saltenv, o.Makedirs = at.env, true
	for _, name := range files {
		to, ok := place(name)
		if !ok {
			continue
		}
		got, err := c.GetFile(ctx, scheme+escape(name), to, o)
		if salt.KindOf(err) == salt.NotFound {
			continue // removed in the meantime, or a dangling link
		}
		if err != nil {
			return out, err
		}
		out = append(out, got)
	}
	empty, err := c.List(ctx, EmptyDirs, at.env, dir)
	if err != nil {
		return out, err
	}
	for _, name := range empty {
		to, ok := place(name)
		if !ok {
			continue
		}
		if err := os.MkdirAll(to, 0o777); err != nil {
			return out, err
		}
		out = append(out, to)
	}
	return sorted(out), nil
}

// Filter selects files by their path on the server. A pattern is a glob or, after E@, a regular expression
// that must match part of the path.
type Filter struct {
	Include, Exclude []string
}

// compile returns the filter as a function.
func (f Filter) compile() (func(path string) bool, error) {
	include, err := patterns(f.Include)
	if err != nil {
		return nil, err
	}
	exclude, err := patterns(f.Exclude)
	if err != nil {
		return nil, err
	}
	return func(path string) bool {
		return (len(include) == 0 || matches(include, path)) && !matches(exclude, path)
	}, nil
}

func matches(patterns []func(string) bool, path string) bool {
	return slices.ContainsFunc(patterns, func(m func(string) bool) bool { return m(path) })
}

func patterns(texts []string) ([]func(string) bool, error) {
	var out []func(string) bool
	for _, t := range texts {
		expr, ok := strings.CutPrefix(t, "E@")
		if !ok {
			out = append(out, target.ParseGlob(t).Match)
			continue
		}
		re, err := target.SearchRegexp(expr)
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "the pattern %q cannot be read: %w", t, err)
		}
		out = append(out, re.MatchString)
	}
	return out, nil
}

// CacheTree copies a directory of a file server to the cache, including empty directories if withEmpty is set,
// and returns the paths there.
func (c *Client) CacheTree(ctx context.Context, url, saltenv string, withEmpty bool, f Filter) ([]string, error) {
	at, ok := locate(url, saltenv)
	if !ok {
		return nil, errScheme(url)
	}
	dir := strings.TrimSuffix(at.path, "/") + "/"
	chosen, err := f.compile()
	if err != nil {
		return nil, err
	}
	out, err := c.cacheAll(ctx, at.env, func(name string) bool { return strings.HasPrefix(name, dir) && chosen(name) })
	if err != nil || !withEmpty {
		return out, err
	}
	empty, err := c.List(ctx, EmptyDirs, at.env, "")
	if err != nil {
		return out, err
	}
	for _, name := range empty {
		if !strings.HasPrefix(name, dir) || !filepath.IsLocal(name) {
			continue
		}
		to := filepath.Join(c.o.CacheDir, "files", at.env, name)
		if err := os.MkdirAll(to, 0o700); err != nil {
			return out, err
		}
		out = append(out, to)
	}
	return out, nil
}

// CacheMaster copies all files of an environment to the cache.
func (c *Client) CacheMaster(ctx context.Context, saltenv string) ([]string, error) {
	return c.cacheAll(ctx, saltenv, func(string) bool { return true })
}

func (c *Client) cacheAll(ctx context.Context, saltenv string, chosen func(string) bool) ([]string, error) {
	files, err := c.List(ctx, Files, saltenv, "")
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, name := range files {
		if !chosen(name) {
			continue
		}
		p, err := c.GetFile(ctx, scheme+escape(name), "", GetOptions{Saltenv: saltenv, Makedirs: true})
		if salt.KindOf(err) == salt.NotFound {
			continue // removed in the meantime, or a dangling link
		}
		if err != nil {
			return out, err
		}
		out = append(out, p)
	}
	return out, nil
}

// escape marks a listed name that contains a question mark, which would begin a query.
func escape(name string) string {
	if strings.Contains(name, "?") {
		return "|" + name
	}
	return name
}
