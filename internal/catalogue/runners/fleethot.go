package runners

import (
	"context"
	"net"
	"slices"
	"time"

	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// HotMasters are other masters with the key of this one that are no cluster with it (the option hot_masters).
type HotMasters interface {
	// Masters returns what they last told.
	Masters() []HotMaster
	// FileHashes returns the hashes of files by master and path.
	FileHashes(ctx context.Context, env string, paths []string) map[string]map[string]string
}

// HotMaster is one of them.
type HotMaster struct {
	// ID is its address until it has answered.
	ID, Address, Version string
	// Problem is why it does not answer, or "".
	Problem     string
	Since, Seen time.Time
	// Minions are connected there; nil while it does not answer.
	Minions map[string]bool
	// Names are what minions call it.
	Names []string
	Keys  []HotKey
	// Load is how busy it is; nil if it does not say so.
	Load *MasterLoad
}

// HotKey is a key at a master. List is the directory of its state, such as minions_pre.
type HotKey struct{ ID, List, Fingerprint string }

// hot returns the other masters.
func (c Console) hot() []HotMaster {
	if c.Hot == nil {
		return nil
	}
	return c.Hot.Masters()
}

func (c Console) fileHashes(ctx context.Context, env string, paths []string) map[string]map[string]string {
	if c.Hot == nil || len(paths) == 0 {
		return nil
	}
	return c.Hot.FileHashes(ctx, env, paths)
}

// hotNames maps what minions call the other masters to their ids.
func hotNames(all []HotMaster, byHost map[string]string) {
	for _, m := range all {
		for _, name := range append(slices.Clone(m.Names), m.Address) {
			byHost[name] = m.ID
			if host, _, err := net.SplitHostPort(name); err == nil {
				byHost[host] = m.ID
			}
		}
	}
}

// addHot adds what hot masters tell of themselves to the rows of masters.
func addHot(all []HotMaster, rows map[string]*value.Dict) {
	for _, m := range all {
		d := value.DictOf("id", m.ID, "state", minionUp, "here", false, "hot", true)
		if m.Problem != "" {
			d.Set("state", minionDown)
			d.Set("problem", m.Problem)
		}
		d.Set("version", orNil(m.Version))
		d.Set("since", stamp(m.Since))
		d.Set("seen", stamp(m.Seen))
		rows[m.ID] = d
	}
}

// hotAccepted returns the minions that other masters have accepted.
func hotAccepted(all []HotMaster) (ids []string) {
	for _, m := range all {
		for _, k := range m.Keys {
			if k.List == keystore.Accepted.DirName() {
				ids = append(ids, k.ID)
			}
		}
	}
	return ids
}
