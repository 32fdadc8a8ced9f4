package config

import (
	_ "embed"
	"slices"
	"strings"
)

// knownText has the name of every option that Salt understands, and those of
// its later cluster options; a name a line.
//
//go:embed known_options.txt
var knownText string

// knownNames returns Salt's names, sorted.
func knownNames() []string { return strings.Fields(knownText) }

func isKnown(name string) bool {
	_, ok := slices.BinarySearch(knownNames(), name)
	return ok
}

// nearest returns the name most like word, or "" if none is much like it.
func nearest(word string, names []string) string {
	limit := 1 + len(word)/5
	best, bestDistance := "", limit+1
	for _, n := range names {
		if d := distance(word, n, bestDistance); d < bestDistance {
			best, bestDistance = n, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with
// their neighbour to make b of a; at least limit if there are more.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit || len(a) > 64 || len(b) > 64 {
		return limit
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
