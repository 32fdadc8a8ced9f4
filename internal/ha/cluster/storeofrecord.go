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
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/record"
	"brine/internal/net/crypt"
	"brine/internal/net/remote/rows"
	"brine/internal/py/value"
)

// checkRecord checks the options of the store of record.
func (o *Options) checkRecord() error {
	switch {
	case o.Record == "":
		return nil
	case !slices.Contains(rows.Engines(), o.Record):
		return salt.Errorf(salt.Invalid, "store_of_record is %.80q: use etcd or postgres", o.Record)
	case !o.Isolated:
		return salt.Errorf(salt.Invalid, "store_of_record needs cluster_isolated_filesystem: True: masters that share a directory keep their state there")
	}
	return record.CheckSecret(o.RecordSecret)
}

// joinStore writes the keys of the cluster that the store of record has to cluster_pki_dir. If the store has none, joined is
// false, and err is nil if this master may create them.
func joinStore(cfg *Config) (joined bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinStoreTime)
	defer cancel()
	w, err := cfg.Store.Keys(ctx)
	switch {
	case err != nil:
		return false, err
	case w == nil:
		return false, cfg.Store.Claim(ctx)
	}
	return true, settle(cfg, w)
}

// Times of the keys in the store of record.
const (
	joinStoreTime = 10 * time.Second
	// keysPause is the time between comparisons of the keys there with those of this master.
	keysPause = 5 * time.Second
	// keysTime is how long a master waits at its start for the comparison.
	keysTime = 2 * time.Second
)

// shareKeys compares the keys of the cluster in the store of record with those of this master, and writes them there if they are
// missing or older.
func (c *Cluster) shareKeys(ctx context.Context) error {
	store := c.cfg.Store
	there, err := store.Keys(ctx)
	if err != nil && salt.KindOf(err) == salt.Unavailable {
		return err
	}
	ring := c.Keyring.ring.Load()
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
				"remove cluster_pki_dir and cachedir of this master to let it join that cluster", c.cfg.Options.ID, keys.Tag(pub))
			store.Checked(foreign)
			return foreign
		}
	}
	rotation, err := json.Marshal(ring.Rotation)
	if err != nil {
		return err
	}
	w := &wire.Welcome{ClusterPEM: ring.Key.PEM(), ClusterPub: ring.Key.Public().PEM(), AES: c.secrets.AES.Current(), Sessions: c.secrets.Sessions.Current(),
		Rotation: rotation, Peers: value.DictOf(c.cfg.ID, c.cfg.OwnPub)}
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
func (c *Cluster) WriteOwnKey() error {
	if _, removed, err := c.files.Banned(c.cfg.ID); removed || err != nil {
		return err
	}
	path := c.secrets.PeerPath(c.cfg.ID)
	if b, err := os.ReadFile(path); err == nil && bytes.Equal(b, c.cfg.OwnPub) {
		return nil
	}
	return atomicfile.Write(path, c.cfg.OwnPub, 0o644, true)
}

// tendStore calls shareKeys now and then until ctx ends: the store may be emptied, or restored from a backup.
func (c *Cluster) tendStore(ctx context.Context) {
	for {
		err := c.shareKeys(ctx)
		if err == nil {
			err = c.WriteOwnKey()
		}
		if err != nil && ctx.Err() == nil {
			c.rateLimitedLog.Warn("store keys", "cannot compare the keys of the cluster with the store of record", "err", err)
		}
		if !wait.Sleep(ctx, keysPause) {
			return
		}
	}
}

// Fresh reports whether this process created the keys of the cluster, or got them from another master or from the store of record:
// its disk had none.
func (c *Cluster) Fresh() bool { return c.founding }
