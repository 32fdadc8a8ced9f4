package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"brine/internal/py/value"
	"brine/internal/sls/state/engine"
)

// TestCircles runs chunks with all kinds of requisites between any two,
// including themselves and circles. Each run must end, and each chunk must have
// exactly one result.
func TestCircles(t *testing.T) {
	e := engine.New(deps(t), engine.Options{})
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 1))
		chunks := tangle(r)
		results := e.Run(t.Context(), chunks)
		for _, low := range chunks {
			tag := fmt.Sprintf("test_|-%s_|-%s_|-%s", low.At("__id__"), low.At("name"), low.At("fun"))
			if !results.Dict(tag).Has("result") {
				t.Fatalf("seed %d: %s has no result: %s", seed, tag, value.Repr(results))
			}
		}
		var nums []int64
		for _, k := range results.Keys() {
			if !strings.HasPrefix(value.Str(k), "Listen_Error") {
				nums = append(nums, results.Dict(value.Str(k)).Int("__run_num__"))
			}
		}
		slices.Sort(nums)
		if len(slices.Compact(nums)) != len(nums) {
			t.Fatalf("seed %d: a number twice: %v", seed, nums)
		}
	}
}

// tangle creates up to eight chunks that require each other.
func tangle(r *rand.Rand) []*value.Dict {
	kinds := []string{"require", "require_any", "watch", "watch_any", "prereq", "prerequired", "onfail", "onfail_any", "onfail_all", "onchanges",
		"onchanges_any", "listen"}
	funs := []string{"succeed_with_changes", "succeed_without_changes", "fail_with_changes", "fail_without_changes", "nop"}
	n := 1 + r.IntN(8)
	var chunks []*value.Dict
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		low := value.DictOf("state", "test", "fun", funs[r.IntN(len(funs))], "name", id, "__id__", id, "__sls__", "a", "__env__", "base", "order",
			int64(10000+i))
		for range r.IntN(4) {
			req := value.DictOf("test", fmt.Sprintf("s%d", r.IntN(n)))
			switch r.IntN(12) {
			case 0:
				req = value.DictOf("sls", "a")
			case 1:
				req = value.DictOf("test", "s*")
			}
			kind := kinds[r.IntN(len(kinds))]
			low.Set(kind, &value.List{Items: append(slices.Clone(low.List(kind)), req)})
		}
		chunks = append(chunks, low)
	}
	return chunks
}
