package layers

import (
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// arrowDirs are the daemons and the cluster, with the packages below them.
var arrowDirs = []string{"daemons/master", "daemons/minion", "ha/cluster"}

// mostArrows is the maximum number of backward arrows in a package.
const mostArrows = 20

// TestArrowsBetweenFiles counts the backward arrows between the files of a package. An arrow leads
// from a file to another one that declares something it uses. The files are put into the order with
// the fewest backward arrows that a simple search finds; -v lists the arrows.
func TestArrowsBetweenFiles(t *testing.T) {
	counts, seen := map[string]int{}, map[string]int{}
	eachPackage(t, func(files []*ast.File, p *types.Package, info *types.Info) {
		path := strings.TrimPrefix(p.Path(), module)
		for _, dir := range arrowDirs {
			if path == dir || strings.HasPrefix(path, dir+"/") {
				arrows := arrowsOf(files, p, info)
				back := backUp(arrows)
				counts[dir] += len(back)
				seen[dir] += len(arrows)
				for _, a := range back {
					t.Logf("%s: %s uses %s: %s", path, a.from, a.to, strings.Join(arrows[a], ", "))
				}
			}
		}
	})
	for _, dir := range arrowDirs {
		t.Logf("%s: %d of %d arrows run back up", dir, counts[dir], seen[dir])
		if counts[dir] >= mostArrows {
			t.Errorf("%s: %d of %d arrows between files run back up; move declarations until fewer than %d do", dir, counts[dir], seen[dir], mostArrows)
		}
		if seen[dir] < 20 {
			t.Errorf("%s: only %d arrows found", dir, seen[dir])
		}
	}
}

// arrow leads from a file to one that it uses.
type arrow struct{ from, to string }

// arrowsOf returns the arrows of a package, with the names that each file uses.
func arrowsOf(files []*ast.File, p *types.Package, info *types.Info) map[arrow][]string {
	fileOf := map[*token.File]string{}
	for _, f := range files {
		tf := fset.File(f.Pos())
		fileOf[tf] = filepath.Base(tf.Name())
	}
	arrows := map[arrow][]string{}
	for id, o := range info.Uses {
		if o.Pkg() != p || !declaredAtTop(o, p) {
			continue
		}
		from, to := fileOf[fset.File(id.Pos())], fileOf[fset.File(o.Pos())]
		if a := (arrow{from, to}); from != to && !slices.Contains(arrows[a], o.Name()) {
			arrows[a] = append(arrows[a], o.Name())
		}
	}
	for _, names := range arrows {
		slices.Sort(names)
	}
	return arrows
}

// declaredAtTop reports whether an object is declared outside of functions: a name of the
// package, a method or a field.
func declaredAtTop(o types.Object, p *types.Package) bool {
	switch o := o.(type) {
	case *types.Var:
		return o.IsField() || o.Parent() == p.Scope()
	case *types.Func:
		return true
	}
	return o.Parent() == p.Scope()
}

// tries is the number of initial orders of the search.
const tries = 30

// backUp returns the backward arrows in the best order of files that it finds. It starts from
// random orders and moves single files while that helps.
func backUp(arrows map[arrow][]string) (back []arrow) {
	names := map[string]bool{}
	for a := range arrows {
		names[a.from], names[a.to] = true, true
	}
	order := slices.Sorted(maps.Keys(names))
	place := map[string]int{}
	for i, f := range order {
		place[f] = i
	}
	uses := make([][]bool, len(order)) // by position
	for i := range uses {
		uses[i] = make([]bool, len(order))
	}
	for a := range arrows {
		uses[place[a.from]][place[a.to]] = true
	}

	random := rand.New(rand.NewPCG(1, 2)) // the same orders each time
	least, best := len(arrows)+1, []int(nil)
	for range tries {
		perm := random.Perm(len(order))
		if n := improve(perm, uses); n < least {
			least, best = n, perm
		}
	}
	at := map[string]int{}
	for i, f := range best {
		at[order[f]] = i
	}
	for a := range arrows {
		if at[a.from] > at[a.to] {
			back = append(back, a)
		}
	}
	slices.SortFunc(back, func(a, b arrow) int { return strings.Compare(a.from+" "+a.to, b.from+" "+b.to) })
	return back
}

// improve moves single files to the position with the fewest backward arrows, until no move helps.
// It returns the number of backward arrows.
func improve(perm []int, uses [][]bool) (back int) {
	for better := true; better; {
		better = false
		for i := range perm {
			f := perm[i]
			// gain is the decrease of backward arrows when f is at position j.
			gain, most, to := 0, 0, i
			for j := i - 1; j >= 0; j-- {
				gain += one(uses[perm[j]][f], -1) + one(uses[f][perm[j]], 1)
				if gain > most {
					most, to = gain, j
				}
			}
			gain = 0
			for j := i + 1; j < len(perm); j++ {
				gain += one(uses[f][perm[j]], -1) + one(uses[perm[j]][f], 1)
				if gain > most {
					most, to = gain, j
				}
			}
			if most > 0 {
				copy(perm, slices.Insert(slices.Delete(slices.Clone(perm), i, i+1), to, f))
				better = true
			}
		}
	}
	for i, f := range perm {
		for _, before := range perm[:i] {
			back += one(uses[f][before], 1)
		}
	}
	return back
}

// one returns n if set, else 0.
func one(set bool, n int) int {
	if set {
		return n
	}
	return 0
}
