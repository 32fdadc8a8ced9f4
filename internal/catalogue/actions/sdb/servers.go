package sdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"brine/internal/call/fn"
	"brine/internal/net/remote"
	"brine/internal/net/remote/consul"
	"brine/internal/net/remote/etcd"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

func init() {
	drivers.Register("redis", driver{get: getRedis, set: setRedis, delete: deleteRedis})
	drivers.Register("etcd", driver{get: getEtcd, set: setEtcd, delete: deleteEtcd})
	drivers.Register("consul", driver{get: getConsul, set: setConsul})
}

// timeout bounds a request to a server.
const timeout = 30 * time.Second

// settings are those of a profile.
func settings(profile *value.Dict) remote.Settings {
	return func(name string) any { return profile.At(name) }
}

// withRedis calls do with a client.
func withRedis(profile *value.Dict, do func(redis.UniversalClient) (any, error)) (any, error) {
	c, err := remote.Redis(settings(profile), "localhost", timeout)
	if err != nil {
		return nil, fn.Errorf("sdb: %w", err)
	}
	defer c.Close()
	v, err := do(c)
	if err != nil {
		return nil, fn.Errorf("sdb: redis: %w", err)
	}
	return v, nil
}

// getRedis returns bytes, as Salt does unless the profile has decode_responses.
func getRedis(ctx context.Context, _ *fn.Call, key string, profile *value.Dict) (any, error) {
	return withRedis(profile, func(c redis.UniversalClient) (any, error) {
		b, err := c.Get(ctx, key).Bytes()
		switch {
		case errors.Is(err, redis.Nil):
			return nil, nil
		case err == nil && value.Truth(profile.At("decode_responses")):
			return string(b), nil
		}
		return b, err
	})
}

func setRedis(ctx context.Context, _ *fn.Call, key string, v any, profile *value.Dict) (any, error) {
	b, ok := v.([]byte)
	if !ok {
		b = []byte(value.Str(v))
	}
	return withRedis(profile, func(c redis.UniversalClient) (any, error) { return true, c.Set(ctx, key, b, 0).Err() })
}

func deleteRedis(ctx context.Context, _ *fn.Call, key string, profile *value.Dict) (any, error) {
	return withRedis(profile, func(c redis.UniversalClient) (any, error) { return c.Del(ctx, key).Result() })
}

// withEtcd calls do with a client. The settings begin with etcd, as in Salt.
func withEtcd(profile *value.Dict, do func(*etcd.Client) (any, error)) (any, error) {
	c, err := etcd.New(remote.Options(profile).Under("etcd"), timeout)
	if err != nil {
		return nil, fn.Errorf("sdb: %w", err)
	}
	defer c.Close()
	v, err := do(c)
	if err != nil {
		return nil, fn.Errorf("sdb: etcd: %w", err)
	}
	return v, nil
}

// pathOf returns the path of a key. In version 2 all paths begin with a slash.
func pathOf(c *etcd.Client, key string) string {
	if c.V3() {
		return key
	}
	return "/" + strings.TrimPrefix(key, "/")
}

func getEtcd(ctx context.Context, _ *fn.Call, key string, profile *value.Dict) (any, error) {
	return withEtcd(profile, func(c *etcd.Client) (any, error) {
		n, ok, err := c.Get(ctx, pathOf(c, key))
		if err != nil || !ok || n.Dir {
			return nil, err
		}
		if !packed(c, profile) {
			return n.Value, nil
		}
		v, err := msgpack.UnmarshalTyped([]byte(n.Value))
		if err != nil {
			return nil, fmt.Errorf("the value does not match etcd.encode_values: %w", err)
		}
		return v, nil
	})
}

// packed reports whether values are msgpack, as Salt has them in version 3 unless etcd.encode_values is
// false.
func packed(c *etcd.Client, profile *value.Dict) bool {
	return c.V3() && remote.Options(profile).Under("etcd").Bool("encode_values", true)
}

func setEtcd(ctx context.Context, _ *fn.Call, key string, v any, profile *value.Dict) (any, error) {
	return withEtcd(profile, func(c *etcd.Client) (any, error) {
		if !packed(c, profile) {
			text := value.Str(v)
			return text, c.Put(ctx, pathOf(c, key), text, 0)
		}
		b, err := msgpack.Marshal(v, msgpack.NewSpec)
		if err != nil {
			return nil, err
		}
		return v, c.Put(ctx, pathOf(c, key), string(b), 0)
	})
}

func deleteEtcd(ctx context.Context, c *fn.Call, key string, profile *value.Dict) (any, error) {
	_, err := withEtcd(profile, func(c *etcd.Client) (any, error) { return nil, c.Delete(ctx, pathOf(c, key), false) })
	if err != nil {
		c.Log.Warn("sdb: cannot delete a value", "err", err)
	}
	return err == nil, nil // as in Salt
}

// withConsul calls do with a client.
func withConsul(profile *value.Dict, do func(*consul.Client) (any, error)) (any, error) {
	c, err := consul.New(settings(profile), timeout)
	if err != nil {
		return nil, fn.Errorf("sdb: %w", err)
	}
	defer c.Close()
	v, err := do(c)
	if err != nil {
		return nil, fn.Errorf("sdb: consul: %w", err)
	}
	return v, nil
}

// getConsul returns bytes, as Salt does.
func getConsul(ctx context.Context, _ *fn.Call, key string, profile *value.Dict) (any, error) {
	return withConsul(profile, func(c *consul.Client) (any, error) {
		found, err := c.Get(ctx, key, false)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return found[0].Value, nil
	})
}

func setConsul(ctx context.Context, _ *fn.Call, key string, v any, profile *value.Dict) (any, error) {
	return withConsul(profile, func(c *consul.Client) (any, error) { return true, c.Put(ctx, key, []byte(value.Str(v))) })
}
