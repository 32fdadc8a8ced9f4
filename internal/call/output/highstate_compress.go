package output

import (
	"fmt"
	"strconv"
	"strings"

	"brine/internal/py/value"
)

// compressedPrefix begins the name of a merged result.
const compressedPrefix = "state_compressed_"

// compressedCount parses the number of names from "the ID (3)".
func compressedCount(id string) int {
	i := strings.LastIndexByte(id, '(')
	if i < 0 || !strings.HasSuffix(id, ")") {
		return 1
	}
	n, err := strconv.Atoi(id[i+1 : len(id)-1])
	if err != nil {
		return 1
	}
	return n
}

// compressIDs merges the results of each minion with the same module, ID, SLS and result: earliest
// start, sum of durations, changes by name. A minion whose return contains anything but results is
// left unchanged.
func compressIDs(data *value.Dict) *value.Dict {
	out := value.NewDict(data.Len())
	for host, v := range data.All() {
		out.Set(host, v)
		states, ok := v.(*value.Dict)
		if !ok {
			continue
		}
		if merged, ok := compressStates(states); ok {
			out.Set(host, merged)
		}
	}
	return out
}

func compressStates(states *value.Dict) (*value.Dict, bool) {
	groups := map[string]int{}
	for k, v := range states.All() {
		parts := strings.Split(value.Str(k), stateSep)
		res, ok := v.(*value.Dict)
		if !ok || len(parts) < 4 || !res.Has("__id__") || !res.Has("result") {
			return nil, false
		}
		groups[groupOf(parts, res)]++
	}
	out := value.NewDict(len(groups))
	for k, v := range states.All() {
		parts, res := strings.Split(value.Str(k), stateSep), v.(*value.Dict)
		n := groups[groupOf(parts, res)]
		if n == 1 {
			out.Set(k, v)
			continue
		}
		parts[1] = fmt.Sprintf("%s (%d)", value.Str(res.At("__id__")), n)
		parts[2] = compressedPrefix + strings.Join(idParts(res), "_")
		key := strings.Join(parts, stateSep)
		if first, ok := out.At(key).(*value.Dict); ok {
			mergeState(first, res)
		} else {
			out.Set(key, res.Clone())
		}
	}
	return out, true
}

func groupOf(parts []string, res *value.Dict) string {
	return parts[0] + "\x00" + strings.Join(idParts(res), "\x00")
}

func idParts(res *value.Dict) []string {
	return []string{value.Str(res.At("__sls__")), value.Str(res.At("__id__")), value.Str(res.At("result"))}
}

// mergeState merges a result into the first of its group.
func mergeState(first, res *value.Dict) {
	first.Set("__run_num__", min(first.Int("__run_num__"), res.Int("__run_num__")))
	sum := duration(first.At("duration")) + duration(res.At("duration"))
	first.Set("duration", round(sum, 3))
	first.Set("start_time", min(value.Str(first.At("start_time")), value.Str(res.At("start_time"))))
	if !value.Truth(res.At("changes")) {
		return
	}
	have := first.Dict("changes")
	byName := have.Dict("compressed changes").Clone()
	if byName.Len() == 0 && have.Len() > 0 {
		byName.Set(value.Str(first.At("name")), have)
	}
	byName.Set(value.Str(res.At("name")), res.At("changes"))
	first.Set("changes", value.DictOf("compressed changes", byName))
}
