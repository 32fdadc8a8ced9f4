package returner

import (
	"context"
	"errors"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"brine/internal/base/salt"
	"brine/internal/net/remote"
	"brine/internal/py/value"
)

// redis stores JSON:
//
//	load:JID      the published load, for keep_jobs_seconds
//	ret:JID       a hash of returns by minion, for the same time
//	MINION:FUN    the last job of a function
//	minions       the set of minions
type redis struct {
	c       goredis.UniversalClient
	keep    time.Duration
	history bool
}

func init() {
	kinds.Register("redis", kind{
		doc:  "Jobs and returns in redis or a cluster of it, which removes them after keep_jobs_seconds.",
		open: newRedis,
	})
}

func newRedis(c Config) (Returner, error) {
	client, err := remote.Redis(c.settings("redis"), "salt", c.Timeout)
	if err != nil {
		return nil, err
	}
	return &redis{client, c.Keep, c.History}, nil
}

func redisFailed(err error) error {
	if e, ok := errors.AsType[goredis.Error](err); ok && (strings.HasPrefix(e.Error(), "WRONGTYPE") || strings.HasPrefix(e.Error(), "ERR ")) {
		return salt.Errorf(salt.Invalid, "the redis server refuses: %w", err)
	}
	return remote.Failed("the redis server", err)
}

func (r *redis) Return(ctx context.Context, ret *value.Dict) error {
	text, err := dump(ret, false)
	if err != nil {
		return err
	}
	id, key := ret.Str("id"), "ret:"+ret.Str("jid")
	_, err = r.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.HSet(ctx, key, id, text)
		if r.keep > 0 {
			p.Expire(ctx, key, r.keep)
		}
		if last := id + ":" + value.Str(ret.At("fun")); r.history {
			p.SetNX(ctx, last, ret.Str("jid"), 0)
		} else {
			p.Set(ctx, last, ret.Str("jid"), 0)
		}
		p.SAdd(ctx, "minions", id)
		return nil
	})
	return redisFailed(err)
}

func (r *redis) SaveLoad(ctx context.Context, jid string, load *value.Dict) error {
	text, err := dump(load, false)
	if err != nil {
		return err
	}
	return redisFailed(r.c.Set(ctx, "load:"+jid, text, r.keep).Err())
}

func (r *redis) Load(ctx context.Context, jid string) (*value.Dict, error) {
	text, err := r.c.Get(ctx, "load:"+jid).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, redisFailed(err)
	}
	return loadDict(text)
}

func (r *redis) Returns(ctx context.Context, jid string) (map[string]*value.Dict, error) {
	all, err := r.c.HGetAll(ctx, "ret:"+jid).Result()
	if err != nil {
		return nil, redisFailed(err)
	}
	out := make(map[string]*value.Dict, len(all))
	for id, text := range all {
		if d, err := loadDict(text); err == nil {
			out[id] = d
		}
	}
	return out, nil
}

// keys returns all matching keys.
func (r *redis) keys(ctx context.Context, pattern string) ([]string, error) {
	keys, err := remote.RedisKeys(ctx, r.c, pattern)
	return keys, redisFailed(err)
}

func (r *redis) Jobs(ctx context.Context) (map[string]*value.Dict, error) {
	keys, err := r.keys(ctx, "load:*")
	if err != nil {
		return nil, err
	}
	out := make(map[string]*value.Dict, len(keys))
	texts := make([]*goredis.StringCmd, len(keys))
	_, err = r.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, k := range keys {
			texts[i] = p.Get(ctx, k)
		}
		return nil
	})
	if err != nil && !errors.Is(err, goredis.Nil) {
		return nil, redisFailed(err)
	}
	for i, k := range keys {
		if d, err := loadDict(texts[i].Val()); err == nil {
			out[strings.TrimPrefix(k, "load:")] = d
		}
	}
	return out, nil
}

func (r *redis) Events(context.Context, []Event) error { return ErrNoEvents }

// Clean removes returns of expired jobs, since each return renews the expiry of all returns of the
// job.
func (r *redis) Clean(ctx context.Context, _ time.Duration, _ bool) error {
	rets, err := r.keys(ctx, "ret:*")
	if err != nil {
		return err
	}
	loads, err := r.keys(ctx, "load:*")
	if err != nil {
		return err
	}
	living := make(map[string]bool, len(loads))
	for _, l := range loads {
		living[strings.TrimPrefix(l, "load:")] = true
	}
	_, err = r.c.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, k := range rets {
			if !living[strings.TrimPrefix(k, "ret:")] {
				p.Del(ctx, k)
			}
		}
		return nil
	})
	return redisFailed(err)
}

func (r *redis) Close() error { return r.c.Close() }
