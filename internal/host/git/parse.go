package git

import (
	"regexp"
	"strings"
	"sync"

	"brine/internal/py/value"
)

// Refs parses lines of a hash and a name, as printed by ls-remote, to a map of
// names to hashes.
func Refs(text string) *value.Dict {
	out := value.NewDict(0)
	for line := range strings.SplitSeq(text, "\n") {
		if f := strings.Fields(line); len(f) == 2 {
			out.Set(f[1], f[0])
		}
	}
	return out
}

// Remotes parses the output of remote --verbose: names to maps of "fetch" and
// "push" to URLs, which may contain passwords.
func Remotes(text string) *value.Dict {
	out := value.NewDict(0)
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		action := strings.ToLower(strings.Trim(f[2], "()"))
		if action != "fetch" && action != "push" {
			continue
		}
		if !out.Has(f[0]) {
			out.Set(f[0], value.NewDict(2))
		}
		out.Dict(f[0]).Set(action, f[1])
	}
	return out
}

var updated = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[\s*+-]*(?:([0-9a-f]+)\.\.+([0-9a-f]+)|\[(?:new (tag|branch)|tag update)\])\s+(.+?)\s*->`)
})

// Fetched parses the stderr of fetch: lists of references under "new tags",
// "new branches" and "updated tags", and under "updated branches" names to
// "old" and "new".
func Fetched(text string) *value.Dict {
	out := value.NewDict(0)
	add := func(key, ref string) {
		if !out.Has(key) {
			out.Set(key, &value.List{})
		}
		out.At(key).(*value.List).Append(ref)
	}
	for line := range strings.SplitSeq(text, "\n") {
		m := updated().FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[3] == "tag":
			add("new tags", m[4])
		case m[3] == "branch":
			add("new branches", m[4])
		case m[1] == "":
			add("updated tags", m[4])
		default:
			if !out.Has("updated branches") {
				out.Set("updated branches", value.NewDict(1))
			}
			out.Dict("updated branches").Set(m[4], value.DictOf("old", m[1], "new", m[2]))
		}
	}
	return out
}
