package cluster

import (
	"context"
	"crypto/x509"
	"encoding/asn1"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// The key of the cluster can be replaced while it runs (RotateKey). The file rotation says which key is current and which former keys
// endorse it; it is replicated like other records and contains no secret. A member that finds another current key than its own fetches the
// private half from the others and switches. From then on it shows the new key to minions, which accept it because of the endorsement.
//
// Members switch one by one, and an unreachable one when it is back. Until then two members with different keys must accept each other. A
// certificate contains the endorsements, so that a member with an older key can verify one signed by a newer key. A member that reports an
// older key (members/ID) may show a certificate signed by that. Membership is still decided by each master's own key.

// RotationFile, in cluster_pki_dir, names the current key of the cluster; nextFile has its private half until the master that created it
// uses it.
const (
	RotationFile = "rotation"
	nextFile     = "cluster.next.pem"
)

// askKey is the query between members for the private half of a key.
const askKey = "clusterkey"

// rotation is the content of RotationFile.
type rotation struct {
	Pub      string        `json:"pub"`
	Endorsed []endorsement `json:"endorsed"`
}

// endorsement is the signature of one key of the cluster for its successor.
type endorsement struct {
	By  string `json:"by"`
	Pub string `json:"pub"`
	Sig []byte `json:"sig"`
}

// Bounds of such a file: the number of endorsements, and its size in bytes.
const (
	maxEndorsed = 8
	maxRotation = 64 << 10
)

func (r *rotation) endorsements() []handshake.Endorsement { return plainEndorsements(r.Endorsed) }

func plainEndorsements(list []endorsement) (out []handshake.Endorsement) {
	for _, e := range list {
		out = append(out, handshake.Endorsement{Pub: crypt.CleanKey(e.Pub), Sig: e.Sig})
	}
	return out
}

// ancestors returns the former keys of a key, by verified endorsements.
func ancestors(of *crypt.PublicKey, list []endorsement) (out []*crypt.PublicKey) {
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

// keyring is the key of the cluster and its rotation. It is immutable.
type keyring struct {
	key      *crypt.PrivateKey
	tag      string // fingerprint
	rotation rotation
	former   []*crypt.PublicKey
}

func newKeyring(key *crypt.PrivateKey, r rotation) *keyring {
	return &keyring{key: key, tag: keyTag(key.Public()), rotation: r, former: ancestors(key.Public(), r.Endorsed)}
}

func keyTag(k *crypt.PublicKey) string { return crypt.Fingerprint(k.PEM(), "sha256") }

func (c *Cluster) rotationPath() string { return filepath.Join(c.cfg.Options.PKIDir, RotationFile) }

// readRotation returns the content of the file; ok is false if it is missing.
func (c *Cluster) readRotation() (r rotation, ok bool, err error) {
	fi, err := os.Stat(c.rotationPath())
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err == nil && fi.Size() > maxRotation {
		err = errors.New("it is too large")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(c.rotationPath())
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil {
		_, err = crypt.ParsePublic([]byte(r.Pub))
	}
	if err != nil {
		return r, false, salt.Errorf(salt.Unavailable, "cannot read the rotation of the cluster's key: %s: %w", c.rotationPath(), err)
	}
	if len(r.Endorsed) > maxEndorsed {
		r.Endorsed = r.Endorsed[len(r.Endorsed)-maxEndorsed:]
	}
	return r, true, nil
}

func (c *Cluster) writeRotation(r rotation) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = atomicfile.Write(c.rotationPath(), append(b, '\n'), 0o644, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the rotation of the cluster's key: %w", err)
	}
	return nil
}

// openKeyring loads the key of the cluster at the start of the master.
func (c *Cluster) openKeyring() error {
	r, _, err := c.readRotation()
	if err != nil {
		return err
	}
	c.ring.Store(newKeyring(c.secrets.Key, r))
	return nil
}

// Key returns the current key pair of the cluster.
func (c *Cluster) Key() *crypt.PrivateKey { return c.ring.Load().key }

// Endorsements returns the endorsements of the cluster's key, for minions.
func (c *Cluster) Endorsements() []handshake.Endorsement {
	return c.ring.Load().rotation.endorsements()
}

// OnKey sets the function to call when the key of the cluster was replaced. It must be called before Run.
func (c *Cluster) OnKey(fn func(*crypt.PrivateKey, []handshake.Endorsement)) { c.onKey = fn }

// chainID is the certificate extension with the endorsements of the signing key.
var chainID = asn1.ObjectIdentifier{2, 25, 1479625103, 1893460457}

// chainOf returns the endorsements in a certificate.
func chainOf(cert *x509.Certificate) (list []endorsement) {
	for _, x := range cert.Extensions {
		if x.Id.Equal(chainID) && len(x.Value) <= maxRotation && json.Unmarshal(x.Value, &list) == nil && len(list) <= maxEndorsed {
			return list
		}
	}
	return nil
}

// checkMember returns why a certificate is not valid for an id of this cluster; nil if it is. It may be signed by a key that the present one
// endorses, if this master has not switched yet, or by a former one, if that member has not.
func (c *Cluster) checkMember(cert *x509.Certificate, id string) *refusal.Error {
	ring := c.ring.Load()
	check := func(by *crypt.PublicKey) *refusal.Error {
		return checkCertificate(cert, by, c.cfg.Options.ID, id, time.Now())
	}
	why := check(ring.key.Public())
	if why == nil || cert == nil {
		return why
	}
	for _, by := range handshake.Endorsed(ring.key.Public(), plainEndorsements(chainOf(cert)))[1:] {
		if check(by) == nil {
			return nil
		}
	}
	if c.behind(id) {
		for _, by := range ring.former {
			if check(by) == nil {
				return nil
			}
		}
	}
	return why
}

// behind reports whether a member is known to use a former key of the cluster.
func (c *Cluster) behind(id string) bool {
	s, err := c.readStation(id)
	return err == nil && s.Key != c.ring.Load().tag
}

// kin reports whether a peer with the fingerprint of a cluster key belongs to the same cluster: it uses a former key, or one that ours
// endorses.
func (c *Cluster) kin(cert *x509.Certificate, tag string) bool {
	ring := c.ring.Load()
	keys := slices.Clone(ring.former)
	if cert != nil {
		keys = append(keys, handshake.Endorsed(ring.key.Public(), plainEndorsements(chainOf(cert)))...)
	}
	return slices.ContainsFunc(keys, func(k *crypt.PublicKey) bool { return keyTag(k) == tag })
}

// KeyTime is the timeout for members to switch to a new key.
const KeyTime = 20 * time.Second

// RotateKey replaces the key of the cluster. It returns the members that have the new one, and those that will get it when they are back.
// force does it even if there are minions that cannot accept it.
func (c *Cluster) RotateKey(ctx context.Context, force bool) (have, late []string, err error) {
	if !c.rotating.TryLock() {
		return nil, nil, salt.Errorf(salt.Unavailable, "the key of the cluster is being replaced already: see brine cluster status")
	}
	defer c.rotating.Unlock()
	switch {
	case !c.cfg.Options.Isolated:
		return nil, nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a directory: their key cannot be replaced while they run")
	case !c.allUseSecret():
		return nil, nil, salt.Errorf(salt.Invalid, "a member has a version that cannot replace the cluster's key: install this version on all first (brine cluster status)")
	case c.cfg.Refuses != nil && !force:
		if err := c.cfg.Refuses(); err != nil {
			return nil, nil, err
		}
	}
	next, err := crypt.GenerateKey(c.cfg.Keysize)
	if err != nil {
		return nil, nil, err
	}
	pem, err := next.EncryptedPEM(c.cfg.Options.KeyPass)
	if err == nil {
		err = atomicfile.Write(filepath.Join(c.cfg.Options.PKIDir, nextFile), pem, 0o400, true)
	}
	if err != nil {
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot store the new key of the cluster: %w", err)
	}
	r := c.ring.Load().rotation
	r.Pub = string(next.Public().PEM())
	if r, err = c.endorse(r); err != nil {
		return nil, nil, err
	}
	if err := c.writeRotation(r); err != nil {
		return nil, nil, err
	}
	if err := c.FollowKey(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, KeyTime)
	defer cancel()
	for {
		have, late = nil, nil
		away := 0
		for _, s := range c.Status(ctx) {
			switch {
			case s.Self || s.Says.Str("key") == keyTag(next.Public()):
				have = append(have, s.ID)
				continue
			case !s.Up:
				away++
			}
			late = append(late, s.ID)
		}
		if len(late) == away {
			break
		}
		if !wait.Sleep(ctx, 100*time.Millisecond) {
			break
		}
	}
	// Data encrypted with the former key is no longer accepted.
	return have, late, c.renew()
}

// endorse makes the present key sign the next one.
func (c *Cluster) endorse(r rotation) (rotation, error) {
	ring := c.ring.Load()
	pub, err := crypt.ParsePublic([]byte(r.Pub))
	if err != nil {
		return r, err
	}
	for _, k := range ancestors(pub, r.Endorsed) {
		if k.Equal(ring.key.Public()) {
			return r, nil
		}
	}
	e, err := handshake.Endorse(ring.key, pub)
	if err != nil {
		return r, err
	}
	r.Endorsed = append(slices.Clone(r.Endorsed), endorsement{By: string(ring.key.Public().PEM()), Pub: r.Pub, Sig: e.Sig})
	if len(r.Endorsed) > maxEndorsed {
		r.Endorsed = r.Endorsed[len(r.Endorsed)-maxEndorsed:]
	}
	return r, nil
}

// FollowKey switches to the current key, if this master has another one and can fetch it.
func (c *Cluster) FollowKey(ctx context.Context) error {
	c.switching.Lock()
	defer c.switching.Unlock()
	r, ok, err := c.readRotation()
	if err != nil || !ok {
		return err
	}
	ring := c.ring.Load()
	pub, err := crypt.ParsePublic([]byte(r.Pub))
	if err != nil {
		return err
	}
	if pub.Equal(ring.key.Public()) {
		if !sameChain(r.Endorsed, ring.rotation.Endorsed) { // another member has added one
			c.use(newKeyring(ring.key, r))
		}
		return nil
	}
	key, err := c.fetchKey(ctx, pub)
	if err != nil {
		return err
	}
	// If two were created at once, members may follow different ones.
	full, err := c.endorse(r)
	if err != nil {
		return err
	}
	if len(full.Endorsed) != len(r.Endorsed) {
		if err := c.writeRotation(full); err != nil {
			return err
		}
	}
	if err := c.storeKey(key); err != nil {
		return err
	}
	c.use(newKeyring(key, full))
	c.log.Info("the key of the cluster was replaced", "fingerprint", keyTag(pub))
	c.roster.mu.Lock()
	c.roster.list.Members = nil // so that the list is signed again
	c.roster.mu.Unlock()
	if err := c.restate(); err != nil {
		return err
	}
	return c.refreshRoster(time.Now())
}

// sameChain reports whether two lists have the same endorsements. Comparing lengths is not enough: a full list drops its oldest entry.
func sameChain(a, b []endorsement) bool {
	return slices.EqualFunc(a, b, func(x, y endorsement) bool { return x.By == y.By && x.Pub == y.Pub })
}

// storeKey writes the key pair. The public half is derived again from the private one if the process ends in between (sharedKey).
func (c *Cluster) storeKey(key *crypt.PrivateKey) error {
	dir := c.cfg.Options.PKIDir
	pem, err := key.EncryptedPEM(c.cfg.Options.KeyPass)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, KeyFile), pem, 0o400, true)
	}
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, PublicFile), key.Public().PEM(), 0o644, true)
	}
	if err == nil {
		if err = os.Remove(filepath.Join(dir, nextFile)); errors.Is(err, fs.ErrNotExist) {
			err = nil // another member has made the key
		}
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the new key of the cluster: %w", err)
	}
	return nil
}

// use switches everything that this master shows to a key.
func (c *Cluster) use(ring *keyring) {
	c.ring.Store(ring)
	c.tlsIdentity.resign(ring.key, ring.rotation.Endorsed)
	if c.onKey != nil {
		c.onKey(ring.key, ring.rotation.endorsements())
	}
}

// fetchKey returns the private half of a key, from this master or another member.
func (c *Cluster) fetchKey(ctx context.Context, pub *crypt.PublicKey) (*crypt.PrivateKey, error) {
	path := filepath.Join(c.cfg.Options.PKIDir, nextFile)
	if _, err := os.Stat(path); err == nil {
		if k, err := crypt.LoadOwn(path, c.cfg.Options.KeyPass, c.log); err == nil && k.Public().Equal(pub) {
			return k, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	for id := range c.all() {
		d, err := c.AskOne(ctx, id, askKey, value.DictOf("key", keyTag(pub)))
		if err != nil {
			continue
		}
		if k, err := crypt.ParsePrivate(d.Bytes("pem"), ""); err == nil && k.Public().Equal(pub) {
			return k, nil
		}
	}
	return nil, salt.Errorf(salt.Unavailable, "no member that can be reached has the new key of the cluster (%s)", keyTag(pub))
}

// answerKey returns the private half of the cluster's key to a member.
func (c *Cluster) answerKey(arg *value.Dict) *value.Dict {
	ring := c.ring.Load()
	if !strings.EqualFold(arg.Str("key"), ring.tag) {
		return value.NewDict(0)
	}
	return value.DictOf("pem", ring.key.PEM())
}

// followKey calls FollowKey periodically.
func (c *Cluster) followKey(ctx context.Context) {
	if err := c.FollowKey(ctx); err != nil && ctx.Err() == nil {
		c.rateLimitedLog.warn("key", "this master still has the former key of the cluster", "err", err)
	}
}

// sessionSalt is the salt of session keys: they change with the key of the cluster, so that a minion with old ones signs in and learns the
// new key.
func (r *keyring) sessionSalt() string {
	if len(r.former) == 0 {
		return ""
	}
	return fmt.Sprintf("\x00%s", r.tag)
}
