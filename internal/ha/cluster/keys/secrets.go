// Package keys stores the keys and secrets of a cluster as files in cluster_pki_dir: the key pair that minions know and its replacement,
// the key of publications, the secret of session keys, the joining secret, and the masters' public keys.
//
// It opens no connection.
package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
)

// peersDir, in cluster_pki_dir, has the masters' public keys.
const PeersDir = "peers"

// AESName is the file of the key of publications in cluster_pki_dir.
const AESName = ".aes"

// SessionFile, in cluster_pki_dir, has the secret from which minions' session keys are computed.
const SessionFile = ".sessions"

// Secrets are the keys shared by the masters of a cluster, and those that identify the masters to each other. All are in cluster_pki_dir.
// Missing ones are created atomically: if several masters start at once, one creates them and all use them.
type Secrets struct {
	Dir string
	ID  string
	Own *crypt.PrivateKey
	// Key is the cluster's key pair at the start of the master; see Cluster.Key.
	Key *crypt.PrivateKey
	AES *AES
	// Sessions is the secret of minions' session keys, in the same form.
	Sessions *AES
	// Created is true if this process made the cluster's key pair.
	Created bool
}

// Discard removes the cluster's key pair.
func (s *Secrets) Discard() error {
	return errors.Join(os.Remove(filepath.Join(s.Dir, PairName+".pem")), os.Remove(filepath.Join(s.Dir, PairName+".pub")))
}

// OpenSecrets loads or creates the keys in dir, and writes this master's own public key there for its peers.
func OpenSecrets(dir, id string, own *crypt.PrivateKey, ownPub []byte, pass string, bits int, log *slog.Logger) (*Secrets, error) {
	for _, d := range []struct {
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {filepath.Join(dir, PeersDir), 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot create a directory of the cluster: %w", err)
		}
	}
	s := &Secrets{Dir: dir, ID: id, Own: own, AES: &AES{path: filepath.Join(dir, AESName)}, Sessions: &AES{path: filepath.Join(dir, SessionFile)}}
	if err := s.leaveKey(ownPub); err != nil {
		return nil, err
	}
	var err error
	if s.Key, s.Created, err = sharedKey(dir, pass, bits, log); err != nil {
		return nil, err
	}
	return s, s.AES.Make()
}

// leaveKey writes the own public key for the peers. Salt compares the files byte by byte.
func (s *Secrets) leaveKey(pub []byte) error {
	path := s.PeerPath(s.ID)
	err := atomicfile.Create(path, pub, 0o644)
	if err == nil || !errors.Is(err, fs.ErrExist) {
		return err
	}
	there, err := os.ReadFile(path)
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot read the key that peers know of this master: %w", err)
	}
	if !bytes.Equal(there, pub) {
		return salt.Errorf(salt.Invalid,
			"Shared key does not match, remove it to continue: %s is not the key in pki_dir of this master. Another master with the id %s may run, "+
				"or this one got a new key", path, s.ID)
	}
	return nil
}

// PeerPath returns the file with the public key of a master.
func (s *Secrets) PeerPath(id string) string { return filepath.Join(s.Dir, PeersDir, id+".pub") }

// PeerKey returns the public key of a peer; the error matches fs.ErrNotExist if it does not exist (yet, or any more).
func (s *Secrets) PeerKey(id string) (*crypt.PublicKey, error) {
	return crypt.LoadPublic(s.PeerPath(id))
}

// Holders returns the ids, except one, under which a public key is stored in dir.
func Holders(dir string, key *crypt.PublicKey, except string) (ids []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, PeersDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Unavailable, "cannot list the members of the cluster: %w", err)
	}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), ".pub")
		if !ok || id == except || salt.CheckID(id) != nil {
			continue
		}
		if k, err := crypt.LoadPublic(filepath.Join(dir, PeersDir, e.Name())); err == nil && k.Equal(key) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// sharedKey reads or creates the cluster's key pair.
func sharedKey(dir, pass string, bits int, log *slog.Logger) (key *crypt.PrivateKey, created bool, err error) {
	path := filepath.Join(dir, PairName+".pem")
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		k, err := crypt.GenerateKey(bits)
		if err != nil {
			return nil, false, err
		}
		// Another master may have been faster; use its pair then.
		switch err := crypt.WriteKeyPair(dir, PairName, k, pass); {
		case err == nil:
			created = true
			log.Info("created the key pair of the cluster", "path", dir)
		case !errors.Is(err, fs.ErrExist):
			return nil, false, err
		}
	}
	k, err := crypt.LoadOwn(path, pass, log)
	if err != nil {
		return nil, false, err
	}
	public := filepath.Join(dir, PairName+".pub")
	pub, err := crypt.LoadPublic(public)
	if errors.Is(err, fs.ErrNotExist) {
		return k, created, crypt.WritePublic(public, k.Public())
	}
	if err == nil && !pub.Equal(k.Public()) && isRotated(dir, k.Public()) {
		return k, created, atomicfile.Write(public, k.Public().PEM(), 0o644, true) // the previous process ended between the two writes
	}
	if err == nil && !pub.Equal(k.Public()) {
		err = salt.Errorf(salt.Invalid, "%s does not belong to %s: copy both from the same place, or remove the .pub file", public, path)
	}
	return k, created, err
}

// AES is a symmetric key of the cluster, for publications or sessions, in a file that any master may replace.
type AES struct {
	path string

	mu    sync.Mutex
	key   string
	stamp FileStamp
}

// FileStamp identifies a version of a file.
type FileStamp struct {
	mtime time.Time
	size  int64
	inode any
}

// StampOf returns the stamp of a file.
func StampOf(fi fs.FileInfo) FileStamp { return FileStamp{fi.ModTime(), fi.Size(), inodeOf(fi)} }

// Make creates the key if there is none.
func (a *AES) Make() error {
	for range 3 {
		if a.Current() != "" {
			return nil
		}
		if err := atomicfile.Create(a.path, []byte(crypt.NewKey()), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return salt.Errorf(salt.Invalid, "%s is not an AES key; remove it to create a new one", a.path)
}

// Current returns the key in the file. While the file is missing or incomplete, as during replacement by a stock master, it returns the
// previous key.
func (a *AES) Current() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	fi, err := os.Stat(a.path)
	if err != nil || a.key != "" && StampOf(fi) == a.stamp {
		return a.key
	}
	b, err := os.ReadFile(a.path)
	if err != nil {
		return a.key
	}
	key := strings.TrimSpace(string(b))
	if _, err := crypt.NewCrypticle(key); err != nil {
		return a.key
	}
	a.key, a.stamp = key, StampOf(fi)
	return key
}

// Age returns the age of the key.
func (a *AES) Age(now time.Time) (time.Duration, error) {
	fi, err := os.Stat(a.path)
	if err != nil {
		return 0, err
	}
	return now.Sub(fi.ModTime()), nil
}

// Replace generates a new key.
func (a *AES) Replace() error {
	if err := atomicfile.Write(a.path, []byte(crypt.NewKey()), 0o600, true); err != nil {
		return fmt.Errorf("cannot replace a key of the cluster: %w", err)
	}
	return nil
}

// isRotated reports whether k is the key of the cluster that a rotation has made current.
func isRotated(dir string, k *crypt.PublicKey) bool {
	r, ok, err := ReadRotation(dir)
	return err == nil && ok && crypt.CleanKey(r.Pub) == crypt.CleanKey(string(k.PEM()))
}
