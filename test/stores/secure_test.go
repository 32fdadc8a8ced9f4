package stores

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"brine/internal/net/remote"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/cache/drivers"
	"brine/internal/store/returner"
	"brine/test/servertest"
)

// exchange tests writing, listing, reading and removing with a driver.
func exchange(t *testing.T, d cache.Driver) {
	t.Helper()
	ctx := t.Context()
	const n = 40 // enough to use all servers of a cluster
	for i := range n {
		must(t, d.Store(ctx, fmt.Sprintf("minions/m%d", i), "data", pack(t, i)))
	}
	if names, err := d.List(ctx, "minions"); len(names) != n || err != nil {
		t.Errorf("%d minions, %v", len(names), err)
	}
	var banks []string
	for i := range n {
		banks = append(banks, fmt.Sprintf("minions/m%d", i))
	}
	values, err := d.Each(ctx, banks, "data", make([]string, n))
	must(t, err)
	for i, v := range values {
		if string(v.Data) != string(pack(t, i)) {
			t.Errorf("m%d: %q", i, v.Data)
		}
	}
	must(t, d.Flush(ctx, "minions", ""))
	if names, err := d.List(ctx, "minions"); len(names) != 0 || err != nil {
		t.Error(names, err)
	}
}

// keepsJobs tests that a returner stores a job and finds it again.
func keepsJobs(t *testing.T, r returner.Returner) {
	t.Helper()
	ctx := t.Context()
	jids := map[string]bool{}
	for i := range 20 {
		jid := fmt.Sprintf("20261122010204%06d", i)
		jids[jid] = true
		must(t, r.SaveLoad(ctx, jid, aLoad(jid)))
		must(t, r.Return(ctx, value.DictOf("jid", jid, "id", "m1", "fun", "test.ping", "return", true, "retcode", 0, "success", true)))
	}
	for jid := range jids {
		rets, err := r.Returns(ctx, jid)
		if err != nil || rets["m1"].At("return") != true {
			t.Errorf("%s: %v, %v", jid, rets, err)
		}
	}
	jobs, err := r.Jobs(ctx)
	must(t, err)
	for jid := range jids {
		if jobs[jid].Str("fun") != "test.ping" {
			t.Errorf("%s: %v", jid, jobs[jid])
		}
	}
}

// TestSecureStores: caches and returners work with servers that require TLS with client
// certificates. They refuse a server certificate that no trusted authority has signed, and fail
// without a client certificate.
func TestSecureStores(t *testing.T) {
	t.Parallel()
	files := func(prefix string, s *servertest.Server, ca, cert, key string) []any {
		return []any{prefix + ca, s.Files.CA, prefix + cert, s.Files.Cert, prefix + key, s.Files.Key}
	}
	redis := func(prefix string, s *servertest.Server) []any {
		return append(files(prefix, s, "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"), prefix+"host", s.Host, prefix+"ssl", true, prefix+"password",
			s.Password)
	}
	for name, c := range map[string]struct {
		open   func(testing.TB) *servertest.Server
		driver string
		cache  func(s *servertest.Server) []any
		// ca and cert are the options that are once set to wrong values.
		ca, cert string
		returner string
		jobs     func(t *testing.T, s *servertest.Server) []any
	}{
		"redis": {servertest.SecureRedis, "redis", func(s *servertest.Server) []any { return redis("cache.redis.", s) }, "cache.redis.ssl_ca_certs",
			"cache.redis.ssl_certfile",
			"redis", func(_ *testing.T, s *servertest.Server) []any { return redis("redis.", s) }},
		"etcd": {servertest.SecureEtcd, "etcd", func(s *servertest.Server) []any {
			return []any{"etcd.host", s.Host, "etcd.ca_cert", s.Files.CA, "etcd.cert", value.ListOf(s.Files.Cert, s.Files.Key)}
		}, "etcd.ca_cert", "etcd.cert", "etcd", func(_ *testing.T, s *servertest.Server) []any {
			return append(files("etcd.", s, "ca", "client_cert", "client_key"), "etcd.host", s.Host, "etcd.require_v2", false)
		}},
		"mysql": {servertest.SecureMySQL, "mysql", func(s *servertest.Server) []any {
			return append(files("mysql.", s, "ssl_ca", "ssl_cert", "ssl_key"), "mysql.host", s.Host, "mysql.user", s.User, "mysql.password", s.Password)
		}, "mysql.ssl_ca", "mysql.ssl_cert", "mysql", func(t *testing.T, s *servertest.Server) []any {
			s.Exec(t, "", "CREATE DATABASE salt;")
			s.Exec(t, "salt", mysqlTables)
			return append(files("mysql.", s, "ssl_ca", "ssl_cert", "ssl_key"), "mysql.host", s.Host, "mysql.user", s.User, "mysql.pass", s.Password)
		}},
		"postgres": {servertest.SecurePostgres, "postgres", func(s *servertest.Server) []any {
			const p = "cache.postgres."
			return append(files(p, s, "sslrootcert", "sslcert", "sslkey"), p+"host", s.Host, p+"password", s.Password, p+"sslmode", "verify-full")
		}, "cache.postgres.sslrootcert", "cache.postgres.sslcert", "pgjsonb", func(t *testing.T, s *servertest.Server) []any {
			const p = "returner.pgjsonb."
			s.Exec(t, "salt", "SET ROLE salt;\n"+strings.ReplaceAll(pgTables, "JSONTYPE", "jsonb"))
			return append(files(p, s, "sslrootcert", "sslcert", "sslkey"), p+"host", s.Host, p+"pass", s.Password, p+"sslmode", "verify-full")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := c.open(t)
			t.Cleanup(s.Remove)
			open := func(pairs []any) cache.Driver {
				d, err := drivers.Open(c.driver, options(pairs...), 30*time.Second)
				must(t, err)
				t.Cleanup(func() { d.Close() })
				return d
			}
			exchange(t, open(c.cache(s)))
			r, err := returner.Open(c.returner, returner.Config{Source: options(c.jobs(t, s)...), Timeout: 30 * time.Second, Keep: time.Hour})
			must(t, err)
			t.Cleanup(func() { r.Close() })
			keepsJobs(t, r)

			// A later option overrides an earlier one.
			_, err = open(append(c.cache(s), c.ca, s.Files.Other)).Fetch(t.Context(), "minions/m1", "data")
			if err == nil || !strings.Contains(err.Error(), "unknown authority") {
				t.Errorf("a server with an untrusted certificate: %v", err)
			}
			var bare []any
			for i, pairs := 0, c.cache(s); i < len(pairs); i += 2 {
				if k := pairs[i].(string); k != c.cert && !strings.HasSuffix(k, "key") {
					bare = append(bare, k, pairs[i+1])
				}
			}
			if _, err = open(bare).Fetch(t.Context(), "minions/m1", "data"); err == nil {
				t.Error("without a certificate of its own")
			} else {
				t.Log(err)
			}
		})
	}
}

// TestRedisCluster: values and jobs are distributed over the servers of a cluster, one of which is
// configured.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	all := servertest.RedisCluster(t)
	nodes := value.ListOf(value.DictOf("host", all[1].Host, "port", all[1].Port))
	d, err := drivers.Open("redis", options("cache.redis.cluster_mode", true, "cache.redis.cluster.startup_nodes", nodes), 30*time.Second)
	must(t, err)
	defer d.Close()
	exchange(t, d)
	r, err := returner.Open("redis", returner.Config{Source: options("redis.cluster_mode", true, "redis.cluster.startup_nodes", nodes),
		Timeout: 30 * time.Second, Keep: time.Hour})
	must(t, err)
	defer r.Close()
	keepsJobs(t, r)
	for _, s := range all {
		c, err := remote.Redis(options("x.host", s.Host).Under("x"), "", 30*time.Second)
		must(t, err)
		if n, err := c.DBSize(t.Context()).Result(); n == 0 || err != nil {
			t.Errorf("%s has %d keys, %v", s.Host, n, err)
		}
		c.Close()
	}
}

// TestSeveralEtcd: servers in etcd.host that are unreachable or do not answer are skipped.
func TestSeveralEtcd(t *testing.T) {
	t.Parallel()
	good, bad := servertest.Etcd(t), servertest.Etcd(t)
	t.Cleanup(good.Remove)
	t.Cleanup(bad.Remove)
	// They do not form a cluster: the data is on the healthy server.
	d, err := drivers.Open("etcd", options("etcd.host", value.ListOf(bad.Addr(), good.Host), "etcd.require_v2", false), 2*time.Second)
	must(t, err)
	defer d.Close()
	bad.Freeze()
	var failures int
	for end := time.Now().Add(time.Minute); ; failures++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // the timeout of caches and returners
		err := d.Store(ctx, "minions/m1", "data", pack(t, 1))
		cancel()
		if err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	t.Logf("%d failures before the other server was asked", failures)
	o, err := drivers.Open("etcd", options("etcd.host", good.Host, "etcd.require_v2", false), 30*time.Second)
	must(t, err)
	defer o.Close()
	if b, err := o.Fetch(t.Context(), "minions/m1", "data"); string(b) != string(pack(t, 1)) || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	bad.Stop()
	d2, err := drivers.Open("etcd", options("etcd.host", value.ListOf(bad.Host, good.Addr()), "etcd.require_v2", false), 30*time.Second)
	must(t, err)
	defer d2.Close()
	if b, err := d2.Fetch(t.Context(), "minions/m1", "data"); string(b) != string(pack(t, 1)) || err != nil {
		t.Errorf("with one away: %q, %v", b, err)
	}
	for _, wrong := range []any{&value.List{}, value.ListOf(5)} {
		if _, err := drivers.Open("etcd", options("etcd.host", wrong), time.Second); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}
