package keys

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
)

// PairName is the base name of the cluster's key pair for minions in cluster_pki_dir, KeyFile and PublicFile are its files.
const (
	PairName   = "cluster"
	KeyFile    = PairName + ".pem"
	PublicFile = PairName + ".pub"
)

// The key of the cluster can be replaced while it runs (RotateKey). The file rotation says which key is current and which former keys
// endorse it; it is replicated like other records and contains no secret. A member whose key is no longer current fetches the private half
// of the current one from the others and switches. From then on it presents the new key to minions, which accept it because of the
// endorsement.
//
// Members switch one by one, and an unreachable one once it is reachable. Until then two members with different keys must accept each
// other. A certificate contains the endorsements, so that a member with an older key can verify one signed by a newer key. A member that
// reports an older key (members/ID) may present a certificate signed by that key. Membership is still decided by each master's own key.

// RotationFile, in cluster_pki_dir, names the current key of the cluster. nextFile contains the private half of a new key until the
// master that created it uses it.
const (
	RotationFile = "rotation"
	NextFile     = "cluster.next.pem"
)

// Rotation is the content of RotationFile: the current key and the endorsements.
type Rotation struct {
	Pub      string        `json:"pub"`
	Endorsed []Endorsement `json:"endorsed"`
}

// Endorsement is the signature of one key of the cluster for its successor.
type Endorsement struct {
	By  string `json:"by"`
	Pub string `json:"pub"`
	Sig []byte `json:"sig"`
}

// Bounds of such a file: the number of endorsements, and its size in bytes.
const (
	maxEndorsed = 8
	maxRotation = 64 << 10
)

// Endorsements returns the endorsements in the form for minions.
func (r *Rotation) Endorsements() []handshake.Endorsement { return PlainEndorsements(r.Endorsed) }

// PlainEndorsements converts endorsements to the form for minions.
func PlainEndorsements(list []Endorsement) (out []handshake.Endorsement) {
	for _, e := range list {
		out = append(out, handshake.Endorsement{Pub: crypt.CleanKey(e.Pub), Sig: e.Sig})
	}
	return out
}

// Ancestors returns the keys that preceded a key, according to the endorsements whose signatures are valid.
func Ancestors(of *crypt.PublicKey, list []Endorsement) (out []*crypt.PublicKey) {
	known := []*crypt.PublicKey{of}
	for i := 0; i < len(known) && len(known) <= maxEndorsed; i++ {
		pem := crypt.CleanKey(string(known[i].PEM()))
		for _, e := range list {
			by, err := crypt.ParsePublic([]byte(e.By))
			if err != nil || crypt.CleanKey(e.Pub) != pem || slices.ContainsFunc(known, by.Equal) {
				continue
			}
			if (handshake.Endorsement{Pub: pem, Sig: e.Sig}).By(by) {
				known = append(known, by)
			}
		}
	}
	return known[1:]
}

// Ring is the key of the cluster and its rotation. It is immutable.
type Ring struct {
	Key         *crypt.PrivateKey
	Fingerprint string // fingerprint
	Rotation    Rotation
	Former      []*crypt.PublicKey
}

// NewRing returns the ring of a key and its rotation.
func NewRing(key *crypt.PrivateKey, r Rotation) *Ring {
	return &Ring{Key: key, Fingerprint: Tag(key.Public()), Rotation: r, Former: Ancestors(key.Public(), r.Endorsed)}
}

// Tag returns the fingerprint that identifies a key among masters.
func Tag(k *crypt.PublicKey) string { return crypt.Fingerprint(k.PEM(), "sha256") }

// ReadRotation returns the content of the file in a directory; ok is false if it is missing.
func ReadRotation(dir string) (r Rotation, ok bool, err error) {
	path := filepath.Join(dir, RotationFile)
	fi, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil && fi.Size() > maxRotation {
		err = errors.New("it is too large")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil {
		_, err = crypt.ParsePublic([]byte(r.Pub))
	}
	if err != nil {
		return r, false, salt.Errorf(salt.Unavailable, "cannot read the rotation of the cluster's key: %s: %w", path, err)
	}
	if len(r.Endorsed) > maxEndorsed {
		r.Endorsed = r.Endorsed[len(r.Endorsed)-maxEndorsed:]
	}
	return r, true, nil
}

// Write stores the rotation in a directory.
func (r Rotation) Write(dir string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, RotationFile), append(b, '\n'), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the rotation of the cluster's key: %w", err)
	}
	return nil
}

// ChainID is the certificate extension with the endorsements of the signing key.
var ChainID = asn1.ObjectIdentifier{2, 25, 1479625103, 1893460457}

// ChainOf returns the endorsements in a certificate.
func ChainOf(cert *x509.Certificate) (list []Endorsement) {
	for _, x := range cert.Extensions {
		if x.Id.Equal(ChainID) && len(x.Value) <= maxRotation && json.Unmarshal(x.Value, &list) == nil && len(list) <= maxEndorsed {
			return list
		}
	}
	return nil
}

// Related reports whether a peer whose cluster key has this fingerprint belongs to the same cluster: it uses a former key, or a key that
// this master's key endorses.
func (ring *Ring) Related(cert *x509.Certificate, tag string) bool {
	keys := slices.Clone(ring.Former)
	if cert != nil {
		keys = append(keys, handshake.Endorsed(ring.Key.Public(), PlainEndorsements(ChainOf(cert)))...)
	}
	return slices.ContainsFunc(keys, func(k *crypt.PublicKey) bool { return Tag(k) == tag })
}

// Endorse signs the next key of the cluster with the present one.
func (ring *Ring) Endorse(r Rotation) (Rotation, error) {
	pub, err := crypt.ParsePublic([]byte(r.Pub))
	if err != nil {
		return r, err
	}
	for _, k := range Ancestors(pub, r.Endorsed) {
		if k.Equal(ring.Key.Public()) {
			return r, nil
		}
	}
	e, err := handshake.Endorse(ring.Key, pub)
	if err != nil {
		return r, err
	}
	r.Endorsed = append(slices.Clone(r.Endorsed), Endorsement{By: string(ring.Key.Public().PEM()), Pub: r.Pub, Sig: e.Sig})
	if len(r.Endorsed) > maxEndorsed {
		r.Endorsed = r.Endorsed[len(r.Endorsed)-maxEndorsed:]
	}
	return r, nil
}

// SameChain reports whether two lists have the same endorsements. Comparing lengths is not enough: a full list drops its oldest entry.
func SameChain(a, b []Endorsement) bool {
	return slices.EqualFunc(a, b, func(x, y Endorsement) bool { return x.By == y.By && x.Pub == y.Pub })
}

// StoreKey writes the key pair. The public half is derived again from the private one if the process ends in between (sharedKey).
func StoreKey(dir, pass string, key *crypt.PrivateKey) error {
	pem, err := key.EncryptedPEM(pass)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, KeyFile), pem, 0o400, true)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, PublicFile), key.Public().PEM(), 0o644, true)
	}
	if err == nil {
		if err = os.Remove(filepath.Join(dir, NextFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil // another member has created the key
		}
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the new key of the cluster: %w", err)
	}
	return nil
}

// SessionSalt is the salt of session keys. It changes with the key of the cluster, so that minions with old session keys sign in and get
// the new key.
func (r *Ring) SessionSalt() string {
	if len(r.Former) == 0 {
		return ""
	}
	return fmt.Sprintf("\x00%s", r.Fingerprint)
}
