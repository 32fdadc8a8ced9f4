package cluster

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
)

// tryHandshake connects to a peer and disconnects.
func (c *Cluster) tryHandshake(ctx context.Context, p *peer) error {
	s, _, err := p.handshake(ctx)
	if err == nil {
		c.conns.Remove(s.Conn.Raw)
		s.Conn.Close()
	}
	return err
}

// unshared returns an error if this master has just created the key of the cluster although a peer runs whose key is not in the directory:
// it is not the one that the masters share, for example because it is not mounted. With a key of its own this master would make minions
// refuse the others. The created key is removed.
func (c *Cluster) unshared() error {
	if !c.secrets.Created || c.cfg.Options.Isolated {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), agreeTime)
	defer cancel()
	var mu sync.Mutex
	var absent []string
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		wg.Go(func() {
			conn, err := p.dial(ctx)
			if err != nil {
				return
			}
			c.conns.Remove(conn)
			conn.Close()
			for {
				if _, err = c.secrets.PeerKey(p.id); !errors.Is(err, fs.ErrNotExist) {
					return
				}
				select {
				case <-time.After(dataPause):
					continue
				case <-ctx.Done():
				}
				break
			}
			mu.Lock()
			defer mu.Unlock()
			absent = append(absent, p.id)
		})
	}
	wg.Wait()
	if len(absent) == 0 {
		return nil
	}
	slices.Sort(absent)
	err := salt.Errorf(salt.Invalid, "cluster_pki_dir %s had no key of the cluster and has none of %s, which runs: it is not the directory that the masters share. Is it mounted?",
		c.cfg.Options.PKIDir, strings.Join(absent, ", "))
	return errors.Join(err, c.secrets.Discard())
}
