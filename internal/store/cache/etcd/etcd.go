// Package etcd stores the values of the cache in etcd, in the layout of Salt's driver:
// PREFIX/BANK/KEY is the value as msgpack in base64, and PREFIX/BANK/KEY.tstamp the time of writing
// in seconds. Salt's driver only supports version 2 of etcd's API. With version 3 the same values
// are stored under the same keys.
package etcd

import (
	"context"
	"encoding/base64"
	"path"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	client "brine/internal/net/remote/etcd"
	"brine/internal/store/cache"
)

// Driver is the banks below one path.
type Driver struct {
	c              *client.Client
	prefix, suffix string
}

func init() { cache.RegisterDriver("etcd", New) }

// New reads the options etcd.path_prefix, etcd.timestamp_suffix and those of
// the client, etcd.host and so on.
func New(src remote.Source, timeout time.Duration) (cache.Driver, error) {
	s := src.Under("etcd")
	c, err := client.New(s, timeout)
	if err != nil {
		return nil, err
	}
	d := &Driver{c: c, prefix: "/salt_cache", suffix: s.Text("timestamp_suffix", ".tstamp")}
	if p, ok := s("path_prefix").(string); ok {
		if d.prefix = strings.Trim(p, "/"); d.prefix != "" {
			d.prefix = "/" + d.prefix
		}
	}
	return d, nil
}

func (d *Driver) path(bank, key string) string {
	p := d.prefix + "/" + bank
	if key != "" {
		p += "/" + key
	}
	return p
}

// Store writes a value.
func (d *Driver) Store(ctx context.Context, bank, key string, data []byte) error {
	p := d.path(bank, key)
	if err := d.c.Put(ctx, p, base64.StdEncoding.EncodeToString(data), 0); err != nil {
		return err
	}
	return d.c.Put(ctx, p+d.suffix, strconv.FormatInt(time.Now().Unix(), 10), 0)
}

func decode(n client.Node) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(n.Value)
	if err != nil {
		return nil, salt.Errorf(salt.Invalid, "the value of etcd key %s is not base64, remove it: %w", n.Path, err)
	}
	return b, nil
}

// Fetch returns a value, nil if there is none.
func (d *Driver) Fetch(ctx context.Context, bank, key string) ([]byte, error) {
	n, ok, err := d.c.Get(ctx, d.path(bank, key))
	if !ok || err != nil {
		return nil, err
	}
	return decode(n)
}

// Written returns the time at which a value was written.
func (d *Driver) Written(ctx context.Context, bank, key string) (time.Time, error) {
	n, ok, err := d.c.Get(ctx, d.path(bank, key)+d.suffix)
	if !ok || err != nil {
		return time.Time{}, err
	}
	seconds, err := strconv.ParseInt(n.Value, 10, 64)
	if err != nil {
		return time.Time{}, nil // unknown
	}
	return time.Unix(seconds, 0), nil
}

// Each returns the values of one key in several banks. It reads few banks one by one, and many with one read
// of the parent bank.
func (d *Driver) Each(ctx context.Context, banks []string, key string, known []string) ([]cache.Value, error) {
	out := make([]cache.Value, len(banks))
	if len(banks) <= 4 {
		for i, b := range banks {
			n, ok, err := d.c.Get(ctx, d.path(b, key))
			if err != nil {
				return nil, err
			}
			if ok {
				out[i] = take(n, known[i])
			}
		}
		return out, nil
	}
	nodes := map[string]client.Node{}
	seen := map[string]bool{}
	for _, b := range banks {
		above := path.Dir(b)
		if seen[above] {
			continue
		}
		seen[above] = true
		// Version 3 can report revisions without the values.
		tree, err := d.c.Tree(ctx, d.path(above, ""), !d.c.V3())
		if err != nil {
			return nil, err
		}
		for _, n := range tree {
			nodes[n.Path] = n
		}
	}
	for i, b := range banks {
		n, ok := nodes[d.path(b, key)]
		if ok && d.c.V3() && strconv.FormatUint(n.Version, 10) != known[i] {
			var err error
			if n, ok, err = d.c.Get(ctx, n.Path); err != nil {
				return nil, err
			}
		}
		if ok {
			out[i] = take(n, known[i])
		}
	}
	return out, nil
}

func take(n client.Node, known string) cache.Value {
	v := cache.Value{Version: strconv.FormatUint(n.Version, 10)}
	if v.Version == known {
		return v
	}
	var err error
	if v.Data, err = decode(n); err != nil {
		return cache.Value{}
	}
	return v
}

// Flush removes a key, or with key "" a bank and the banks below it.
func (d *Driver) Flush(ctx context.Context, bank, key string) error {
	if key == "" {
		return d.c.Delete(ctx, d.path(bank, ""), true)
	}
	if err := d.c.Delete(ctx, d.path(bank, key)+d.suffix, false); err != nil {
		return err
	}
	return d.c.Delete(ctx, d.path(bank, key), false)
}

// List returns the keys of a bank and the banks directly below it.
func (d *Driver) List(ctx context.Context, bank string) ([]string, error) {
	nodes, err := d.c.Children(ctx, d.path(bank, ""))
	var names []string
	for _, n := range nodes {
		if name := path.Base(n.Path); n.Dir || !strings.HasSuffix(name, d.suffix) {
			names = append(names, name)
		}
	}
	return names, err
}

// Close closes the connections.
func (d *Driver) Close() error { return d.c.Close() }
