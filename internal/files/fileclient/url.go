package fileclient

import (
	"path/filepath"
	"slices"
	"strings"

	"brine/internal/base/salt"
)

const scheme = "salt://"

// URL returns the salt:// URL of a path.
func URL(path string) string { return scheme + strings.TrimPrefix(path, "/") }

// SplitURL splits a salt:// URL. saltenv is "" if the URL has no environment.
// Other strings are returned unchanged.
func SplitURL(url string) (path, saltenv string, ok bool) {
	rest, ok := strings.CutPrefix(url, scheme)
	if !ok {
		return url, "", false
	}
	if p, _, found := strings.Cut(rest, "?env="); found {
		return p, "", true // an old name, which Salt now ignores
	}
	path, saltenv, _ = strings.Cut(rest, "?saltenv=")
	return path, saltenv, true
}

// location is a file of a file server.
type location struct {
	path string // as sent to the server; it may begin with |
	env  string
}

// locate parses a salt:// URL.
func locate(url, saltenv string) (location, bool) {
	path, env, ok := SplitURL(url)
	if env == "" {
		env = saltenv
	}
	if env == "" {
		env = "base"
	}
	return location{path, env}, ok
}

// file returns the path without the marker of an escaped name.
func (l location) file() string {
	p := strings.TrimLeft(l.path, "|/")
	if !strings.HasPrefix(l.path, "|") {
		p, _, _ = strings.Cut(p, "?")
	}
	return p
}

// check rejects paths outside of the cache directory. No file server has such
// files.
func (l location) check() error {
	if !filepath.IsLocal(l.file()) || !filepath.IsLocal(l.env) {
		return notFound(l.path, l.env)
	}
	return nil
}

// StateNames returns the sorted names of the SLS files among files.
func StateNames(files []string) []string {
	var out []string
	for _, f := range files {
		name, ok := strings.CutSuffix(f, ".sls")
		if !ok {
			continue
		}
		if dir, isInit := strings.CutSuffix(name, "/init"); isInit {
			name = dir
		}
		out = append(out, strings.ReplaceAll(name, "/", "."))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func errScheme(path string) error {
	return salt.Errorf(salt.Invalid, "Unsupported path: %s", path)
}
