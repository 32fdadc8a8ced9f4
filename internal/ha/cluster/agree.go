package cluster

import (
	"context"
	"errors"

	"io/fs"
	"maps"
	"net"
	"os"

	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/refusal"
)

// tryHandshake connects to the peer and disconnects.
func (p *peer) tryHandshake(ctx context.Context) error {
	c := p.c
	s, _, err := p.handshake(ctx)
	if err == nil {
		c.conns.Remove(s.Conn.Raw)
		s.Conn.Close()
	}
	return err
}

// consent returns what the peer answers to this master, nil if it agrees. It retries a peer that takes the connection but does not answer,
// until ctx ends, and one whose refusal may pass.
func (p *peer) consent(ctx context.Context) error {
	var late time.Time
	for {
		err := p.tryHandshake(ctx)
		passing := time.Duration(0)
		switch {
		case refusal.Is(err, refusal.Data):
			passing = dataTime // a network file system may show data late
		case refusal.Is(err, refusal.InUse):
			passing = 2 * aliveTime // the connection of this master's previous process may still be open there
		}
		switch {
		case passing > 0:
			if late.IsZero() {
				late = time.Now().Add(passing)
			}
			if time.Now().After(late) {
				return err
			}
		case !silent(err):
			return err
		}
		if !wait.Sleep(ctx, dataPause) {
			return err
		}
	}
}

// silent reports whether the peer took the connection and did not answer in time.
func silent(err error) bool {
	var made unreachableError
	var timeout net.Error
	return !errors.As(err, &made) && errors.As(err, &timeout) && timeout.Timeout()
}

// unshared returns an error if this master has just created the key of the cluster although a peer runs whose key is not in the directory:
// it is not the one that the masters share, for example because it is not mounted. With a key of its own this master would make minions
// refuse the others. The created key is removed.
func unshared(c *local) error {
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
	err := salt.Errorf(salt.Invalid,
		"cluster_pki_dir %s had no key of the cluster and has none of %s, which runs: it is not the directory that the masters share. Is it mounted?",
		c.cfg.Options.PKIDir, strings.Join(absent, ", "))
	return errors.Join(err, c.secrets.Discard())
}

// Times at the start of a master.
const (
	// agreeTime is how long the key of a peer that takes connections may be missing.
	agreeTime = 3 * time.Second
	// answerTime is how long a peer that takes connections may take to answer. It is no longer, so that a master starts beside one that hangs.
	answerTime = 30 * time.Second
	// dataTime is how long data of a peer may be older than the peer, dataPause the time between two looks at it. A network file system may
	// show it late.
	dataTime  = 3 * time.Second
	dataPause = 250 * time.Millisecond
)

// agree checks the settings with the running Brine masters. Those that are unreachable are checked when they connect, as are those that take
// connections but have not answered after answerTime.
func (c *Cluster) agree() error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	var mu sync.Mutex
	var reasons, unknown []string  // unknown: a member may not know yet who has joined
	var clocks []string            // of two clocks it is unknown which one is wrong
	unnamed := map[string]string{} // by peer
	agreed := c.founding           // accepted by the member that admitted it
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		if _, err := os.Stat(markPath(c.cfg.Options.PKIDir, p.id)); err != nil && !c.cfg.Options.Isolated {
			continue
		}
		wg.Go(func() {
			err := p.consent(ctx)
			mu.Lock()
			defer mu.Unlock()
			r := refusal.Of(err)
			switch {
			case err == nil:
				agreed = true
			case r == nil && silent(err):
				c.log.Warn("continuing without the answer of a peer that accepts connections; checking it when it connects", "peer", p.id, "err", err)
			case r == nil:
			case r.Code == refusal.Shares:
				c.log.Warn("continuing without a peer: "+r.Reason, "peer", p.id)
				agreed = true
			case r.Code == refusal.Clock && c.cfg.Options.Isolated:
				clocks = append(clocks, r.Reason)
			case r.Code == refusal.NotMember:
				unknown = append(unknown, r.Reason)
			case r.Code == refusal.Unnamed:
				unnamed[p.id] = r.Reason
			default:
				reasons = append(reasons, r.Reason)
			}
		})
	}
	wg.Wait()
	if !agreed {
		reasons = append(reasons, unknown...)
		reasons = slices.AppendSeq(reasons, maps.Values(unnamed))
	} else {
		// One master with an incomplete list must not keep the others from starting.
		for _, id := range slices.Sorted(maps.Keys(unnamed)) {
			c.log.Warn("continuing without a peer: "+unnamed[id], "peer", id)
		}
	}
	if !agreed && len(clocks) > 1 {
		reasons = append(reasons, clocks...) // its own clock is wrong
	} else if len(clocks) > 0 {
		c.log.Warn("continuing without a peer until the clocks agree", "reasons", strings.Join(clocks, "; "))
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	if len(unknown) > 0 && !agreed {
		reasons = append(reasons, c.local.wayBack())
	}
	return salt.Errorf(salt.Invalid, "this master cannot be a member of the cluster: %s", strings.Join(reasons, "; "))
}
