package run

import (
	"strings"

	"brine/internal/base/target"
)

// means reports whether a word of the user means a function: all functions do
// without a word.
func means(word, name string) bool {
	if strings.Contains(word, "*") {
		return target.ParseGlob(word).Match(name)
	}
	return word == "" || name == word || strings.HasPrefix(name, strings.TrimSuffix(word, ".")+".")
}
