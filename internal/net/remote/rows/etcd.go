package rows

import (
	"context"
	"strings"
	"time"

	"brine/internal/net/remote"
	"brine/internal/net/remote/etcd"
)

// etcdRows are the rows in etcd: each is a key below one path.
type etcdRows struct {
	c     *etcd.Client
	under string
}

// openEtcd reads the options of the cache driver etcd. It uses version 3 of the interface, whatever
// etcd.require_v2 is, since only that has transactions.
func openEtcd(src remote.Source, under string, timeout time.Duration) (Store, error) {
	s := src.Under("etcd")
	c, err := etcd.New(func(name string) any {
		if name == "require_v2" {
			return false
		}
		return s(name)
	}, timeout)
	if err != nil {
		return nil, err
	}
	return &etcdRows{c, under}, nil
}

func (e *etcdRows) Get(ctx context.Context, names ...string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range names {
		n, ok, err := e.c.Get(ctx, e.under+name)
		if err != nil {
			return nil, err
		}
		if ok {
			out[name] = []byte(n.Value)
		}
	}
	return out, nil
}

func (e *etcdRows) Scan(ctx context.Context, prefix, after string, limit int, values bool) ([]Row, error) {
	if after != "" {
		after = e.under + after
	}
	nodes, err := e.c.Scan(ctx, e.under+prefix, after, limit, values)
	if err != nil {
		return nil, err
	}
	out := make([]Row, len(nodes))
	for i, n := range nodes {
		out[i] = Row{strings.TrimPrefix(n.Path, e.under), []byte(n.Value)}
	}
	return out, nil
}

func (e *etcdRows) Commit(ctx context.Context, conditions []Condition, changes []Change) (bool, error) {
	cs := make([]etcd.Condition, len(conditions))
	for i, c := range conditions {
		cs[i] = etcd.Condition{Path: e.under + c.Name, Value: c.Value, Absent: c.Value == nil}
	}
	xs := make([]etcd.Change, len(changes))
	for i, x := range changes {
		xs[i] = etcd.Change{Path: e.under + x.Name, Value: x.Value, Delete: x.Value == nil}
	}
	return e.c.Commit(ctx, cs, xs)
}

func (e *etcdRows) String() string { return "etcd" }

func (e *etcdRows) Close() error { return e.c.Close() }
