package etcd

import (
	"context"
	"strconv"

	"brine/internal/base/salt"
)

// Condition is a condition of a transaction: the value at a path is Value, or nothing is there if
// Absent is set.
type Condition struct {
	Path   string
	Value  []byte
	Absent bool
}

// Change is a change of a transaction: Value is written to the path. If Delete is set, the value at
// the path is removed.
type Change struct {
	Path   string
	Value  []byte
	Delete bool
}

// Commit makes all changes at once if all conditions hold, and reports whether they did. It needs
// version 3.
func (c *Client) Commit(ctx context.Context, conditions []Condition, changes []Change) (bool, error) {
	if !c.v3 {
		return false, salt.Errorf(salt.Invalid, "etcd: transactions need version 3 of its interface")
	}
	compare := make([]map[string]any, len(conditions))
	for i, x := range conditions {
		if x.Absent {
			compare[i] = map[string]any{"key": b64(x.Path), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
		} else {
			compare[i] = map[string]any{"key": b64(x.Path), "target": "VALUE", "result": "EQUAL", "value": x.Value}
		}
	}
	success := make([]map[string]any, len(changes))
	for i, x := range changes {
		if x.Delete {
			success[i] = map[string]any{"request_delete_range": map[string]any{"key": b64(x.Path)}}
		} else {
			success[i] = map[string]any{"request_put": map[string]any{"key": b64(x.Path), "value": x.Value}}
		}
	}
	var answer struct {
		Succeeded bool `json:"succeeded"`
	}
	err := c.callV3(ctx, "/v3/kv/txn", map[string]any{"compare": compare, "success": success}, &answer)
	return answer.Succeeded, err
}

// Scan returns up to limit values whose path begins with prefix and sorts after a path, in order;
// without values only their paths. It needs version 3.
func (c *Client) Scan(ctx context.Context, prefix, after string, limit int, values bool) ([]Node, error) {
	from := prefix
	if after != "" {
		from = after + "\x00"
	}
	return c.rangeV3(ctx, map[string]any{"key": b64(from), "range_end": b64(endOf(prefix)), "limit": strconv.Itoa(limit), "keys_only": !values,
		"sort_order": "ASCEND", "sort_target": "KEY"})
}

// endOf returns the first path that sorts after all paths with a prefix.
func endOf(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}
