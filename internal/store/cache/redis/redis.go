// Package redis stores the values of the cache in a redis server, in the layout of Salt's driver.
// With the default prefixes:
//
//	$KEY_BANK/KEY            the value as msgpack
//	$TSTAMP_{'BANK'}/{'KEY'} the time of writing in seconds, as msgpack
//	$BANKEYS_BANK            the set of the keys of a bank
//	$BANK_BANK               a set with a dot, for each parent bank
package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/cache"
)

// Driver is the banks in one database.
type Driver struct {
	c                                goredis.UniversalClient
	bank, bankKeys, key, stamp, sepa string
}

func init() { cache.RegisterDriver("redis", New) }

// New reads the options cache.redis.host, port, unix_socket_path, db, password, cluster_mode,
// cluster.startup_nodes, bank_prefix, bank_keys_prefix, key_prefix, timestamp_prefix, separator, and further
// ones of remote.Redis.
func New(src remote.Source, timeout time.Duration) (cache.Driver, error) {
	s := src.Under("cache.redis")
	c, err := remote.Redis(s, "localhost", timeout)
	if err != nil {
		return nil, err
	}
	return &Driver{
		c: c, bank: s.Text("bank_prefix", "$BANK"), bankKeys: s.Text("bank_keys_prefix", "$BANKEYS"), key: s.Text("key_prefix", "$KEY"),
		stamp: s.Text("timestamp_prefix", "$TSTAMP"), sepa: s.Text("separator", "_"),
	}, nil
}

func (d *Driver) keyName(bank, key string) string { return d.key + d.sepa + bank + "/" + key }

// stampName is the name that Salt writes: its driver formats one-element Python sets instead of the
// names.
func (d *Driver) stampName(bank, key string) string {
	return d.stamp + d.sepa + "{" + value.Repr(bank) + "}/{" + value.Repr(key) + "}"
}

func (d *Driver) bankName(bank string) string     { return d.bank + d.sepa + bank }
func (d *Driver) bankKeysName(bank string) string { return d.bankKeys + d.sepa + bank }

func failed(err error) error {
	if e, ok := errors.AsType[goredis.Error](err); ok {
		text := e.Error()
		for _, p := range []string{"LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOAUTH", "WRONGPASS", "NOPERM", "MISCONF", "OOM", "TRYAGAIN", "BUSY"} {
			if strings.HasPrefix(text, p) {
				return salt.Errorf(salt.Unavailable, "the redis server: %w", err)
			}
		}
		return salt.Errorf(salt.Invalid, "the redis server refuses: %w", err)
	}
	return remote.Failed("the redis server", err)
}

// Store writes a value.
func (d *Driver) Store(ctx context.Context, bank, key string, data []byte) error {
	stamp, err := msgpack.Marshal(time.Now().Unix(), msgpack.NewSpec)
	if err != nil {
		return err
	}
	_, err = d.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		path := ""
		for word := range strings.SplitSeq(bank, "/") {
			path = strings.TrimPrefix(path+"/"+word, "/")
			p.SAdd(ctx, d.bankName(path), ".")
		}
		p.Set(ctx, d.keyName(bank, key), data, 0)
		p.SAdd(ctx, d.bankKeysName(bank), key)
		p.Set(ctx, d.stampName(bank, key), stamp, 0)
		return nil
	})
	return failed(err)
}

// Fetch returns a value, nil if there is none.
func (d *Driver) Fetch(ctx context.Context, bank, key string) ([]byte, error) {
	b, err := d.c.Get(ctx, d.keyName(bank, key)).Bytes()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	return b, failed(err)
}

// Written returns the time at which a value was written.
func (d *Driver) Written(ctx context.Context, bank, key string) (time.Time, error) {
	b, err := d.c.Get(ctx, d.stampName(bank, key)).Bytes()
	if errors.Is(err, goredis.Nil) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, failed(err)
	}
	return cache.ReadStamp(b), nil
}

// Each returns the values of one key in several banks.
func (d *Driver) Each(ctx context.Context, banks []string, key string, known []string) ([]cache.Value, error) {
	stamps, sizes := make([]*goredis.StringCmd, len(banks)), make([]*goredis.IntCmd, len(banks))
	_, err := d.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, b := range banks {
			stamps[i], sizes[i] = p.Get(ctx, d.stampName(b, key)), p.StrLen(ctx, d.keyName(b, key))
		}
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return nil, failed(err)
	}
	out := make([]cache.Value, len(banks))
	values := map[int]*goredis.StringCmd{}
	_, err = d.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, b := range banks {
			if sizes[i].Val() == 0 {
				continue
			}
			out[i].Version = version(stamps[i], sizes[i].Val())
			if out[i].Version == "" || out[i].Version != known[i] {
				values[i] = p.Get(ctx, d.keyName(b, key))
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return nil, failed(err)
	}
	for i, v := range values {
		if out[i].Data, err = v.Bytes(); err != nil {
			out[i] = cache.Value{}
		}
	}
	return out, nil
}

// settled is the number of seconds for which a time of writing cannot serve as a version: another master,
// whose clock may differ, may write again with the same time.
const settled = 3

// version is the time of writing with the size, "" if the time is too recent.
func version(stamp *goredis.StringCmd, size int64) string {
	b, err := stamp.Bytes()
	if err != nil {
		return ""
	}
	v, err := msgpack.UnmarshalTyped(b)
	n, ok := v.(int64)
	if err != nil || !ok || time.Now().Unix() < n+settled {
		return ""
	}
	return strconv.FormatInt(n, 10) + ":" + strconv.FormatInt(size, 10)
}

// Flush removes a key, or with key "" a bank and the banks below it.
func (d *Driver) Flush(ctx context.Context, bank, key string) error {
	if key != "" {
		_, err := d.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
			p.Del(ctx, d.keyName(bank, key))
			p.Del(ctx, d.stampName(bank, key))
			p.SRem(ctx, d.bankKeysName(bank), key)
			return nil
		})
		return failed(err)
	}
	below, err := d.below(ctx, bank)
	if err != nil {
		return err
	}
	for _, b := range append(below, bank) {
		keys, err := d.c.SMembers(ctx, d.bankKeysName(b)).Result()
		if err != nil {
			return failed(err)
		}
		_, err = d.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
			for _, k := range keys {
				p.Del(ctx, d.keyName(b, k))
				p.Del(ctx, d.stampName(b, k))
			}
			p.Del(ctx, d.bankKeysName(b))
			p.Del(ctx, d.bankName(b))
			return nil
		})
		if err != nil {
			return failed(err)
		}
	}
	return nil
}

// below returns all banks below one. Salt's layout has no index of them.
func (d *Driver) below(ctx context.Context, bank string) ([]string, error) {
	prefix := d.bankName(bank) + "/"
	quoted := strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(prefix)
	keys, err := remote.RedisKeys(ctx, d.c, quoted+"*")
	for i, k := range keys {
		keys[i] = bank + "/" + strings.TrimPrefix(k, prefix)
	}
	return keys, failed(err)
}

// List returns the keys of a bank and the banks directly below it.
func (d *Driver) List(ctx context.Context, bank string) ([]string, error) {
	names, err := d.c.SMembers(ctx, d.bankKeysName(bank)).Result()
	if err != nil {
		return nil, failed(err)
	}
	below, err := d.below(ctx, bank)
	for _, b := range below {
		word, _, _ := strings.Cut(b[len(bank)+1:], "/")
		names = append(names, word)
	}
	return names, err
}

// Close closes the connections.
func (d *Driver) Close() error { return d.c.Close() }
