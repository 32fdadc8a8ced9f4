package remote

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"brine/internal/base/salt"
	"brine/internal/py/value"
)

var quiet sync.Once

// silent drops the redis client's messages for stderr: its errors are also returned.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Redis opens a redis server, or a cluster of them, by the settings host, port,
// unix_socket_path, db, username, password, ssl (with ssl_ca_certs,
// ssl_certfile, ssl_keyfile), cluster_mode and cluster.startup_nodes.
func Redis(s Settings, host string, timeout time.Duration) (redis.UniversalClient, error) {
	quiet.Do(func() { redis.SetLogger(silent{}) })
	addr, err := s.Address(host, 6379)
	if err != nil {
		return nil, err
	}
	db, err := s.Int("db", 0)
	if err != nil {
		return nil, err
	}
	o := &redis.UniversalOptions{
		Addrs: []string{addr}, DB: db, Username: s.Text("username", ""), Password: s.Text("password", ""),
		// The oldest protocol, and no commands that old servers lack.
		Protocol: 2, DisableIdentity: true, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout, PoolTimeout: timeout, ContextTimeoutEnabled: true,
		PoolSize: 2 * maxIdle, MaxIdleConns: maxIdle, MaxRetries: -1, DialerRetries: 1,
	}
	if s.Bool("ssl", false) {
		// Each server must have a certificate for the name used to connect.
		if o.TLSConfig, err = TLS(s.Text("ssl_ca_certs", ""), s.Text("ssl_certfile", ""), s.Text("ssl_keyfile", ""), "",
			s.Text("ssl_cert_reqs", "required") != "none"); err != nil {
			return nil, err
		}
	}
	if s.Bool("cluster_mode", false) {
		nodes, _ := s("cluster.startup_nodes").(*value.List)
		if nodes.Len() == 0 {
			return nil, salt.Errorf(salt.Invalid, "cluster_mode needs cluster.startup_nodes: a list of maps with host and port")
		}
		o.Addrs = nil
		for _, it := range nodes.Items {
			d, _ := it.(*value.Dict)
			port, err := Settings(func(name string) any { return d.At(name) }).Port(6379)
			if err != nil {
				return nil, salt.Errorf(salt.Invalid, "cluster.startup_nodes: %w", err)
			}
			o.Addrs = append(o.Addrs, net.JoinHostPort(d.Str("host"), strconv.Itoa(port)))
		}
		o.IsClusterMode = true
		return redis.NewUniversalClient(o), nil
	}
	if path := s.Text("unix_socket_path", ""); path != "" {
		o.Addrs = []string{path} // go-redis recognizes a socket by its slash
	}
	return redis.NewUniversalClient(o), nil
}

// RedisKeys returns the keys that match a pattern, from all servers of a cluster.
func RedisKeys(ctx context.Context, c redis.UniversalClient, pattern string) (keys []string, err error) {
	var mu sync.Mutex
	scan := func(ctx context.Context, c redis.Cmdable) error {
		it := c.Scan(ctx, 0, pattern, 1000).Iterator()
		for it.Next(ctx) {
			mu.Lock()
			keys = append(keys, it.Val())
			mu.Unlock()
		}
		return it.Err()
	}
	if cluster, ok := c.(*redis.ClusterClient); ok {
		// All servers concurrently.
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return scan(ctx, c) })
	} else {
		err = scan(ctx, c)
	}
	return keys, err
}
