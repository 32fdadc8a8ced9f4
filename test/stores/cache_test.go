package stores

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"brine/internal/base/field"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/test/servertest"
)

// kv simulates consul's key-value API according to its documentation, since Debian has no package
// of consul. It is tested with Salt's client, python-consul, and with ours.
type kv struct {
	mu    sync.Mutex
	index uint64
	m     map[string]entry
}

type entry struct {
	v     []byte
	index uint64
}

func (s *kv) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/v1/kv/")
	q := r.URL.Query()
	w.Header().Set("X-Consul-Index", strconv.FormatUint(s.index+1, 10))
	var keys []string
	for k := range s.m {
		if k == key || (q.Has("recurse") || q.Has("keys")) && strings.HasPrefix(k, key) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	switch r.Method {
	case http.MethodPut:
		b := make([]byte, r.ContentLength)
		for n := 0; n < len(b); {
			m, err := r.Body.Read(b[n:])
			if n += m; err != nil {
				break
			}
		}
		s.index++
		s.m[key] = entry{b, s.index}
		fmt.Fprint(w, "true")
		return
	case http.MethodDelete:
		for _, k := range keys {
			delete(s.m, k)
		}
		fmt.Fprint(w, "true")
		return
	}
	if len(keys) == 0 {
		http.NotFound(w, r)
		return
	}
	if q.Has("keys") {
		sep := q.Get("separator")
		for i, k := range keys {
			if rest := k[len(key):]; sep != "" && strings.Contains(rest, sep) {
				keys[i] = k[:len(key)+strings.Index(rest, sep)+len(sep)]
			}
		}
		json.NewEncoder(w).Encode(slices.Compact(keys))
		return
	}
	var out []map[string]any
	for _, k := range keys {
		out = append(out, map[string]any{"Key": k, "Value": base64.StdEncoding.EncodeToString(s.m[k].v), "ModifyIndex": s.m[k].index, "Flags": 0,
			"CreateIndex": 1, "LockIndex": 0})
	}
	json.NewEncoder(w).Encode(out)
}

func consulServer(t *testing.T) (host, port string) {
	s := httptest.NewServer(&kv{m: map[string]entry{}})
	t.Cleanup(s.Close)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	must(t, err)
	return host, port
}

// cases are the drivers with their options, and the requirements of Salt's driver; none if Salt has
// no such driver.
func cases(t *testing.T) []cacheCase {
	host, port := consulServer(t)
	return []cacheCase{
		{"redis", "redis", func(t *testing.T) *value.Dict {
			s := redisServer.get(t)
			return value.DictOf("cache.redis.host", s.Host, "cache.redis.port", s.Port, "cache.redis.db", 3)
		}, map[string]string{"redis": "python3-redis"}},
		{"redis by its socket with other prefixes", "redis", func(t *testing.T) *value.Dict {
			s := redisServer.get(t)
			return value.DictOf("cache.redis.unix_socket_path", s.Dir+"/sock", "cache.redis.db", 4, "cache.redis.bank_prefix", "#BANK",
				"cache.redis.bank_keys_prefix", "#BANKEYS",
				"cache.redis.key_prefix", "#KEY", "cache.redis.timestamp_prefix", "#T", "cache.redis.separator", "@")
		}, map[string]string{"redis": "python3-redis"}},
		{"etcd version 2", "etcd", func(t *testing.T) *value.Dict {
			s := etcdServer.get(t)
			return value.DictOf("etcd.host", s.Host, "etcd.port", s.Port)
		}, map[string]string{"etcd": "python3-etcd"}},
		{"etcd version 3", "etcd", func(t *testing.T) *value.Dict {
			s := etcdServer.get(t)
			return value.DictOf("etcd.host", s.Host, "etcd.port", s.Port, "etcd.require_v2", false, "etcd.path_prefix", "other/cache")
		}, nil},
		{"consul", "consul", func(*testing.T) *value.Dict {
			return value.DictOf("consul.host", host, "consul.port", port)
		}, map[string]string{"consul": "python3-consul"}},
		{"mysql", "mysql", func(t *testing.T) *value.Dict {
			s := mysqlServer.get(t)
			return value.DictOf("mysql.host", s.Host, "mysql.port", s.Port, "mysql.user", s.User, "mysql.password", s.Password, "mysql.table_name", "cache")
		}, map[string]string{"pymysql": "python3-pymysql"}},
		{"postgres", "postgres", func(t *testing.T) *value.Dict {
			s := postgresServer.get(t)
			return value.DictOf("cache.postgres.host", s.Host, "cache.postgres.port", s.Port, "cache.postgres.password", s.Password)
		}, nil},
	}
}

type cacheCase struct {
	name, driver string
	options      func(*testing.T) *value.Dict
	stockNeeds   map[string]string
}

func (c cacheCase) driverOf(t *testing.T) cache.Driver {
	t.Helper()
	d, err := drivers.Open(c.driver, options(pairs(c.options(t))...), 20*time.Second)
	must(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

func pairs(d *value.Dict) (out []any) {
	for k, v := range d.All() {
		out = append(out, k, v)
	}
	return out
}

func pack(t testing.TB, v any) []byte {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.NewSpec)
	must(t, err)
	return b
}

// TestDrivers tests every driver against the interface.
func TestDrivers(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			d := c.driverOf(t)
			must(t, d.Flush(ctx, "minions", ""))
			if b, err := d.Fetch(ctx, "minions/none", "data"); b != nil || err != nil {
				t.Error(b, err)
			}
			if names, err := d.List(ctx, "minions"); len(names) != 0 || err != nil {
				t.Error(names, err)
			}
			// Names that a server could misinterpret.
			ids := []string{"web1", "web1.example.com", "a_b", "a%b", "a b+c?d#e&f=g", `q"u'o`, "ü", "[x]*"}
			big := pack(t, value.DictOf("bin", []byte{0, 0xff, 0x27}, "n", -5, "long", strings.Repeat("x", 200_000)))
			for _, id := range ids {
				must(t, d.Store(ctx, "minions/"+id, "data", big))
				must(t, d.Store(ctx, "minions/"+id, "mine", pack(t, id)))
				if b, err := d.Fetch(ctx, "minions/"+id, "data"); string(b) != string(big) || err != nil {
					t.Errorf("%s: %d bytes, %v", id, len(b), err)
				}
			}
			names, err := d.List(ctx, "minions")
			slices.Sort(names)
			want := slices.Sorted(slices.Values(ids))
			if !slices.Equal(slices.Compact(names), want) || err != nil {
				t.Errorf("%q, %v, want %q", names, err, want)
			}
			if names, err := d.List(ctx, "minions/a%b"); err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), []string{"data", "mine"}) {
				t.Error(names, err)
			}
			banks, known := []string{"minions/none"}, make([]string, len(ids)+1)
			for _, id := range ids {
				banks = append(banks, "minions/"+id)
			}
			values, err := d.Each(ctx, banks, "mine", known)
			must(t, err)
			if values[0].Data != nil || values[0].Version != "" {
				t.Error(values[0])
			}
			for i, id := range ids {
				if string(values[i+1].Data) != string(pack(t, id)) {
					t.Errorf("%s: %q", id, values[i+1].Data)
				}
				known[i+1] = values[i+1].Version
			}
			must(t, d.Store(ctx, "minions/ü", "mine", pack(t, "Ü!")))
			again, err := d.Each(ctx, banks, "mine", known)
			must(t, err)
			for i, id := range ids {
				v := again[i+1]
				switch {
				case id == "ü" && string(v.Data) != string(pack(t, "Ü!")):
					t.Errorf("a change is not seen: %+v", v)
				case id != "ü" && (v.Data == nil) != (v.Version != "" && v.Version == known[i+1]):
					t.Errorf("%s: %+v, known %q", id, v, known[i+1])
				}
			}
			if few, err := d.Each(ctx, banks[:2], "mine", known[:2]); err != nil || few[0].Version != "" || few[1].Version == "" && few[1].Data == nil {
				t.Error(few, err)
			}
			must(t, d.Flush(ctx, "minions/web1", "mine"))
			must(t, d.Flush(ctx, "minions/web1", "mine"))
			if b, err := d.Fetch(ctx, "minions/web1", "mine"); b != nil || err != nil {
				t.Error(b, err)
			}
			must(t, d.Flush(ctx, "minions/a_b", ""))
			for id, gone := range map[string]bool{"a_b": true, "a%b": false, "web1": false} {
				b, err := d.Fetch(ctx, "minions/"+id, "data")
				if (b == nil) != gone || err != nil {
					t.Errorf("%s: %d bytes, %v", id, len(b), err)
				}
			}
			must(t, d.Flush(ctx, "minions", ""))
			if names, err := d.List(ctx, "minions"); len(names) != 0 || err != nil {
				t.Error(names, err)
			}
			if b, err := d.Fetch(ctx, "minions/web1.example.com", "data"); b != nil || err != nil {
				t.Error(len(b), err)
			}
		})
	}
}

const stockCache = `
import sys, json, salt.cache
opts = {"cachedir": "/nonexistent", "extension_modules": "", "optimization_order": [0], "__role": "master"}
opts.update(json.loads(sys.argv[2]))
opts["cache"] = sys.argv[1]
c = salt.cache.Cache(opts)
d = c.fetch("minions/ours", "data")
assert d == {"grains": {"os": "Debian", "n": 3, "l": [1, None, "é"]}, "pillar": {"bin": b"\xff"}}, d
assert isinstance(c.updated("minions/ours", "data"), int), c.updated("minions/ours", "data")
assert c.contains("minions/ours", "data"), "contains"
assert not c.contains("minions/ours", "none"), "contains not"
assert list(c.list("minions/ours")) == ["data"], c.list("minions/ours")
c.store("minions/theirs", "data", {"grains": {"id": "theirs", "x": [1, None, "é"]}, "pillar": {"bin": b"\xfe"}})
c.store("minions/theirs", "mine", {"f": 1})
c.store("minions/gone", "mine", {"f": 1})
c.flush("minions/gone", "mine")
c.flush("minions/ours", "data")
assert c.fetch("minions/ours", "data") == {}, "flush"
`

// TestStockSharesStore: stock Salt's driver reads the data that ours wrote, and vice versa.
func TestStockSharesStore(t *testing.T) {
	for _, c := range cases(t) {
		if c.stockNeeds == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			ctx := t.Context()
			d := c.driverOf(t)
			must(t, d.Flush(ctx, "minions", ""))
			must(t, d.Store(ctx, "minions/ours", "data", pack(t, value.DictOf("grains", value.DictOf("os", "Debian", "n", 3, "l", value.ListOf(1, nil, "é")),
				"pillar", value.DictOf("bin", []byte{0xff})))))
			opts := map[string]any{}
			for k, v := range c.options(t).All() {
				opts[k.(string)] = v
			}
			stockExchange(t, c, opts)
			if b, err := d.Fetch(ctx, "minions/ours", "data"); b != nil || err != nil {
				t.Error("stock's flush is not seen", b, err)
			}
			b, err := d.Fetch(ctx, "minions/theirs", "data")
			must(t, err)
			v, err := msgpack.UnmarshalTyped(b)
			must(t, err)
			m := v.(*value.Dict)
			if !value.Equal(m.Dict("grains").At("x"), value.ListOf(1, nil, "é")) || !value.Equal(m.Dict("pillar").At("bin"), []byte{0xfe}) {
				t.Error(value.Repr(v))
			}
			names, err := d.List(ctx, "minions")
			if slices.Sort(names); !slices.Contains(names, "theirs") || err != nil {
				t.Error(names, err)
			}
			if names, err := d.List(ctx, "minions/theirs"); err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), []string{"data", "mine"}) {
				t.Error(names, err)
			}
			values, err := d.Each(ctx, []string{"minions/theirs", "minions/gone"}, "mine", []string{"", ""})
			if err != nil || string(values[0].Data) != string(pack(t, value.DictOf("f", 1))) || values[1].Data != nil {
				t.Error(values, err)
			}
			must(t, d.Flush(ctx, "minions", ""))
		})
	}
}

func stockExchange(t *testing.T, c cacheCase, opts map[string]any) {
	t.Helper()
	b, err := json.Marshal(opts)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	servertest.StockPython(ctx, t, stockCache, c.stockNeeds, c.driver, string(b))
}

func cacheOptions(t testing.TB, driver string) cache.Options {
	t.Helper()
	var o cache.Options
	must(t, field.Defaults(&o))
	o.Driver, o.Timeout = driver, 20*time.Second
	return o
}
