package fileserver

import (
	"log/slog"
	"regexp"
	"slices"

	"brine/internal/base/target"
)

// Filter is a whitelist and a blacklist of names. Each entry is a name, a shell pattern or a regular
// expression for the whole name. An empty whitelist accepts all names.
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
		if re, err := target.SearchRegexp(`\A(?:` + t + `)\Z`); err == nil { // otherwise it is only a pattern
			e.re = re
		}
		out = append(out, e)
	}
	return out
}

// Has reports whether the filter accepts a name.
func (f Filter) Has(name string) bool {
	in := func(es []expression) bool {
		return slices.ContainsFunc(es, func(e expression) bool { return e.glob.Match(name) || e.re != nil && e.re.MatchString(name) })
	}
	return (len(f.white) == 0 || in(f.white)) && !in(f.black)
}

// Ignored returns a function that reports whether the options file_ignore_regex and file_ignore_glob exclude
// a file.
func Ignored(o Options, log *slog.Logger) func(path string) bool { return newIgnore(o, log).has }
