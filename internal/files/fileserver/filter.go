package fileserver

import (
	"log/slog"
	"regexp"
	"slices"

	"brine/internal/base/target"
)

// Filter is a whitelist and a blacklist of names: each entry a name, a pattern
// of a shell or a regular expression for all of a name. An empty whitelist
// lets everything pass.
type Filter struct{ white, black []expression }

type expression struct {
	glob target.Glob
	re   *regexp.Regexp
}

// NewFilter returns the filter of two lists.
func NewFilter(white, black []string) Filter {
	return Filter{expressions(white), expressions(black)}
}

func expressions(texts []string) []expression {
	var out []expression
	for _, t := range texts {
		e := expression{glob: target.ParseGlob(t)}
		if re, err := target.SearchRegexp(`\A(?:` + t + `)\Z`); err == nil { // else it is a pattern only
			e.re = re
		}
		out = append(out, e)
	}
	return out
}

// Has reports whether a name passes.
func (f Filter) Has(name string) bool {
	in := func(es []expression) bool {
		return slices.ContainsFunc(es, func(e expression) bool { return e.glob.Match(name) || e.re != nil && e.re.MatchString(name) })
	}
	return (len(f.white) == 0 || in(f.white)) && !in(f.black)
}

// Ignored returns what tells whether the options file_ignore_regex and
// file_ignore_glob mean a file.
func Ignored(o Options, log *slog.Logger) func(path string) bool { return newIgnore(o, log).has }
