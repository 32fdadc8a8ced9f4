package cluster

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// keyring holds the key of the cluster, and replaces it while the masters run.
type keyring struct {
	cfg            *Config
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	secrets        *keys.Secrets
	identity       *wire.Identity
	peers          *peerSet
	queries        *queries
	list           *members.List
	restate        func() error // updates this master's file

	// ring is the current key. switching is held while it is replaced; onKey is called then.
	ring      atomic.Pointer[keys.Ring]
	switching sync.Mutex
	onKey     func(*crypt.PrivateKey, []handshake.Endorsement)
}

// openKeyring loads the key of the cluster at the start of the master.
func (k *keyring) openKeyring() error {
	r, _, err := keys.ReadRotation(k.cfg.Options.PKIDir)
	if err != nil {
		return err
	}
	k.ring.Store(keys.NewRing(k.secrets.Key, r))
	return nil
}

// Key returns the current key pair of the cluster.
func (k *keyring) Key() *crypt.PrivateKey { return k.ring.Load().Key }

// Endorsements returns the endorsements of the cluster's key, for minions.
func (k *keyring) Endorsements() []handshake.Endorsement {
	return k.ring.Load().Rotation.Endorsements()
}

// OnKey sets the function to call when the key of the cluster was replaced. It must be called before Run.
func (k *keyring) OnKey(fn func(*crypt.PrivateKey, []handshake.Endorsement)) { k.onKey = fn }

// FollowKey switches to the current key, if this master has another one and can fetch it.
func (k *keyring) FollowKey(ctx context.Context) error {
	k.switching.Lock()
	defer k.switching.Unlock()
	r, ok, err := keys.ReadRotation(k.cfg.Options.PKIDir)
	if err != nil || !ok {
		return err
	}
	ring := k.ring.Load()
	pub, err := crypt.ParsePublic([]byte(r.Pub))
	if err != nil {
		return err
	}
	if pub.Equal(ring.Key.Public()) {
		if !keys.SameChain(r.Endorsed, ring.Rotation.Endorsed) { // another member has added an endorsement
			k.use(keys.NewRing(ring.Key, r))
		}
		return nil
	}
	key, err := k.fetchKey(ctx, pub)
	if err != nil {
		return err
	}
	// If two keys were created at once, members may use different ones.
	full, err := ring.Endorse(r)
	if err != nil {
		return err
	}
	if len(full.Endorsed) != len(r.Endorsed) {
		if err := full.Write(k.cfg.Options.PKIDir); err != nil {
			return err
		}
	}
	if err := keys.StoreKey(k.cfg.Options.PKIDir, k.cfg.Options.KeyPass, key); err != nil {
		return err
	}
	k.use(keys.NewRing(key, full))
	k.log.Info("the key of the cluster was replaced", "fingerprint", keys.Tag(pub))
	k.list.Resign() // signed by the new key
	if err := k.restate(); err != nil {
		return err
	}
	return k.list.Refresh(time.Now())
}

// use makes this master use a key everywhere.
func (k *keyring) use(ring *keys.Ring) {
	k.ring.Store(ring)
	k.identity.Resign(ring.Key, ring.Rotation.Endorsed)
	if k.onKey != nil {
		k.onKey(ring.Key, ring.Rotation.Endorsements())
	}
}

// fetchKey returns the private half of a key, from this master or another member.
func (k *keyring) fetchKey(ctx context.Context, pub *crypt.PublicKey) (*crypt.PrivateKey, error) {
	path := filepath.Join(k.cfg.Options.PKIDir, keys.NextFile)
	if _, err := os.Stat(path); err == nil {
		if k, err := crypt.LoadOwn(path, k.cfg.Options.KeyPass, k.log); err == nil && k.Public().Equal(pub) {
			return k, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if k.cfg.Store != nil {
		if w, err := k.cfg.Store.Keys(ctx); err == nil && w != nil {
			if k, err := crypt.ParsePrivate(w.ClusterPEM, ""); err == nil && k.Public().Equal(pub) {
				return k, nil
			}
		}
	}
	for id := range k.peers.all() {
		d, err := k.queries.AskOne(ctx, id, askKey, wire.Dict(&wire.KeyQuestion{Key: keys.Tag(pub)}))
		if err != nil {
			continue
		}
		var answer wire.KeyAnswer
		wire.View(d, &answer)
		if k, err := crypt.ParsePrivate(answer.PEM, ""); err == nil && k.Public().Equal(pub) {
			return k, nil
		}
	}
	return nil, salt.Errorf(salt.Unavailable, "no member that can be reached has the new key of the cluster (%s)", keys.Tag(pub))
}

// answerKey returns the private half of the cluster's key to a member.
func (k *keyring) answerKey(arg *value.Dict) *value.Dict {
	ring := k.ring.Load()
	var q wire.KeyQuestion
	wire.View(arg, &q)
	if !strings.EqualFold(q.Key, ring.Fingerprint) {
		return value.NewDict(0)
	}
	return wire.Dict(&wire.KeyAnswer{PEM: ring.Key.PEM()})
}

// followKey calls FollowKey periodically.
func (k *keyring) followKey(ctx context.Context) {
	if err := k.FollowKey(ctx); err != nil && ctx.Err() == nil {
		k.rateLimitedLog.Warn("key", "this master still has the former key of the cluster", "err", err)
	}
}

// askKey is the query between members for the private half of a key.
const askKey = "clusterkey"

// KeyTime is the timeout for members to switch to a new key.
const KeyTime = 20 * time.Second

// RotateKey replaces the key of the cluster. It returns the members that have the new one, and those that will get it when they are back.
// force does it even if there are minions that cannot accept it.
func (c *Cluster) RotateKey(ctx context.Context, force bool) (have, late []string, err error) {
	if !c.rotating.TryLock() {
		return nil, nil, salt.Errorf(salt.Unavailable, "the key of the cluster is being replaced already: see brine cluster status")
	}
	defer c.rotating.Unlock()
	switch {
	case !c.cfg.Options.Isolated:
		return nil, nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a directory: their key cannot be replaced while they run")
	case !c.trust.allUseSecret():
		return nil, nil, salt.Errorf(salt.Invalid,
			"a member has a version that cannot replace the cluster's key: install this version on all first (brine cluster status)")
	case c.cfg.Refuses != nil && !force:
		if err := c.cfg.Refuses(); err != nil {
			return nil, nil, err
		}
	}
	next, err := crypt.GenerateKey(c.cfg.Keysize)
	if err != nil {
		return nil, nil, err
	}
	pem, err := next.EncryptedPEM(c.cfg.Options.KeyPass)
	if err == nil {
		err = atomicfile.Write(filepath.Join(c.cfg.Options.PKIDir, keys.NextFile), pem, 0o400, true)
	}
	if err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot store the new key of the cluster: %w", err)
	}
	r := c.Keyring.ring.Load().Rotation
	r.Pub = string(next.Public().PEM())
	if r, err = c.Keyring.ring.Load().Endorse(r); err != nil {
		return nil, nil, err
	}
	if err := r.Write(c.cfg.Options.PKIDir); err != nil {
		return nil, nil, err
	}
	if err := c.Keyring.FollowKey(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, KeyTime)
	defer cancel()
	for {
		have, late = nil, nil
		away := 0
		for _, s := range c.Status(ctx) {
			switch {
			case s.Self || s.report().Key == keys.Tag(next.Public()):
				have = append(have, s.ID)
				continue
			case !s.Up:
				away++
			}
			late = append(late, s.ID)
		}
		if len(late) == away {
			break
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			break
		}
	}
	// Data encrypted with the former key is no longer accepted.
	return have, late, c.renew()
}
