package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"slices"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// Times of the keys in the store of record.
const (
	// keysPause is the time between comparisons of the keys there with those of this master.
	keysPause = 5 * time.Second
	// keysTime is how long a master waits at its start for the comparison.
	keysTime = 2 * time.Second
)

// storeKeys keeps the keys of the cluster in the store of record.
type storeKeys struct {
	cfg            *Config
	rateLimitedLog *limitlog.Log
	secrets        *keys.Secrets
	keyring        *keyring
	files          *members.Files
}

// share compares the keys of the cluster in the store of record with those of this master, and writes them there if they are
// missing or older.
func (k *storeKeys) share(ctx context.Context) error {
	store := k.cfg.Store
	there, err := store.Keys(ctx)
	if err != nil && salt.KindOf(err) == salt.Unavailable {
		return err
	}
	ring := k.keyring.ring.Load()
	if err == nil && there != nil {
		pub, err := crypt.ParsePublic(there.ClusterPub)
		switch {
		case err != nil: // written again below
		case pub.Equal(ring.Key.Public()):
			store.Checked(nil)
			return nil
		case !ring.Related(nil, keys.Tag(pub)):
			if precedes(ring.Key.Public(), pub, there.Rotation) { // the records bring the rotation, and followKey the key
				store.Checked(nil)
				return nil
			}
			foreign := salt.Errorf(salt.Invalid, "the store of record has the keys of another cluster of the name %s (fingerprint %s): use another cluster_id, or "+
				"remove cluster_pki_dir and cachedir of this master to let it join that cluster", k.cfg.Options.ID, keys.Tag(pub))
			store.Checked(foreign)
			return foreign
		}
	}
	rotation, err := json.Marshal(ring.Rotation)
	if err != nil {
		return err
	}
	w := &wire.Welcome{ClusterPEM: ring.Key.PEM(), ClusterPub: ring.Key.Public().PEM(), AES: k.secrets.AES.Current(), Sessions: k.secrets.Sessions.Current(),
		Rotation: rotation, Peers: value.DictOf(k.cfg.ID, k.cfg.OwnPub)}
	if err := store.SaveKeys(ctx, w); err != nil {
		return err
	}
	store.Checked(nil)
	return nil
}

// precedes reports whether a key was replaced by another one, according to the rotation of the latter.
func precedes(old, current *crypt.PublicKey, rotation []byte) bool {
	var r keys.Rotation
	if json.Unmarshal(rotation, &r) != nil {
		return false
	}
	return slices.ContainsFunc(keys.Ancestors(current, r.Endorsed), old.Equal)
}

// WriteOwnKey makes the members know this master by its present key. The store of record may have the key that it had before its
// disk was lost.
func (k *storeKeys) WriteOwnKey() error {
	if _, removed, err := k.files.Banned(k.cfg.ID); removed || err != nil {
		return err
	}
	path := k.secrets.PeerPath(k.cfg.ID)
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, k.cfg.OwnPub) {
		return nil
	}
	return atomicfile.Write(path, k.cfg.OwnPub, 0o644, true)
}

// run calls share now and then until ctx ends: the store may be emptied, or restored from a backup.
func (k *storeKeys) run(ctx context.Context) {
	for {
		err := k.share(ctx)
		if err == nil {
			err = k.WriteOwnKey()
		}
		if err != nil && ctx.Err() == nil {
			k.rateLimitedLog.Warn("store keys", "cannot compare the keys of the cluster with the store of record", "err", err)
		}
		if !wait.Sleep(ctx, keysPause) {
			return
		}
	}
}
