package run

import (
	"strings"

	"brine/internal/base/target"
)

// means reports whether the user's argument selects a function; without an
// argument all functions are selected.
func means(word, name string) bool {
	if strings.Contains(word, "*") {
		return target.ParseGlob(word).Match(name)
	}
	return word == "" || name == word || strings.HasPrefix(name, strings.TrimSuffix(word, ".")+".")
}
