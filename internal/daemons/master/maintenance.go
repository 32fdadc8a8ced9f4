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
	"sync/atomic"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// dropfile is how salt-key, ours or Salt's, asks for a new AES key: a file
// that holds the id of the master it is meant for.
const dropfile = ".dfn"

// maintain does what has to be done by time, until ctx ends.
func (m *Master) maintain(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	var lastRound, lastFiles time.Time
	var cleaning, looking atomic.Bool
	rotations := ratelimit.NewLog(m.log, 1, time.Minute)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-second.C:
			if err := rotateOnRequest(filepath.Join(m.cfg.CacheDir, dropfile), m.cfg.ID, m.rotateAES); err != nil {
				rotations.Log(slog.LevelError, "cannot replace the AES key", "err", err)
			}
			m.expireQueued()
			m.handToStock()
			m.noteStates()
			if now.Sub(lastFiles) >= max(m.cfg.Files.Interval, time.Second) {
				lastFiles = now
				m.updateFiles(ctx)
			}
			if now.Sub(lastRound) < max(m.options().LoopInterval, time.Second) {
				continue
			}
			lastRound = now
			m.round()
			if m.options().PresenceEvents && !looking.Swap(true) {
				go func() { // other masters may take their time
					defer looking.Store(false)
					m.firePresence(ctx)
				}()
			}
			if !cleaning.Swap(true) {
				go func() {
					defer cleaning.Store(false)
					m.cleanOutlets(ctx)
				}()
			}
		}
	}
}

// round is one turn of housekeeping.
func (m *Master) round() {
	m.forgetDeleted(time.Now())
	if !m.sharesFolder() || m.cluster.Leads() {
		if _, err := m.jobs.Prune(); err != nil {
			m.log.Error("cannot remove old jobs", "err", err)
		}
	}
	if keep := m.cfg.Jobs.Keep(); keep > 0 && !m.sharesFolder() {
		if _, err := m.stockJobs.Prune(keep, time.Now()); err != nil {
			m.log.Warn("cannot remove old jobs of Salt's own command line", "err", err)
		}
	}
	m.forgetPeers(time.Now())
	m.pruneMinions()
	if err := m.tokens.Sweep(time.Now()); err != nil {
		m.log.Warn("cannot remove old tokens", "err", err)
	}
}

// updateFiles looks for changed files and tells the bus, if it is to.
func (m *Master) updateFiles(ctx context.Context) {
	if !m.cfg.Files.Events {
		return // nobody would hear of it: changes are seen at each request
	}
	var here []string // others have times of their own
	files := m.fileServer()
	for _, name := range files.Backends(nil) {
		if len(files.Fetchers(name)) == 0 {
			here = append(here, name)
		}
	}
	if len(here) == 0 {
		return
	}
	changes, err := files.Update(ctx, here...)
	if err != nil {
		m.log.Error("cannot look for changed files", "err", err)
	}
	m.tellChanges(changes)
}

// fetchFiles keeps what is served from elsewhere up to date, until ctx ends.
// Fetching may take minutes and delays no other work.
func (m *Master) fetchFiles(ctx context.Context) error {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		for _, f := range m.fileServer().Fetchers() {
			leads := m.fetchesForAll()
			c, any, err := f.Due(ctx, leads)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				m.log.Error("cannot bring a file server up to date; it goes on serving what it has", "fileserver_backend", f.Name(), "err", err)
			}
			if any {
				m.tellChanges([]fileserver.Changes{c})
				if leads {
					m.tellFetched(c.Fetched)
				}
			}
		}
		m.fetchPillars(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-second.C:
		}
	}
}

// fetchPillars does the same for the git repositories of the pillar.
func (m *Master) fetchPillars(ctx context.Context) {
	leads := m.fetchesForAll()
	changed, fetched, faults := m.live.Load().git.Due(ctx, leads)
	if ctx.Err() != nil {
		return
	}
	if leads {
		m.tellFetched(fetched)
	}
	if changed {
		m.log.Info("git_pillar has fetched changes")
	}
	for _, f := range faults {
		d := value.DictOf("backend", "git_pillar", "remote", f.Remote, "error", nil)
		if f.Error != "" {
			m.log.Error("cannot update a git repository of the pillar; its last state goes on counting", "remote", f.Remote, "err", f.Error)
			d.Set("error", f.Error)
		}
		m.bus.Fire(salt.Tag("pillar", "git", "fault"), d)
	}
}

// tellChanges puts on the bus what has changed, if it is to hear of that, and
// what goes wrong for the first time or no more.
func (m *Master) tellChanges(changes []fileserver.Changes) {
	for _, c := range changes {
		if m.cfg.Files.Events && c.Backend != "" {
			m.bus.Fire(salt.Tag("fileserver", c.Backend, "update"), c.Event())
		}
		for _, id := range slices.Sorted(maps.Keys(c.Faults)) {
			d := value.DictOf("backend", c.Backend, "remote", id, "error", nil)
			if text := c.Faults[id]; text != "" {
				d.Set("error", text)
			}
			m.bus.Fire(salt.Tag("fileserver", c.Backend, "fault"), d)
		}
	}
}

// rotateOnRequest calls rotate if the drop file asks the master with this id for
// a new AES key, and removes the file afterwards: salt-key and scripts wait until
// it is gone, and then all masters of a cluster must use the new key. If rotate
// fails, the request stays.
func rotateOnRequest(path, id string, rotate func() error) error {
	fi, err := os.Lstat(path)
	if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o400 || fi.Size() > 1024 {
		return nil
	}
	b, err := os.ReadFile(path)
	if err != nil || strings.TrimSpace(string(b)) != id {
		return nil
	}
	// A file that cannot be removed must not ask again each second.
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("the request for a new AES key is not followed, because it could not be removed: %w", err)
	}
	if err := rotate(); err != nil {
		return errors.Join(err, os.Chmod(path, 0o400))
	}
	return os.Remove(path)
}

// RotateAES replaces the key of publications. Minions that still have an
// accepted key notice at the next publication and sign in again.
func (m *Master) RotateAES() {
	if err := m.rotateAES(); err != nil {
		m.log.Error("cannot replace the AES key", "err", err)
	}
}

func (m *Master) rotateAES() error {
	rotate := m.publish.Rotate
	if m.cluster != nil {
		rotate = m.cluster.Rotate
	}
	if err := rotate(); err != nil {
		return err
	}
	m.log.Info("the AES key was replaced")
	m.bus.Fire("key", value.DictOf("rotate_aes_key", true))
	if m.options().PingOnRotate {
		m.Publish(value.DictOf("fun", "test.ping", "arg", &value.List{}, "tgt", "*", "tgt_type", "glob", "ret", "", "user", "root"))
	}
	return nil
}
