package cluster

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
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
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/py/value"
)

// maxSkew is the maximum clock difference of two masters: leases and the order of jobs depend on it.
const maxSkew = 5 * time.Second

// facts are the settings that two masters of a cluster must agree on.
type facts struct {
	id       string
	cluster  string
	peers    []string
	key      string // fingerprint of the cluster's public key
	hashType string
	version  string
	protocol int64
	isolated bool
	proof    string // proof that the sender's directory in cachedir can be read
	now      time.Time
	refusals int64 // the version of refusal codes that it understands; 0 in releases without codes
}

// tokenFile, in a master's own directory, proves to its readers that they share the cachedir.
const tokenFile = "token"

// newToken writes a new token and returns it.
func newToken(dir string) (string, error) {
	var b [16]byte
	rand.Read(b[:])
	t := hex.EncodeToString(b[:])
	return t, atomicfile.Write(filepath.Join(dir, tokenFile), []byte(t), 0o600, false)
}

func proofOf(token, nonce string) string {
	sum := sha256.Sum256([]byte(token + "/" + nonce))
	return hex.EncodeToString(sum[:])
}

// facts returns this master's facts, with a proof for the sender of a nonce.
func (c *Cluster) facts(nonce string) facts {
	return facts{
		id: c.cfg.ID, cluster: c.cfg.Options.ID, peers: c.cfg.Options.Peers, key: c.ring.Load().Fingerprint,
		hashType: c.cfg.HashType, version: salt.Version, protocol: wire.Protocol, isolated: c.cfg.Options.Isolated, proof: proofOf(c.token, nonce), now: time.Now(), refusals: refusal.Version,
	}
}

func (f facts) dict() *value.Dict {
	return value.DictOf("id", f.id, "cluster", f.cluster, "peers", value.Strings(f.peers), "key", f.key, "hash_type", f.hashType,
		"version", f.version, "protocol", f.protocol, "isolated", f.isolated, "proof", f.proof, "now", float64(f.now.UnixMicro())/1e6, "refusals", f.refusals)
}

func readFacts(d *value.Dict) facts {
	f := facts{id: d.Str("id"), cluster: d.Str("cluster"), key: d.Str("key"), hashType: d.Str("hash_type"), version: d.Str("version"),
		protocol: d.Int("protocol"), isolated: d.Bool("isolated"), proof: d.Str("proof"), refusals: d.Int("refusals")}
	for _, it := range d.List("peers") {
		f.peers = append(f.peers, value.Str(it))
	}
	if n, ok := d.At("now").(float64); ok && n > 0 && n < 1e11 {
		f.now = time.UnixMicro(int64(n * 1e6))
	}
	return f
}

// parting reports whether the masters are leaving their shared directory: the first one has stored a secret there. Until the last one has
// left, there are two clusters with one key, each of which commands its connected minions.
func (c *Cluster) parting() bool {
	_, err := os.Stat(filepath.Join(c.cfg.Options.PKIDir, keys.SecretFile))
	return err == nil
}

// differences returns why a peer cannot be accepted, with the name of the option and both values; nil if it can. nonce is the one for the
// peer's proof.
func (c *Cluster) differences(peer facts, nonce string, cert *x509.Certificate) *refusal.Error {
	mine := c.facts("")
	if mine.isolated != peer.isolated && mine.key == peer.key && mine.cluster == peer.cluster && c.parting() {
		shares := mine.id
		if mine.isolated {
			shares = peer.id
		}
		return refusal.New(refusal.Shares, "%s %s", shares, refusal.TextShares)
	}
	var out []string
	differ := func(what, here, there string) {
		if here != there {
			out = append(out, fmt.Sprintf("%s is %q on %s and %q on %s", what, here, mine.id, there, peer.id))
		}
	}
	if mine.protocol != peer.protocol {
		differ("the version of the protocol between masters", fmt.Sprint(mine.protocol), fmt.Sprint(peer.protocol))
	}
	differ("cluster_id", mine.cluster, peer.cluster)
	differ("the version", mine.version, peer.version)
	differ("hash_type", mine.hashType, peer.hashType)
	differ("cluster_isolated_filesystem", fmt.Sprint(mine.isolated), fmt.Sprint(peer.isolated))
	if mine.isolated && peer.isolated {
		// The directory of keys determines the members.
		if mine.key != peer.key && c.ring.Load().Related(cert, peer.key) {
			peer.key = mine.key // one of them is about to follow the other
		}
		differ("the fingerprint of cluster.pub (one of them is of another cluster: stop it, remove its cluster_pki_dir and cachedir, and let it join again)", mine.key, peer.key)
		return settingsRefusal(out)
	}
	if mine.key != peer.key {
		differ("the fingerprint of cluster.pub (is cluster_pki_dir one directory for all?)", mine.key, peer.key)
	}
	if !slices.Contains(mine.peers, peer.id) {
		out = append(out, unnamed(mine.id, mine.peers, peer.id))
	}
	if !slices.Contains(peer.peers, mine.id) {
		out = append(out, unnamed(peer.id, peer.peers, mine.id))
	}
	token, err := os.ReadFile(filepath.Join(c.cfg.CacheDir, ownDir, filepath.Base(peer.id), tokenFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out = append(out, fmt.Sprintf("cachedir of %s (%s) is not the directory that %s uses: it has no data of %s", mine.id, c.cfg.CacheDir, peer.id, peer.id))
	case err != nil:
		out = append(out, fmt.Sprintf("cachedir of %s cannot be read: %v", mine.id, err))
	case proofOf(string(token), nonce) != peer.proof:
		out = append(out, fmt.Sprintf("cachedir of %s (%s) is not the directory that %s uses: it has older data of %s", mine.id, c.cfg.CacheDir, peer.id, peer.id))
	}
	return settingsRefusal(out)
}

func settingsRefusal(differences []string) *refusal.Error {
	if len(differences) == 0 {
		return nil
	}
	return &refusal.Error{Code: refusal.Settings, Reason: strings.Join(differences, "; ")}
}

// unnamed returns the reason that one master does not name another, and the fix.
func unnamed(who string, peers []string, whom string) string {
	return fmt.Sprintf("cluster_peers of %s (%s) does not name %s: name it there, or remove %[1]s from cluster_peers of %[3]s", who, strings.Join(peers, ", "), whom)
}

// skewed returns the refusal if a clock is wrong, else nil. The peer's time was read between from and to of this master's clock.
func (c *Cluster) skewed(peer facts, from, to time.Time) *refusal.Error {
	switch {
	case peer.now.IsZero():
		return nil
	case from.Sub(peer.now) > maxSkew:
		return refusal.New(refusal.Clock, refusal.TextClock+"%s is %v behind that of %s; at most %v are allowed: synchronize both with NTP", peer.id, from.Sub(peer.now).Round(time.Millisecond), c.cfg.ID, maxSkew)
	case peer.now.Sub(to) > maxSkew:
		return refusal.New(refusal.Clock, refusal.TextClock+"%s is %v ahead of that of %s; at most %v are allowed: synchronize both with NTP", peer.id, peer.now.Sub(to).Round(time.Millisecond), c.cfg.ID, maxSkew)
	}
	return nil
}
