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
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// The key of the cluster can be replaced while it runs (RotateKey). The file
// rotation says which key counts and by which former keys it is endorsed; it comes
// to all members as other records do, and has nothing secret in it. A member that
// finds another key there than its own asks the others for the private half, and
// switches: from then on it shows the new key to minions, which take it because of the
// endorsement.
//
// Members switch one after the other, and one that is away does so when it is
// back. Until then two members of different keys must understand each other: a
// certificate has the endorsements in it, so that a member with an older key can
// verify one of a newer key; and a member that says that it has an older key
// (members/ID) may show a certificate of that. Who is a member says, as always,
// the key that each has for itself.

// RotationFile, in cluster_pki_dir, says which key of the cluster counts; nextFile
// has its private half until the master that has made it uses it.
const (
	RotationFile = "rotation"
	nextFile     = "cluster.next.pem"
)

// askKey is what members ask each other for the private half of a key.
const askKey = "clusterkey"

// rotation is what is in RotationFile.
type rotation struct {
	Pub      string        `json:"pub"`
	Endorsed []endorsement `json:"endorsed"`
}

// endorsement is the word of one key of the cluster for its successor.
type endorsement struct {
	By  string `json:"by"`
	Pub string `json:"pub"`
	Sig []byte `json:"sig"`
}

// Bounds of such a file: how many endorsements are kept, and its size in bytes.
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

// ancestors are the keys that came before a key, by endorsements that were
// verified.
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

// keyring is the key of the cluster and where it comes from. It is replaced as a
// whole.
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

// readRotation returns what the file says; ok is false if there is none.
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
		return r, false, salt.Errorf(salt.Unavailable, "cannot read which key of the cluster counts: %s: %w", c.rotationPath(), err)
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
		return salt.Errorf(salt.Unavailable, "cannot keep which key of the cluster counts: %w", err)
	}
	return nil
}

// openKeyring takes up the key of the cluster when the master starts.
func (c *Cluster) openKeyring() error {
	r, _, err := c.readRotation()
	if err != nil {
		return err
	}
	c.ring.Store(newKeyring(c.secrets.Key, r))
	return nil
}

// Key is the key pair of the cluster as it is now.
func (c *Cluster) Key() *crypt.PrivateKey { return c.ring.Load().key }

// Endorsements are those of the cluster's key, for minions.
func (c *Cluster) Endorsements() []handshake.Endorsement {
	return c.ring.Load().rotation.endorsements()
}

// OnKey has fn called when the key of the cluster was replaced. It must come
// before Run.
func (c *Cluster) OnKey(fn func(*crypt.PrivateKey, []handshake.Endorsement)) { c.onKey = fn }

// chainID marks the extension of a certificate that has the endorsements of the key
// by which it is signed.
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

// checkMember says why a certificate is not one of this cluster for an id; "" if it
// is. It may be signed by a key that the present one vouches for, if this master
// has not switched yet, or by a former one, if that member has not.
func (c *Cluster) checkMember(cert *x509.Certificate, id string) string {
	ring := c.ring.Load()
	check := func(by *crypt.PublicKey) string {
		return checkCertificate(cert, by, c.cfg.Options.ID, id, time.Now())
	}
	why := check(ring.key.Public())
	if why == "" || cert == nil {
		return why
	}
	for _, by := range handshake.Endorsed(ring.key.Public(), plainEndorsements(chainOf(cert)))[1:] {
		if check(by) == "" {
			return ""
		}
	}
	if c.behind(id) {
		for _, by := range ring.former {
			if check(by) == "" {
				return ""
			}
		}
	}
	return why
}

// behind reports whether a member is known to have a former key of the cluster.
func (c *Cluster) behind(id string) bool {
	s, err := c.readStation(id)
	return err == nil && s.Key != c.ring.Load().tag
}

// kin reports whether a peer whose cluster key has a fingerprint is of the same
// cluster: it has a former key, or one that ours vouches for.
func (c *Cluster) kin(cert *x509.Certificate, tag string) bool {
	ring := c.ring.Load()
	keys := slices.Clone(ring.former)
	if cert != nil {
		keys = append(keys, handshake.Endorsed(ring.key.Public(), plainEndorsements(chainOf(cert)))...)
	}
	return slices.ContainsFunc(keys, func(k *crypt.PublicKey) bool { return keyTag(k) == tag })
}

// KeyTime bounds the wait for members that are to take a new key.
const KeyTime = 20 * time.Second

// RotateKey replaces the key of the cluster. It returns which members have the
// new one, and which will have it when they are back. force does it also if
// there are minions that cannot take it.
func (c *Cluster) RotateKey(ctx context.Context, force bool) (have, late []string, err error) {
	if !c.rotating.TryLock() {
		return nil, nil, salt.Errorf(salt.Unavailable, "the key of the cluster is being replaced already: see brine cluster status")
	}
	defer c.rotating.Unlock()
	switch {
	case !c.cfg.Options.Isolated:
		return nil, nil, salt.Errorf(salt.Invalid, "the masters of this cluster share a folder: their key cannot be replaced while they run")
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
		return nil, nil, salt.Errorf(salt.Unavailable, "cannot keep the new key of the cluster: %w", err)
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
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		break
	}
	// What was read with the former key is read no more.
	return have, late, c.renew()
}

// endorse has the present key vouch for the one that is to count.
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

// FollowKey switches to the key that counts, if this master has another one and
// can get it.
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
	// If two were made at once, members have come from different ones.
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
	c.roster.list.Members = nil // it is to be signed again
	c.roster.mu.Unlock()
	if err := c.restate(); err != nil {
		return err
	}
	return c.refreshRoster(time.Now())
}

// sameChain reports whether two lists have the same keys vouch for the same.
// Their lengths do not tell: a full list loses its oldest.
func sameChain(a, b []endorsement) bool {
	return slices.EqualFunc(a, b, func(x, y endorsement) bool { return x.By == y.By && x.Pub == y.Pub })
}

// storeKey writes the key pair. The public half is made again from the private
// one if the process ends in between (sharedKey).
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
		return salt.Errorf(salt.Unavailable, "cannot keep the new key of the cluster: %w", err)
	}
	return nil
}

// use has all that this master shows be of a key.
func (c *Cluster) use(ring *keyring) {
	c.ring.Store(ring)
	c.tlsIdentity.resign(ring.key, ring.rotation.Endorsed)
	if c.onKey != nil {
		c.onKey(ring.key, ring.rotation.endorsements())
	}
}

// fetchKey returns the private half of a key: this master has made it, or another
// member has it.
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

// answerKey gives the private half of the key of the cluster to a member.
func (c *Cluster) answerKey(arg *value.Dict) *value.Dict {
	ring := c.ring.Load()
	if !strings.EqualFold(arg.Str("key"), ring.tag) {
		return value.NewDict(0)
	}
	return value.DictOf("pem", ring.key.PEM())
}

// followKey is FollowKey for what is tried again and again.
func (c *Cluster) followKey(ctx context.Context) {
	if err := c.FollowKey(ctx); err != nil && ctx.Err() == nil {
		c.rateLimitedLog.warn("key", "this master still has the former key of the cluster", "err", err)
	}
}

// sessionSalt is what session keys are computed from besides the secret: with
// the key of the cluster they change, so that a minion that comes with those of
// before signs in and learns the new key.
func (r *keyring) sessionSalt() string {
	if len(r.former) == 0 {
		return ""
	}
	return fmt.Sprintf("\x00%s", r.tag)
}
