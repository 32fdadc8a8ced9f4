package textedit

import (
	"cmp"
	"slices"
)

// Nearest returns the names that are close to a misspelled word: at most one
// letter inserted, omitted, replaced or swapped with its neighbour, and one
// more for every five letters of the word. It returns at most three, the
// closest first.
func Nearest(word string, names []string) []string {
	type near struct {
		name  string
		slips int
	}
	most := 1 + len(word)/5
	var found []near
	for _, n := range names {
		if d := slips(word, n, most+1); d <= most {
			found = append(found, near{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.slips, b.slips), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, n := range found[:min(len(found), 3)] {
		out = append(out, n.name)
	}
	return out
}

// slips returns the number of letters to insert, delete, replace or swap with
// their neighbour to turn a into b; at least limit if there are more.
func slips(a, b string, limit int) int {
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
