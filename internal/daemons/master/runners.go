package master

import (
	"brine/internal/base/salt"
	"brine/internal/call/auth"
	"brine/internal/call/fn"
	"brine/internal/catalogue/wheel"
	"brine/internal/net/event"
	"brine/internal/net/wire"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/job"
	"context"
	"path/filepath"
	"strconv"
)

// runnerTokens makes and ends tokens for the runner auth.
type runnerTokens struct {
	settings *settings
	tokens   *auth.Tokens
}

// NewToken implements runners.Tokens.
func (t runnerTokens) NewToken(ctx context.Context, creds *value.Dict) (*value.Dict, error) {
	var in wire.Credentials
	wire.View(creds, &in)
	expire, _ := strconv.ParseFloat(value.Str(in.TokenExpire), 64)
	d, err := t.settings.auth().NewToken(ctx, credentials(creds), expire)
	if salt.KindOf(err) == salt.Denied {
		return nil, nil
	}
	return d, err
}

// DropToken implements runners.Tokens.
func (t runnerTokens) DropToken(token string) (bool, error) {
	if there := t.settings.auth().Token(token); there == nil {
		return false, nil
	}
	return true, t.tokens.Remove(token)
}

// snapshotDir, in the master's own directory, has a copy of its jobs for
// migrations.
const snapshotDir = "snapshot"

// ownJobs returns what copies this master's database of jobs and what takes
// over those of stock masters, nil in a cluster, whose jobs are files.
func ownJobs(cfg *Config, jobs jobStore, stock *job.LocalCache) (snapshot func() (string, error), adopt func() (int, error)) {
	s, ok := jobs.(*job.Store)
	if !ok {
		return nil, nil
	}
	snapshot = func() (string, error) {
		own, err := ownDir(cfg)
		if err != nil {
			return "", err
		}
		dir := filepath.Join(own, snapshotDir)
		return dir, s.Snapshot(dir)
	}
	return snapshot, func() (int, error) { return job.Adopt(s, stock) }
}

// newWheels collects the functions that manage this master, and has the bus, the
// cache and the key of publications follow what they change.
func newWheels(d wheel.Deps, bus *event.Bus, c *cache.Cache, s *settings, rotate func()) (*fn.Registry, error) {
	d.Changed = func(act, id string) { bus.Fire("salt/key", value.DictOf("result", true, "act", act, "id", id)) }
	d.Forget = func(id string) error {
		_, err := c.Flush("minions/"+id, "")
		return err
	}
	d.Revoked = func() {
		if s.options().RotateAESKey {
			rotate()
		}
	}
	return fn.NewRegistry(nil, wheel.New(d)...)
}
