package voter

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
)

// Files of a voter of earlier versions, in the directory of the state. Those versions queried each voter separately; a majority of grants was
// the lease.
const (
	oldGrants = "lease"
	oldClaims = "lease.claims"
)

// readOldVoter returns what this voter granted and recorded with an earlier version.
//
// A voter runs one version at a time, and any two majorities of one list share a voter. So when a majority of new voters has elected a
// leader, a lease from a majority of old voters must have been granted before the shared voter was restarted. The leader waits for
// lease.Term before it grants anything.
func readOldVoter(path string) (b lease.Before, err error) {
	dir := filepath.Dir(path)
	var g struct {
		Token uint64 `json:"token"`
	}
	if err := readOld(filepath.Join(dir, oldGrants), &g); err != nil {
		return b, err
	}
	var claims map[string]struct {
		Holder string `json:"holder"`
	}
	if err := readOld(filepath.Join(dir, oldClaims), &claims); err != nil {
		return b, err
	}
	b.Seen = g.Token
	b.Claims.Forgotten = claims[""].Holder // the highest name that was dropped
	b.Claims.By = map[string]string{}
	for name, c := range claims {
		if name != "" {
			b.Claims.By[name] = c.Holder
		}
	}
	return b, nil
}

// hasOldVoter reports whether there are files of an earlier version.
func hasOldVoter(path string) bool {
	for _, name := range []string{oldGrants, oldClaims} {
		if _, err := os.Lstat(filepath.Join(filepath.Dir(path), name)); err == nil {
			return true
		}
	}
	return false
}

func readOld(path string, v any) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return salt.Errorf(salt.Invalid, "cannot read what this voter has granted with an earlier version: %s: %w; if it is damaged, remove it if no "+
			"other voter is in the same state, and start again", path, err)
	}
	return nil
}

// dropOldVoter removes the files of an earlier version, which are no longer used.
func dropOldVoter(path string) error {
	for _, name := range []string{oldGrants, oldClaims} {
		if err := os.Remove(filepath.Join(filepath.Dir(path), name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return salt.Errorf(salt.Unavailable, "cannot remove a file of an earlier version: %w", err)
		}
	}
	return nil
}

// Retire ends the membership of a master in a group because its configuration no longer names voters, as after brine cluster recover. The
// next group uses what it knew, and does not wait for other voters of its former groups.
func Retire(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	n, err := Open(Config{Path: path, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if from := n.e.meta.Before.From; len(from) != 1 || len(from[0].Voters) > 0 {
		n.e.meta.Before.From = []lease.Origin{{Generation: n.e.meta.Generation, Complete: true}}
		if err := n.e.save(change{meta: &n.e.meta}); err != nil {
			return errors.Join(salt.Errorf(salt.Unavailable, "cannot write the state of this voter: %w", err), n.Close())
		}
	}
	return n.Close()
}
