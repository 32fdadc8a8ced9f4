package config

import (
	_ "embed"
	"slices"
	"strings"
)

// knownText contains the name of every option that Salt understands, and those of its later
// cluster options, one per line.
//
//go:embed known_options.txt
var knownText string

// knownNames returns Salt's names, sorted.
func knownNames() []string { return strings.Fields(knownText) }

// ofMinions are Salt options that only Brine minions use: a daemon that does not
// declare them warns about them.
const ofMinions = " disable_modules disable_returners whitelist_modules "

func isKnown(name string) bool {
	if strings.HasPrefix(name, "saltgui_") { // SaltGUI reads them by wheel config.values
		return true
	}
	_, ok := slices.BinarySearch(knownNames(), name)
	return ok
}
