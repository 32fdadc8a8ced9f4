package witness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/py/value"
)

// Files of a witness: its key, and the state received from masters.
const (
	witnessKeyFile = "witness.key"
	knownFile      = "known.json"
)

// witnessIdentity returns the TLS identity of a witness: a self-signed certificate of a permanent key. The key is in dir; it is created
// if missing.
func witnessIdentity(dir, id string) (*wire.Identity, error) {
	path := filepath.Join(dir, witnessKeyFile)
	key, err := readWitnessKey(path)
	if errors.Is(err, fs.ErrNotExist) {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			return nil, err
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, err
		}
		if err := atomicfile.Write(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600, true); err != nil {
			return nil, salt.Errorf(salt.Unavailable, "cannot store the key of this witness: %w", err)
		}
	} else if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	// Only the key is checked, not the validity.
	c := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: id}, NotBefore: time.Unix(0, 0), NotAfter: time.Now().AddDate(100, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &wire.Identity{Id: id, Key: key, Now: time.Now, Cert: &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}}, nil
}

func readWitnessKey(path string) (*ecdsa.PrivateKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if block, _ := pem.Decode(b); block != nil {
		k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if key, ok := k.(*ecdsa.PrivateKey); err == nil && ok {
			return key, nil
		}
	}
	return nil, salt.Errorf(salt.Invalid, "%s is damaged: remove it; the witness then creates a new key and is authenticated by cluster_secret again", path)
}

// fingerprintOf returns the fingerprint of the key of a certificate.
func fingerprintOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// TagOf identifies a secret without disclosing it.
func TagOf(secret string) string {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte("which secret"))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// Secret derives the secret by which witnesses and masters authenticate each other at first. It is a one-way function of the joining
// secret, so that a compromised witness cannot be used to join as a master.
func Secret(joining string) string {
	h := hmac.New(sha256.New, []byte(joining))
	h.Write([]byte("brine/witness/secret"))
	return witnessPrefix + hex.EncodeToString(h.Sum(nil))
}

// witnessPrefix distinguishes the witness secret from a joining secret, which older versions of masters and witnesses use.
const witnessPrefix = "witness-"

// asWitnessSecret returns the witness secret. s is that or the joining secret.
func asWitnessSecret(s string) string {
	if strings.HasPrefix(s, witnessPrefix) {
		return s
	}
	return Secret(s)
}

// Update is a master's update for a witness: the witness secret and the public keys of all members, with the time since when each is
// valid for that master.
type Update struct {
	// Secret is the joining secret on a master. In messages and on a witness it is the witness secret.
	Secret      string
	SecretFrom  time.Time
	Members     map[string]string // id -> PEM
	MembersFrom time.Time
	Tls         bool // all members use TLS
}

func (t Update) dict() *value.Dict {
	members := value.NewDict(len(t.Members))
	for _, id := range slices.Sorted(maps.Keys(t.Members)) {
		members.Set(id, t.Members[id])
	}
	return value.DictOf("secret", Secret(t.Secret), "secret_from", t.SecretFrom.UnixMilli(), "members", members, "members_from", t.MembersFrom.UnixMilli(),
		"tls", t.Tls)
}

// mark identifies the contents of an update.
func (t Update) mark() string {
	var said wire.Transcript
	said.Add([]byte(t.Secret))
	for _, id := range slices.Sorted(maps.Keys(t.Members)) {
		said.Add([]byte(id), []byte(t.Members[id]))
	}
	if t.Tls {
		said.Add(nil)
	}
	return string(said.Sum(fieldUpdate))
}

// maxPublic bounds the public key of a member in bytes.
const maxPublic = 8 << 10

func readUpdate(d *value.Dict) (Update, error) {
	t := Update{Secret: d.Str("secret"), SecretFrom: time.UnixMilli(d.Int("secret_from")), Members: map[string]string{},
		MembersFrom: time.UnixMilli(d.Int("members_from")), Tls: d.Bool("tls")}
	if n := len(t.Secret); n < keys.MinSecret || n > keys.MaxSecret {
		return t, salt.Errorf(salt.Invalid, "a secret of %d characters", n)
	}
	if !utf8.ValidString(t.Secret) { // otherwise the file would differ after a restart
		return t, salt.Errorf(salt.Invalid, "a secret that is not UTF-8")
	}
	t.Secret = asWitnessSecret(t.Secret)
	for k, v := range d.Dict("members").All() {
		id, _ := k.(string)
		text, _ := v.(string)
		if _, err := crypt.ParsePublic([]byte(text)); salt.CheckID(id) != nil || err != nil || len(text) > maxPublic {
			return t, salt.Errorf(salt.Invalid, "the key of the member %.100q is invalid", id)
		}
		t.Members[id] = text
	}
	if n := len(t.Members); n == 0 || n > maxMasters {
		return t, salt.Errorf(salt.Invalid, "a witness supports at most %d masters, got %d", maxMasters, n)
	}
	return t, nil
}

// state is a witness's knowledge of its cluster. It is safe for concurrent use.
type state struct {
	path string

	mu sync.Mutex
	d  known
	// joining is the joining secret, if it is configured and valid. Masters of older versions prove knowledge of it.
	joining string
	// keys are the decoded keys of the members in d.
	keys map[string]*crypt.PublicKey
}

// known is the persistent state.
type known struct {
	// Configured is the tag of the secret that was configured when Secret was received: a later change of the configuration wins.
	Configured string `json:"configured"`
	Secret     string `json:"secret"`
	// SecretFrom and MembersFrom are times in milliseconds, according to the clocks of the masters that sent them.
	SecretFrom  int64             `json:"secret_from"`
	Members     map[string]string `json:"members"`
	MembersFrom int64             `json:"members_from"`
	// TLS means that all members use TLS.
	TLS bool `json:"tls"`
}

// openState loads the state of a witness. secret is the configured witness secret. joining is the joining secret if that is
// configured.
func openState(path, secret, joining string) (*state, error) {
	a := &state{path: path, joining: joining}
	b, err := os.ReadFile(path)
	if err == nil {
		if err = json.Unmarshal(b, &a.d); err == nil {
			a.keys, err = parseKeys(a.d.Members)
		}
		if err != nil {
			return nil, salt.Errorf(salt.Invalid, "%s is damaged: %w; remove it; its contents are received again from the masters, which must have "+
				"the cluster_secret in the configuration of this witness", path, err)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, salt.Errorf(salt.Unavailable, "cannot read the state of this witness: %w", err)
	}
	now := asWitnessSecret(a.d.Secret)
	former := a.d.Secret != "" && now != a.d.Secret // written by an older version
	if a.d.Secret != "" {
		a.d.Secret = now
	}
	if joining != "" && a.d.Configured == TagOf(joining) {
		a.d.Configured = TagOf(secret)
	}
	if tag := TagOf(secret); a.d.Configured != tag {
		a.d.Configured, a.d.Secret, a.d.SecretFrom = tag, secret, 0
	}
	if former { // remove the joining secret from the file
		return a, a.save(a.d)
	}
	return a, nil
}

func parseKeys(texts map[string]string) (map[string]*crypt.PublicKey, error) {
	keys := make(map[string]*crypt.PublicKey, len(texts))
	for _, id := range slices.Sorted(maps.Keys(texts)) {
		k, err := crypt.ParsePublic([]byte(texts[id]))
		if err != nil {
			return nil, fmt.Errorf("cannot read the public key of %s: %w", id, err)
		}
		keys[id] = k
	}
	return keys, nil
}

// terms returns the witness secret, the joining secret if it is known and valid, and whether all members use TLS.
func (a *state) terms() (secret, joining string, tlsOnly bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.joining != "" && Secret(a.joining) == a.d.Secret {
		joining = a.joining
	}
	return a.d.Secret, joining, a.d.TLS
}

// save writes the state.
func (a *state) save(d known) error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err == nil {
		err = atomicfile.Write(a.path, append(b, '\n'), 0o600, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store an update of a master: %w", err)
	}
	return nil
}

// signed reports whether a signature is valid for the key of the member id.
func (a *state) signed(id string, sum, sig []byte) bool {
	a.mu.Lock()
	key := a.keys[id]
	a.mu.Unlock()
	return key != nil && len(sig) > 0 && key.Verify(crypt.PKCS1v15SHA224, sum, sig) == nil
}

func (a *state) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keys[id] != nil
}

func (a *state) names() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(a.keys)), ", ")
}

// learn applies an update that is newer than the previous ones, and reports what has changed. A time ahead of the local clock counts as
// now, so that a wrong clock cannot block updates of other masters. A stored time that is still ahead was stored while the clock of this
// witness was wrong too; any update replaces it.
func (a *state) learn(t Update, now time.Time) (secret, members bool, err error) {
	keys, err := parseKeys(t.Members)
	if err != nil {
		return false, false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	next := a.d
	latest := now.Add(clocksApart).UnixMilli()
	if next.SecretFrom > latest {
		next.SecretFrom = 0
	}
	if next.MembersFrom > latest {
		next.MembersFrom = 0
	}
	if from := min(t.SecretFrom.UnixMilli(), now.UnixMilli()); from > next.SecretFrom {
		secret = t.Secret != a.d.Secret
		next.Secret, next.SecretFrom = t.Secret, from
	}
	if from := min(t.MembersFrom.UnixMilli(), now.UnixMilli()); from > next.MembersFrom {
		members = !maps.Equal(t.Members, a.d.Members)
		next.Members, next.MembersFrom = t.Members, from
	}
	next.TLS = a.d.TLS || t.Tls
	if !secret && !members && next.TLS == a.d.TLS {
		return false, false, nil // a newer time alone is not worth storing
	}
	if err := a.save(next); err != nil {
		return false, false, err
	}
	a.d = next
	if members {
		a.keys = keys
	}
	return secret, members, nil
}

// fieldUpdate is the field of a frame that contains an update. Its name is part of the protocol.
const fieldUpdate = "tidings"

// clocksApart is how much the clock of a witness may have been set back in operation.
const clocksApart = 10 * time.Minute

// maxMasters bounds the number of members.
const maxMasters = 64
