package fileserver

import (
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"brine/internal/base/target"
	"brine/internal/py/value"
)

// Options are the options of Salt's file server, for a master and for a minion with file_client: local.
type Options struct {
	FileRoots      any           `salt:"file_roots" default:"null" doc:"directories of files by environment; __env__ stands for any other environment, also in a directory's name" change:"live"`
	Backends       []string      `salt:"fileserver_backend" default:"[roots]" doc:"backends in the order of precedence: roots (the directories of file_roots), gitfs or git, minionfs or minion, s3fs, a module of your own" change:"live" list:"comma"`
	FollowSymlinks bool          `salt:"fileserver_followsymlinks" default:"true" doc:"follow symbolic links in file_roots, wherever they lead" change:"live"`
	IgnoreSymlinks bool          `salt:"fileserver_ignoresymlinks" default:"false" doc:"omit symbolic links from lists of files" change:"live"`
	IgnoreRegex    any           `salt:"file_ignore_regex" default:"[]" doc:"regular expressions for files that are not served" change:"live"`
	IgnoreGlob     any           `salt:"file_ignore_glob" default:"[]" doc:"patterns for files that are not served" change:"live"`
	Events         bool          `salt:"fileserver_events" default:"false" doc:"fire an event when files have changed" change:"live"`
	Interval       time.Duration `salt:"fileserver_interval" default:"3600" doc:"seconds between checks for changed files" change:"live"`
}

// UsualRoots returns Salt's default of file_roots, which a tag cannot express.
func UsualRoots() *value.Dict {
	return value.DictOf("base", value.ListOf("/srv/salt", "/srv/spm/salt"))
}

// Root is an environment with its directories.
type Root struct {
	Env  string
	Dirs []string
}

// Roots reads an option such as file_roots or pillar_roots: a map of environments to lists of directories,
// which may be patterns. Anything but a map means base with the usual directory, as in Salt.
func Roots(v any, usual string) []Root {
	d, ok := v.(*value.Dict)
	if !ok {
		return []Root{{"base", []string{usual}}}
	}
	out := make([]Root, 0, d.Len())
	for k, dirs := range d.All() {
		r := Root{Env: value.Str(k)}
		if _, one := dirs.(string); !one { // a string is not a list: no directories, as in Salt
			for _, dir := range value.Texts(dirs) {
				r.Dirs = append(r.Dirs, expand(dir)...)
			}
		}
		out = append(out, r)
	}
	return out
}

func expand(dir string) []string {
	if strings.ContainsAny(dir, "*?[") {
		if found, err := filepath.Glob(dir); err == nil {
			return found
		}
	}
	return []string{dir}
}

// dirsOf returns the directories of an environment, those of __env__ if it has none. ok is false for an
// unknown environment.
func dirsOf(roots []Root, env string) (dirs []string, ok bool) {
	for _, name := range []string{env, "__env__"} {
		for _, r := range roots {
			if r.Env != name {
				continue
			}
			dirs = slices.Clone(r.Dirs)
			if name == "__env__" {
				for i := range dirs {
					dirs[i] = strings.ReplaceAll(dirs[i], "__env__", env)
				}
			}
			return dirs, true
		}
	}
	return nil, false
}

// ignore excludes files that are not served.
type ignore struct {
	res   []*regexp.Regexp
	globs []target.Glob
}

func newIgnore(o Options, log *slog.Logger) *ignore {
	ig := &ignore{}
	for _, t := range value.Texts(o.IgnoreRegex) {
		re, err := target.SearchRegexp(t)
		if err != nil {
			log.Warn("ignoring invalid pattern of file_ignore_regex", "err", err)
			continue
		}
		ig.res = append(ig.res, re)
	}
	for _, t := range value.Texts(o.IgnoreGlob) {
		ig.globs = append(ig.globs, target.ParseGlob(t))
	}
	return ig
}

func (ig *ignore) has(path string) bool {
	return slices.ContainsFunc(ig.res, func(re *regexp.Regexp) bool { return re.MatchString(path) }) ||
		slices.ContainsFunc(ig.globs, func(g target.Glob) bool { return g.Match(path) })
}
