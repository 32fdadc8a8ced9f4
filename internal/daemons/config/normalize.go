package config

import (
	"fmt"
	"strings"

	"brine/internal/base/field"
	"brine/internal/py/value"
)

// normalize changes raw values as Salt does, before other stages read them.
func (t *Tree) normalize() []error {
	for _, key := range []string{"open_mode", "auto_accept"} {
		v, ok := t.Values.Get(key)
		if _, is := v.(bool); ok && !is && v != nil {
			t.warn(key, "option permits access only if it is True; treating this value as False", "value", field.Describe(v))
			t.Values.Set(key, false)
		}
	}
	if h, ok := t.Values.At("hash_type").(string); ok {
		t.Values.Set("hash_type", strings.ToLower(h))
	}
	if old := t.Values.At("environment"); old != nil {
		if t.Values.At("saltenv") == nil {
			t.warn("environment", "option has been renamed to saltenv; using its value")
			t.Values.Set("saltenv", old)
			t.origins["saltenv"] = t.origins["environment"]
		} else {
			t.warn("environment", "option has no effect: it is a former name of saltenv, which is set")
		}
	}
	if t.Kind == MinionKind {
		return t.firstOfLists()
	}
	return nil
}

// firstOfLists reduces options that may have a value per master to the first one: all masters
// share one event bus. The lists must still be valid: an invalid one means that the user
// intended something else.
func (t *Tree) firstOfLists() []error {
	masters := 1
	if l, ok := t.Values.At("master").(*value.List); ok {
		masters = l.Len()
	}
	var faults []error
	used := map[string]string{}
	for _, key := range []string{"ipc_mode", "tcp_pub_port", "tcp_pull_port"} {
		l, ok := t.Values.At(key).(*value.List)
		if !ok {
			continue
		}
		if l.Len() != masters || masters == 0 {
			faults = append(faults, t.faultf(key, "expected one value or a list with one for each of %d masters, got a list of %d", masters, l.Len()))
			continue
		}
		if key != "ipc_mode" {
			faults = append(faults, t.overlap(key, l, used)...)
		}
		t.Values.Set(key, l.Items[0])
	}
	return faults
}

func (t *Tree) overlap(key string, ports *value.List, used map[string]string) []error {
	var faults []error
	for i, p := range ports.Items {
		name, here := value.Str(p), fmt.Sprintf("%s, entry %d", key, i+1)
		if n, ok := p.(int64); !ok || n < 1 || n > 65535 {
			faults = append(faults, t.faultf(key, "[%d]: expected a port from 1 to 65535, got %s", i, field.Describe(p)))
		} else if other, ok := used[name]; ok {
			faults = append(faults, t.faultf(key, "[%d]: port %s is used twice: also in %s", i, name, other))
		}
		used[name] = here
	}
	return faults
}
