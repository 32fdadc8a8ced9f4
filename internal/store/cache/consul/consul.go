// Package consul stores the values of the cache in consul, in the layout of Salt's driver: BANK/KEY
// is the value, and BANK/KEY.tstamp the time of writing in seconds, both as msgpack.
package consul

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"brine/internal/net/remote"
	client "brine/internal/net/remote/consul"
	"brine/internal/py/msgpack"
	"brine/internal/store/cache"
)

// Driver is the banks in one store.
type Driver struct {
	c      *client.Client
	suffix string
}

func init() { cache.RegisterDriver("consul", New) }

// New reads the option consul.timestamp_suffix and those of the client,
// consul.host and so on.
func New(src remote.Source, timeout time.Duration) (cache.Driver, error) {
	s := src.Under("consul")
	c, err := client.New(s, timeout)
	if err != nil {
		return nil, err
	}
	return &Driver{c, s.Text("timestamp_suffix", ".tstamp")}, nil
}

// Store writes a value.
func (d *Driver) Store(ctx context.Context, bank, key string, data []byte) error {
	stamp, err := msgpack.Marshal(time.Now().Unix(), msgpack.NewSpec)
	if err != nil {
		return err
	}
	if err := d.c.Put(ctx, bank+"/"+key, data); err != nil {
		return err
	}
	return d.c.Put(ctx, bank+"/"+key+d.suffix, stamp)
}

// Fetch returns a value, nil if there is none.
func (d *Driver) Fetch(ctx context.Context, bank, key string) ([]byte, error) {
	e, err := d.c.Get(ctx, bank+"/"+key, false)
	if len(e) == 0 || err != nil {
		return nil, err
	}
	return e[0].Value, nil
}

// Written returns the time at which a value was written.
func (d *Driver) Written(ctx context.Context, bank, key string) (time.Time, error) {
	e, err := d.c.Get(ctx, bank+"/"+key+d.suffix, false)
	if len(e) == 0 || err != nil {
		return time.Time{}, err
	}
	return cache.ReadStamp(e[0].Value), nil
}

// Each returns the values of one key in several banks. It reads few banks one by one, and many with one read
// of the parent bank.
func (d *Driver) Each(ctx context.Context, banks []string, key string, known []string) ([]cache.Value, error) {
	found := map[string]client.Entry{}
	seen := map[string]bool{}
	for _, b := range banks {
		prefix, all := b+"/"+key, false
		if len(banks) > 4 {
			prefix, all = path.Dir(b)+"/", true
		}
		if seen[prefix] {
			continue
		}
		seen[prefix] = true
		entries, err := d.c.Get(ctx, prefix, all)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			found[e.Key] = e
		}
	}
	out := make([]cache.Value, len(banks))
	for i, b := range banks {
		e, ok := found[b+"/"+key]
		if !ok {
			continue
		}
		out[i].Version = strconv.FormatUint(e.Version, 10)
		if out[i].Version != known[i] {
			out[i].Data = e.Value
		}
	}
	return out, nil
}

// Flush removes a key, or with key "" a bank and the banks below it.
func (d *Driver) Flush(ctx context.Context, bank, key string) error {
	if key == "" {
		return d.c.Delete(ctx, bank+"/", true)
	}
	if err := d.c.Delete(ctx, bank+"/"+key+d.suffix, false); err != nil {
		return err
	}
	return d.c.Delete(ctx, bank+"/"+key, false)
}

// List returns the keys of a bank and the banks directly below it.
func (d *Driver) List(ctx context.Context, bank string) ([]string, error) {
	keys, err := d.c.Keys(ctx, bank+"/", "/")
	var names []string
	for _, k := range keys {
		name, dir := strings.CutSuffix(strings.TrimPrefix(k, bank+"/"), "/")
		if dir || !strings.HasSuffix(name, d.suffix) {
			names = append(names, name)
		}
	}
	return names, err
}

// Close closes the connections.
func (d *Driver) Close() error { return d.c.Close() }
