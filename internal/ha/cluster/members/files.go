// Package members has what the masters of a cluster publish for each other and for minions, as files in
// cluster_pki_dir: the members, the addresses at which minions reach them, the share of the minions that each
// requests, whether it drains, and removed ids that may not join again. From these the leader creates the signed list
// for minions.
//
// Other packages share or replicate the files; this package only reads and writes them.
package members

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/roster"
)

// Each master writes its addresses for minions to cluster_pki_dir/members/ID; draining is recorded there by the master that received the
// command. From these files, and from the keys of the members, the leading master creates the list for minions, signs it and stores it
// beside them in roster. Without a shared directory these files are replicated like others.
const (
	StationsDir = "members"
	// This directory is separate because other masters write files in StationsDir, too (Drain).
	SharesDir  = "shares"
	RosterFile = "roster"
)

// Station is the content of a member's file.
type Station struct {
	Host     string         `json:"host"`
	Ports    map[string]int `json:"ports"`
	Zone     string         `json:"zone,omitempty"`
	Draining bool           `json:"draining,omitempty"`
	// TLS means that other masters must use TLS with it.
	TLS bool `json:"tls,omitempty"`
	// Sessions means that its version computes session keys from SessionFile.
	Sessions bool `json:"sessions,omitempty"`
	// Key is the fingerprint of the cluster key that it uses.
	Key string `json:"key,omitempty"`
	// Copies is the number of masters on which it wants each return, 0: all, and Keep how many seconds it keeps them. Copies is nil for a
	// version that needs all.
	Copies *int  `json:"copies,omitempty"`
	Keep   int64 `json:"keep,omitempty"`
	// Since is when it began to drain.
	Since time.Time `json:"since,omitzero"`
}

// maxStation bounds the size of such a file in bytes.
const maxStation = 16 << 10

// RemovedDir, in cluster_pki_dir, has a file for each removed id that may not join again.
const RemovedDir = "removed"

// Paths are the files and directories that members replicate; it is cluster_pki_dir.
type Paths string

// PeersDir is the directory with the masters' public keys, ID.pub. Without a shared directory these keys define the members of the cluster.
func (p Paths) PeersDir() string { return filepath.Join(string(p), keys.PeersDir) }

// AESFile is the file of the key of publications.
func (p Paths) AESFile() string { return filepath.Join(string(p), keys.AESName) }

// StationsDir is the directory of the members' files.
func (p Paths) StationsDir() string { return filepath.Join(string(p), StationsDir) }

// RosterFile is the signed list for minions.
func (p Paths) RosterFile() string { return filepath.Join(string(p), RosterFile) }

// SharesDir is the directory of the requested shares of minions, a file with a number per master. A master without a file has a full share.
func (p Paths) SharesDir() string { return filepath.Join(string(p), SharesDir) }

// RemovedDir is the directory of the ids that may not join again.
func (p Paths) RemovedDir() string { return filepath.Join(string(p), RemovedDir) }

// Files reads and writes the files of members.
type Files struct {
	Paths
	Log *limitlog.Log
}

func (f *Files) sharePath(id string) string { return filepath.Join(f.SharesDir(), id) }

func (f *Files) stationPath(id string) string { return filepath.Join(f.StationsDir(), id) }

func (f *Files) removedPath(id string) string { return filepath.Join(f.RemovedDir(), id) }

// Read returns the file of a member.
func (f *Files) Read(id string) (s Station, err error) {
	fi, err := os.Stat(f.stationPath(id))
	if err != nil {
		return s, err
	}
	if fi.Size() > maxStation {
		return s, salt.Errorf(salt.Invalid, "%s is too large", f.stationPath(id))
	}
	b, err := os.ReadFile(f.stationPath(id))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// Write replaces the file of a member.
func (f *Files) Write(id string, s Station) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(f.stationPath(id), append(b, '\n'), 0o644, true)
}

// Forget removes a member's file.
func (f *Files) Forget(id string) error {
	for _, path := range []string{f.stationPath(id), f.sharePath(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Share returns the share that a master requests, 0 if there is none.
func (f *Files) Share(id string) int {
	b, err := os.ReadFile(f.sharePath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	n := 0
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(b[:min(len(b), maxShareText)])))
	}
	if err != nil || n < 1 || n > roster.MaxShare {
		f.Log.Warn("share "+id, "cannot read the share of minions that a member requests; assuming a full share", "member", id, "err", err)
		return 0
	}
	return n
}

const maxShareText = 16

// List returns the members with a file, sorted, and the ids of the others.
func (f *Files) List() (members []roster.Member, silent []string, err error) {
	entries, err := os.ReadDir(f.PeersDir())
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if !ok || salt.CheckID(id) != nil || strings.HasPrefix(id, ".") {
			continue
		}
		s, err := f.Read(id)
		m := roster.Member{ID: id, Host: s.Host, Ports: s.Ports, Zone: s.Zone, Draining: s.Draining}
		if share := f.Share(id); share != roster.FullShare {
			m.Share = share
		}
		if err == nil {
			err = m.Check()
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			silent = append(silent, id)
		case err != nil:
			f.Log.Warn("station "+id, "ignoring the invalid file of a member", "member", id, "err", err)
			silent = append(silent, id)
		default:
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b roster.Member) int { return strings.Compare(a.ID, b.ID) })
	return members, silent, nil
}

// ByID returns the members as seen by minions.
func (f *Files) ByID() map[string]roster.Member {
	out := map[string]roster.Member{}
	members, _, err := f.List()
	if err != nil {
		f.Log.Warn("stations", "cannot read the files of the members", "err", err)
	}
	for _, m := range members {
		out[m.ID] = m
	}
	return out
}

// Removal is the content of the file of a removed id.
type Removal struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// Ban records that an id may not join again.
func (f *Files) Ban(by, id string) error {
	b, err := json.Marshal(Removal{By: by, At: time.Now().UTC().Truncate(time.Second)})
	if err == nil {
		err = os.MkdirAll(f.RemovedDir(), 0o755)
	}
	if err == nil {
		err = atomicfile.Write(f.removedPath(id), append(b, '\n'), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot record that %s was removed: %w", id, err)
	}
	return nil
}

// Banned returns when an id was removed; ok is false if it may join.
func (f *Files) Banned(id string) (r Removal, ok bool, err error) {
	b, err := os.ReadFile(f.removedPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, true, salt.Errorf(salt.Unavailable, "cannot read whether %s was removed: %w", id, err)
	}
	json.Unmarshal(b, &r) // the file's existence is enough
	return r, true, nil
}

// Readmit lets a removed id join again.
func (f *Files) Readmit(id string) error {
	if salt.CheckID(id) != nil {
		return salt.Errorf(salt.Invalid, "%.100q is not a valid id of a master", id)
	}
	err := os.Remove(f.removedPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return salt.Errorf(salt.NotFound, "no master %s was removed from the cluster: it may join", id)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot readmit %s: %w", id, err)
	}
	return nil
}
