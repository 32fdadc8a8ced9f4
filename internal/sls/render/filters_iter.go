package render

import (
	"slices"

	"brine/internal/py/jinja"
	"brine/internal/py/value"
)

// The filters from Python's itertools: each yields tuples, once.

func iterFilters() []*jinja.Func {
	return []*jinja.Func{
		filter("zip(*iterables)", func(c *jinja.Call) (any, error) { return zip(c, c.Bound[0].(value.Tuple), nil, false), nil }),
		filter("zip_longest(*iterables, **options)", func(c *jinja.Call) (any, error) {
			return zip(c, c.Bound[0].(value.Tuple), c.Bound[1].(*value.Dict).At("fillvalue"), true), nil
		}),
		filter("compress(data, selectors)", func(c *jinja.Call) (any, error) {
			data, sel, i := jinja.Items(c.Bound[0]), jinja.Items(c.Bound[1]), 0
			return jinja.NewIterator("itertools.compress", func() (any, bool) {
				for ; i < len(data) && i < len(sel); i++ {
					if jinja.Truth(sel[i]) {
						i++
						return data[i-1], true
					}
				}
				return nil, false
			}), nil
		}),
		filter("product(*iterables, **options)", func(c *jinja.Call) (any, error) {
			var pools [][]any
			repeat, _ := c.Bound[1].(*value.Dict).Get("repeat")
			n, ok := repeat.(int64)
			if !ok {
				n = 1
			}
			for range min(max(n, 0), 64) {
				for _, v := range c.Bound[0].(value.Tuple) {
					pools = append(pools, slices.Clone(jinja.Items(v)))
				}
			}
			return product(c, pools), nil
		}),
		filter("combinations(iterable, r)", func(c *jinja.Call) (any, error) {
			return picks(c, "itertools.combinations", jinja.Items(c.Bound[0]), c.Int(1), func(idx []int) bool {
				for i := 1; i < len(idx); i++ {
					if idx[i] <= idx[i-1] {
						return false
					}
				}
				return true
			}, true)
		}),
		filter("combinations_with_replacement(iterable, r)", func(c *jinja.Call) (any, error) {
			return picks(c, "itertools.combinations_with_replacement", jinja.Items(c.Bound[0]), c.Int(1), slices.IsSorted[[]int], false)
		}),
		filter("permutations(iterable, r=None)", func(c *jinja.Call) (any, error) {
			all := jinja.Items(c.Bound[0])
			r := len(all)
			if c.Bound[1] != nil {
				r = c.Int(1)
			}
			return picks(c, "itertools.permutations", all, r, func(idx []int) bool {
				s := slices.Sorted(slices.Values(idx))
				return len(slices.Compact(s)) == len(idx)
			}, true)
		}),
	}
}

func zip(c *jinja.Call, seqs value.Tuple, fill any, longest bool) any {
	iters := make([]jinja.Iter, len(seqs))
	for i, s := range seqs {
		iters[i] = jinja.Iterate(s)
	}
	name := "zip"
	if longest {
		name = "itertools.zip_longest"
	}
	return jinja.NewIterator(name, func() (any, bool) {
		c.Tick()
		c.Spend(24 + 16*len(iters))
		t := make(value.Tuple, len(iters))
		some := false
		for i, next := range iters {
			v, ok := next()
			if !ok {
				if !longest {
					return nil, false
				}
				v = fill
			}
			some = some || ok
			t[i] = v
		}
		return t, some
	})
}

// product yields one tuple for each combination of items, one per pool; the
// last pool changes fastest.
func product(c *jinja.Call, pools [][]any) any {
	idx := make([]int, len(pools))
	done := false
	for _, p := range pools {
		done = done || len(p) == 0
	}
	return jinja.NewIterator("itertools.product", func() (any, bool) {
		if done {
			return nil, false
		}
		c.Tick()
		c.Spend(24 + 16*len(pools))
		t := make(value.Tuple, len(pools))
		for i, p := range pools {
			t[i] = p[idx[i]]
		}
		done = true
		for i := len(pools) - 1; i >= 0; i-- {
			if idx[i]++; idx[i] < len(pools[i]) {
				done = false
				break
			}
			idx[i] = 0
		}
		return t, true
	})
}

// picks yields the tuples of r items whose indexes ok accepts, in the order of
// the indexes. It skips prefixes that ok rejects.
func picks(c *jinja.Call, name string, all []any, r int, ok func(idx []int) bool, distinct bool) (any, error) {
	if r < 0 {
		return nil, invalid("r must be non-negative")
	}
	if r > 64 {
		return nil, invalid("r must not be more than 64")
	}
	all = slices.Clone(all)
	var idx []int
	done := distinct && r > len(all) || r > 0 && len(all) == 0
	// advance moves to the next index of the current length, backwards if
	// there is none.
	advance := func() bool {
		for len(idx) > 0 {
			if idx[len(idx)-1]++; idx[len(idx)-1] < len(all) {
				return true
			}
			idx = idx[:len(idx)-1]
		}
		return false
	}
	return jinja.NewIterator(name, func() (any, bool) {
		for !done {
			c.Tick()
			switch {
			case !ok(idx):
				done = !advance()
			case len(idx) < r:
				idx = append(idx, 0)
			default:
				t := make(value.Tuple, r)
				for i, j := range idx {
					t[i] = all[j]
				}
				done = !advance()
				return t, true
			}
		}
		return nil, false
	}), nil
}
