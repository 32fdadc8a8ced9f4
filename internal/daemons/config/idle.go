package config

import (
	"slices"
	"strings"

	"brine/internal/base/trace"
)

// warnIdle warns that those of some options which are set have no effect without another one.
func (t *Tree) warnIdle(without string, names ...string) {
	for _, name := range names {
		if t.Values.At(name) != nil {
			t.warn(name, "option has no effect without "+without)
		}
	}
}

// setWithPrefix returns the names of the set options that begin with prefix, sorted.
func (t *Tree) setWithPrefix(prefix string) (names []string) {
	for k, v := range t.Values.All() {
		if name, ok := k.(string); ok && v != nil && strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// warnIdleTraces warns about options of traces that are off.
func (t *Tree) warnIdleTraces(o *trace.Options) {
	if o.Endpoint == "" {
		t.warnIdle("trace_endpoint", "trace_ratio")
	}
}

// warnIdlePython warns about options of helpers that are off.
func (t *Tree) warnIdlePython(helper bool) {
	if !helper {
		t.warnIdle("python_helper: True", strings.Fields("python python_helpers python_helper_idle python_helper_memory python_call_timeout engines")...)
	}
}
