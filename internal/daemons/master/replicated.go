package master

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/call/auth"
	"brine/internal/ha/cluster"
	"brine/internal/ha/replica"
	"brine/internal/py/value"
	"brine/internal/store/cache"
	"brine/internal/store/oplog"
	"brine/internal/store/shared"
)

// replicated is the state that the masters of a cluster without a shared directory
// replicate: each has all of it on its own disk, and sends changes to the others.
// Jobs and returns are replicated the same way, from the job store itself.
type replicated struct {
	id       string // id of this master
	cacheDir string
	cluster  *cluster.Cluster
	log      *slog.Logger

	records *replica.Store
	mirrors map[string]*replica.Mirror
	minions *replica.Nested

	// forgot is when old deletions were last removed; acked and seen are the changes that all
	// masters, and any master, knew then.
	forgot      time.Time
	acked, seen oplog.Vector

	leaves atomic.Bool // leave the cluster when the master ends
	// copied says that the other masters have got the returns that they must have when this one has
	// left.
	copied bool
}

// The kinds of records.
const (
	kindKey    = "key"
	kindPeer   = "peer"
	kindSecret = "secret"
	// A kind of its own: a version that does not know it keeps the records, and
	// does not treat the missing file as a deletion.
	kindSession = "session"
	kindRemoved = "removed"
	kindRotated = "rotated"
	kindToken   = "token"
	kindMinion  = "minion"
	kindMember  = "member"
	kindRoster  = "roster"
	kindShare   = "share"
	kindSaved   = "saved"
)

// The streams between masters.
const (
	streamRecords = "records"
	streamJobs    = "jobs"
)

// openReplicated opens the records in the directory own, and synchronizes files
// and records.
func openReplicated(c *replicated, own string, keys *replica.Keys, minions *cache.Cache) (_ *replicated, err error) {
	c.mirrors = map[string]*replica.Mirror{}
	if c.records, err = replica.Open(own, c.id, replica.Ranks{kindKey: replica.KeyRank, kindWork: workRank, kindSaved: shared.Rank}, c.log); err != nil {
		return nil, err
	}
	sets := map[string]replica.FileSet{
		kindKey:  keys,
		kindPeer: &replica.Files{Path: c.cluster.Paths.PeersDir(), Mode: 0o644, Keep: isPeerFile},
		kindSecret: &replica.Files{Path: filepath.Dir(c.cluster.Paths.AESFile()), Mode: 0o600, Initial: true,
			Keep: func(n string) bool { return n == filepath.Base(c.cluster.Paths.AESFile()) || n == cluster.SecretFile }},
		kindSession: &replica.Files{Path: filepath.Dir(c.cluster.Paths.AESFile()), Mode: 0o600, Initial: true,
			Keep: func(n string) bool { return n == cluster.SessionFile }},
		kindRotated: &replica.Files{Path: filepath.Dir(c.cluster.Paths.AESFile()), Mode: 0o644, Initial: true,
			Keep: func(n string) bool { return n == cluster.RotationFile }},
		kindRemoved: &replica.Files{Path: c.cluster.Paths.RemovedDir(), Mode: 0o644, Keep: func(n string) bool {
			return salt.CheckID(n) == nil &&
				!strings.HasPrefix(n, ".")
		}},
		kindMember: &replica.Files{Path: c.cluster.Paths.StationsDir(), Mode: 0o644, Keep: func(n string) bool {
			return salt.CheckID(n) == nil &&
				!strings.HasPrefix(n, ".")
		}},
		kindRoster: &replica.Files{Path: filepath.Dir(c.cluster.Paths.RosterFile()), Mode: 0o644,
			Keep: func(n string) bool { return n == filepath.Base(c.cluster.Paths.RosterFile()) }},
		kindShare: &replica.Files{Path: c.cluster.Paths.SharesDir(), Mode: 0o644, Keep: func(n string) bool {
			return salt.CheckID(n) == nil &&
				!strings.HasPrefix(n, ".")
		}},
		kindSaved: &replica.Files{Path: savedDir(c.cacheDir), Mode: 0o600, Keep: shared.ValidID},
		kindToken: &replica.Files{Path: filepath.Join(c.cacheDir, "tokens"), Mode: 0o600, Keep: auth.ValidToken},
	}
	if minions != nil { // otherwise a cache server stores the data
		c.minions = &replica.Nested{Path: filepath.Join(c.cacheDir, "minions"), Mode: 0o600}
		if err := os.MkdirAll(c.minions.Path, 0o750); err != nil {
			c.Close()
			return nil, fmt.Errorf("cannot make a directory: %w", err)
		}
		sets[kindMinion] = c.minions
		minions.OnChange(func(bank, _ string) {
			if id, ok := strings.CutPrefix(bank, "minions/"); ok {
				c.minions.Touch(id)
			}
		})
	}
	for _, kind := range slices.Sorted(maps.Keys(sets)) {
		c.mirrors[kind] = replica.NewMirror(c.records, kind, sets[kind])
		if err := c.mirrors[kind].Sync(); err != nil {
			c.Close()
			return nil, fmt.Errorf("cannot read the replicated state: %w", err)
		}
	}
	return c, nil
}

// savedDir is the directory of what users saved.
func savedDir(cacheDir string) string { return filepath.Join(cacheDir, "brine", "saved") }

func isPeerFile(name string) bool {
	id, ok := strings.CutSuffix(name, ".pub")
	return ok && salt.CheckID(id) == nil && !strings.HasPrefix(id, ".")
}

// Close closes the records.
func (c *replicated) Close() error {
	if c == nil {
		return nil
	}
	return c.records.Close()
}

// share sends the other masters this one's state, and updates files from
// theirs, until ctx ends; stop waits for that.
func (c *replicated) share(ctx context.Context) (stop func()) {
	c.cluster.Feeds.Share(streamRecords, c.records)
	c.cluster.Removal.Exclude(func(id string) bool {
		r, err := c.records.Get(kindPeer, id+".pub")
		return err == nil && r != nil && r.Value == nil
	})
	c.records.OnChange(func(kind, name string) {
		if id, ok := strings.CutSuffix(name, ".pub"); ok && kind == kindPeer && c.mirrors[kindPeer].Sync() == nil {
			c.cluster.Removal.Look(id)
		}
		if kind == kindRotated && c.mirrors[kindRotated].Sync() == nil {
			go func() { // it queries other masters, maybe over this very connection
				if err := c.cluster.Keyring.FollowKey(ctx); err != nil {
					c.log.Debug("the key of the cluster is not here yet", "err", err)
				}
			}()
		}
	})
	var wg sync.WaitGroup
	for kind, mirror := range c.mirrors {
		wg.Go(func() {
			if err := mirror.Run(ctx); err != nil {
				c.log.Error("replication stopped", "kind", kind, "err", err)
			}
		})
	}
	return wg.Wait
}

// problems returns why files could not be read or written according to the records, by kind.
func (c *replicated) problems() *value.Dict {
	d := value.NewDict(0)
	for _, kind := range slices.Sorted(maps.Keys(c.mirrors)) {
		if why := c.mirrors[kind].Problem(); why != "" {
			d.Set(kind, why)
		}
	}
	return d
}

// Times of a shutdown.
const (
	handOverTime = 5 * time.Second
	leaveTime    = 30 * time.Second
	leaveAfter   = time.Second // lets the response reach the caller
)

// handOver waits until all reachable masters have the data of this one, which accepts no more
// requests. If this master leaves the cluster, it also waits until they know that.
func (c *replicated) handOver() {
	within := handOverTime
	if c.leaves.Load() {
		within = leaveTime
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := c.handedOver(ctx); err != nil {
		c.log.Warn("other masters lack some changes of this master; they get them when it starts again", "err", err)
		return
	}
	if !c.leaves.Load() {
		return
	}
	err := c.cluster.Removal.Forget()
	if err == nil {
		err = c.handedOver(ctx)
	}
	if err != nil {
		c.log.Error("other masters were not notified that this master left; run salt-run cluster.remove there", "id", c.id, "err", err)
		return
	}
	c.log.Info("this master left the cluster; to rejoin, remove cluster_pki_dir and cachedir first")
}

// handedOver does the wait of handOver, until ctx ends.
func (c *replicated) handedOver(ctx context.Context) error {
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, mirror := range c.mirrors {
			if err := mirror.Sync(); err != nil {
				return err
			}
		}
		peers, all, err := c.cluster.Feeds.HandedOver()
		// A peer that learned that this master leaves closes the connection, maybe before
		// it has acknowledged.
		switch {
		case err != nil:
			return err
		case !all:
		case c.leaves.Load():
			if peers > 0 && c.released(ctx) || c.cluster.Removal.Disowned() {
				return nil
			}
		case peers > 0 || c.cluster.Feeds.HadAll():
			return nil
		case c.cluster.Feeds.Alone(began): // a master may be reachable, and the connection to it not made yet
			return errors.New("no other master can be reached")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// released reports whether the other masters can do without the returns of this one.
func (c *replicated) released(ctx context.Context) bool {
	if !c.copied {
		c.copied = released(ctx, c.cluster)
	}
	return c.copied
}

// leave makes this master hand over its data, leave the cluster and exit.
func (c *replicated) leave(end func()) error {
	peers, _, err := c.cluster.Feeds.HandedOver()
	if err == nil && peers == 0 {
		err = salt.Errorf(salt.Unavailable,
			"no other master of the cluster can be reached: what this one alone has would be lost. Start another one, or have one join")
	}
	if err != nil {
		return err
	}
	c.leaves.Store(true)
	time.AfterFunc(leaveAfter, end)
	return nil
}
