package host

import "strings"

// Operands returns words for the end of a command line, after its options. If a program could take
// one of them for an option, "--" comes first.
func Operands(words ...string) []string {
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			return append([]string{"--"}, words...)
		}
	}
	return words
}

// NoOption returns an error if a program that has no "--" could take one of words for an option.
func NoOption(program string, words ...string) error {
	for _, w := range words {
		if strings.HasPrefix(w, "-") {
			return Invalidf("%q is no argument for %s, which would take it for an option: it must not begin with a hyphen", w, program)
		}
	}
	return nil
}
