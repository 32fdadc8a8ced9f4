package record

import (
	"context"
	"fmt"
	"strings"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/remote/rows"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// keysLimits bound the keys of the cluster in the store.
var keysLimits = msgpack.Limits{Items: 1 << 16, Bytes: 8 << 20, Depth: 4}

// Keys returns the keys of the cluster, as for a master that joins; nil if the store has none.
func (s *Store) Keys(ctx context.Context) (*wire.Welcome, error) {
	w, _, err := s.readKeys(ctx)
	return w, err
}

func (s *Store) readKeys(ctx context.Context) (w *wire.Welcome, raw []byte, err error) {
	got, err := s.rows.Get(ctx, keysRow)
	if err != nil || got[keysRow] == nil {
		return nil, nil, err
	}
	raw = got[keysRow]
	_, b, err := s.seal.open(keysRow, raw)
	var d *value.Dict
	if err == nil {
		var v any
		v, err = keysLimits.UnmarshalTyped(b)
		d, _ = v.(*value.Dict)
	}
	if err != nil || d == nil {
		return nil, raw, salt.Errorf(salt.Invalid, "cannot read the keys of the cluster in %s (row %s): %w", s.what(), keysRow, err)
	}
	w = &wire.Welcome{}
	wire.View(d, w)
	return w, raw, nil
}

// SaveKeys replaces the keys of the cluster.
func (s *Store) SaveKeys(ctx context.Context, w *wire.Welcome) error {
	b, err := msgpack.Marshal(wire.Dict(w), msgpack.NewSpec)
	if err != nil {
		return err
	}
	v, err := s.seal.seal(keysRow, 0, b)
	if err != nil {
		return err
	}
	_, raw, err := s.readKeys(ctx)
	if salt.KindOf(err) == salt.Unavailable {
		return err
	}
	ok, err := s.rows.Commit(ctx, []rows.Condition{{Name: keysRow, Value: raw}}, []rows.Change{{Name: keysRow, Value: v}})
	if err == nil && !ok {
		err = salt.Errorf(salt.Unavailable, "another master has just written the keys of the cluster to %s", s.what())
	}
	return err
}

// Claim returns nil if this master may create the keys of the cluster. Only one master ever may.
func (s *Store) Claim(ctx context.Context) error {
	var others []string
	names, err := s.top.Scan(ctx, "", "", 1, false)
	if err != nil {
		return err
	}
	for len(names) > 0 && len(others) == 0 {
		id, _, _ := strings.Cut(names[0].Name, "/")
		if id != s.seal.id {
			others = append(others, id)
			break
		}
		if names, err = s.top.Scan(ctx, "", id+"/\x7e", 1, false); err != nil {
			return err
		}
	}
	if len(others) > 0 {
		return salt.Errorf(salt.Invalid, "%s has the cluster under another secret, and this master has no keys of the cluster: set store_of_record_secret as on "+
			"the other masters, or join one of them (cluster_peers)", s.what())
	}
	v, err := s.seal.seal(claimRow, 0, []byte(s.id))
	if err != nil {
		return err
	}
	if _, err := s.rows.Commit(ctx, []rows.Condition{{Name: claimRow}}, []rows.Change{{Name: claimRow, Value: v}}); err != nil {
		return err
	}
	got, err := s.rows.Get(ctx, claimRow)
	if err != nil {
		return err
	}
	_, by, err := s.seal.open(claimRow, got[claimRow])
	if err != nil {
		return salt.Errorf(salt.Invalid, "cannot read the row %s of %s: %w; delete it", claimRow, s.what(), err)
	}
	if string(by) != s.id {
		return salt.Errorf(salt.Unavailable, "the master %s creates the keys of the cluster and has not stored them in %s yet: start it", printable(by), s.what())
	}
	return nil
}

func printable(id []byte) string { return fmt.Sprintf("%.100q", id) }
