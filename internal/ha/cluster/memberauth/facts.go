package memberauth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// maxSkew is the maximum clock difference of two masters: leases and the order of jobs depend on it.
const maxSkew = 5 * time.Second

// Facts are the settings that two masters of a cluster must agree on.
type Facts struct {
	ID       string
	Cluster  string
	Peers    []string
	Key      string // fingerprint of the cluster's public key
	HashType string
	Version  string
	Protocol int64
	Isolated bool
	Proof    string // proof that the sender's directory in cachedir can be read
	Now      time.Time
	Refusals int64 // the version of refusal codes that it understands; 0 in releases without codes
}

// ProofOf returns the proof of a token for the sender of a nonce.
func ProofOf(token, nonce string) string {
	sum := sha256.Sum256([]byte(token + "/" + nonce))
	return hex.EncodeToString(sum[:])
}

// Dict encodes the facts.
func (f Facts) Dict() *value.Dict {
	return wire.Dict(&wire.Facts{ID: f.ID, Cluster: f.Cluster, Peers: f.Peers, Key: f.Key, HashType: f.HashType, Version: f.Version, Protocol: f.Protocol,
		Isolated: f.Isolated, Proof: f.Proof, Now: float64(f.Now.UnixMicro()) / 1e6, Refusals: f.Refusals})
}

// ReadFacts decodes the facts of another master.
func ReadFacts(d *value.Dict) (Facts, error) {
	var m wire.Facts
	if err := wire.Read(d, &m); err != nil {
		return Facts{}, err
	}
	f := Facts{ID: m.ID, Cluster: m.Cluster, Peers: m.Peers, Key: m.Key, HashType: m.HashType, Version: m.Version, Protocol: m.Protocol,
		Isolated: m.Isolated, Proof: m.Proof, Refusals: m.Refusals}
	if n, ok := m.Now.(float64); ok && n > 0 && n < 1e11 {
		f.Now = time.UnixMicro(int64(n * 1e6))
	}
	return f, nil
}

// RawFacts returns the signed bytes of the facts in a reply.
func RawFacts(facts *value.Dict) []byte {
	b, _ := msgpack.Marshal(facts, msgpack.NewSpec) // they were decoded from msgpack
	return b
}

// Differences returns why a peer cannot be accepted, with the name of the option and both values; nil if it can. nonce is the one for the
// peer's proof, cert the certificate that it shows, nil without TLS.
func Differences(mine, peer Facts, nonce string, cert *x509.Certificate, s Shared) *refusal.Error {
	if mine.Isolated != peer.Isolated && mine.Key == peer.Key && mine.Cluster == peer.Cluster && s.Parting() {
		shares := mine.ID
		if mine.Isolated {
			shares = peer.ID
		}
		return refusal.New(refusal.Shares, "%s %s", shares, refusal.TextShares)
	}
	var out []string
	differ := func(what, here, there string) {
		if here != there {
			out = append(out, fmt.Sprintf("%s is %q on %s and %q on %s", what, here, mine.ID, there, peer.ID))
		}
	}
	if mine.Protocol != peer.Protocol {
		differ("the version of the protocol between masters", fmt.Sprint(mine.Protocol), fmt.Sprint(peer.Protocol))
	}
	differ("cluster_id", mine.Cluster, peer.Cluster)
	differ("the version", mine.Version, peer.Version)
	differ("hash_type", mine.HashType, peer.HashType)
	differ("cluster_isolated_filesystem", fmt.Sprint(mine.Isolated), fmt.Sprint(peer.Isolated))
	if mine.Isolated && peer.Isolated {
		// The directory of keys determines the members.
		if mine.Key != peer.Key && s.Related(cert, peer.Key) {
			peer.Key = mine.Key // one of the masters is about to switch to the other's key
		}
		differ("the fingerprint of cluster.pub (one of them is of another cluster: stop it, remove its cluster_pki_dir and cachedir, and let it join again)",
			mine.Key, peer.Key)
		return settings(out)
	}
	if mine.Key != peer.Key {
		differ("the fingerprint of cluster.pub (is cluster_pki_dir one directory for all?)", mine.Key, peer.Key)
	}
	code := refusal.Settings
	if !slices.Contains(mine.Peers, peer.ID) || !slices.Contains(peer.Peers, mine.ID) {
		if len(out) == 0 {
			code = refusal.Unnamed
		}
		if !slices.Contains(mine.Peers, peer.ID) {
			out = append(out, Unnamed(mine.ID, mine.Peers, peer.ID))
		}
		if !slices.Contains(peer.Peers, mine.ID) {
			out = append(out, Unnamed(peer.ID, peer.Peers, mine.ID))
		}
	}
	settled := len(out)
	token, dir, err := s.Token(peer.ID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		out = append(out, fmt.Sprintf("cachedir of %s (%s) is not the directory that %s uses: it has no data of %s", mine.ID, dir, peer.ID, peer.ID))
	case err != nil:
		out = append(out, fmt.Sprintf("cachedir of %s cannot be read: %v", mine.ID, err))
	case ProofOf(token, nonce) != peer.Proof:
		out = append(out, fmt.Sprintf("cachedir of %s (%s) is not the directory that %s uses: it has older data of %s", mine.ID, dir, peer.ID, peer.ID))
	}
	if len(out) > settled {
		code = refusal.Settings
		if settled == 0 {
			code = refusal.Data
		}
	}
	r := settings(out)
	if r != nil {
		r.Code = code
	}
	return r
}

func settings(differences []string) *refusal.Error {
	if len(differences) == 0 {
		return nil
	}
	return &refusal.Error{Code: refusal.Settings, Reason: strings.Join(differences, "; ")}
}

// Unnamed returns the message that cluster_peers of one master does not name another, with the fix.
func Unnamed(who string, peers []string, whom string) string {
	return fmt.Sprintf("cluster_peers of %s (%s) does not name %s: name it there, or remove %[1]s from cluster_peers of %[3]s", who,
		strings.Join(peers, ", "), whom)
}

// Skewed returns the refusal if a clock is wrong, else nil. The peer's time was read between from and to of the clock of the master id.
func Skewed(id string, peer Facts, from, to time.Time) *refusal.Error {
	switch {
	case peer.Now.IsZero():
		return nil
	case from.Sub(peer.Now) > maxSkew:
		return refusal.New(refusal.Clock, refusal.TextClock+"%s is %v behind that of %s; at most %v are allowed: synchronize both with NTP", peer.ID,
			from.Sub(peer.Now).Round(time.Millisecond), id, maxSkew)
	case peer.Now.Sub(to) > maxSkew:
		return refusal.New(refusal.Clock, refusal.TextClock+"%s is %v ahead of that of %s; at most %v are allowed: synchronize both with NTP", peer.ID,
			peer.Now.Sub(to).Round(time.Millisecond), id, maxSkew)
	}
	return nil
}
