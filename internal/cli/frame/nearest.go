package frame

import (
	"slices"
	"strings"
)

// Nearest returns the names that differ from name by no more than a slip of
// the finger or two, the closest first, at most three.
func Nearest(name string, names []string) []string {
	type scored struct {
		name string
		dist int
	}
	limit := 2
	if len(name) < 4 {
		limit = 1
	}
	var near []scored
	for _, n := range names {
		if d := distance(name, n); d <= limit {
			near = append(near, scored{n, d})
		}
	}
	slices.SortFunc(near, func(a, b scored) int {
		if a.dist != b.dist {
			return a.dist - b.dist
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, s := range near[:min(len(near), 3)] {
		out = append(out, s.name)
	}
	return out
}

// distance is the number of letters to insert, delete, replace or swap.
func distance(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return 64
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
