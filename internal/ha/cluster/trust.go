package cluster

import (
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/members"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
)

// trust decides which masters are members, by their keys, certificates and files. It is the directory of handshakes (memberauth).
type trust struct {
	cluster  string // name of the cluster
	pkiDir   string
	cacheDir string
	isolated bool
	secrets  *keys.Secrets
	ring     *atomic.Pointer[keys.Ring]
	files    *members.Files
	peers    *peerSet
}

// needsTLS reports whether a member has used TLS. A connection without TLS cannot be from that
// member.
func (t *trust) needsTLS(id string) bool {
	if p := t.peers.all()[id]; p != nil {
		p.mu.Lock()
		spoke := p.tls
		p.mu.Unlock()
		if spoke {
			return true
		}
	}
	s, err := t.files.Read(id)
	return err == nil && s.TLS
}

// allTLS reports whether all members use TLS.
func (t *trust) allTLS() bool {
	for id, p := range t.peers.all() {
		if !p.isGone() && !t.needsTLS(id) {
			return false
		}
	}
	return true
}

// admitsOld returns the refusal for a master that does not use TLS; nil if it may be a member with
// a version that lacks TLS.
func (t *trust) admitsOld(id string) *refusal.Error {
	if t.allTLS() {
		return refusal.New(refusal.TLS, "the members of this cluster speak TLS: install the version there that they have")
	}
	if _, err := t.secrets.PeerKey(id); err != nil {
		return refusal.New(refusal.NotMember, "%.100q %s of this master", id, refusal.TextNotMember)
	}
	return nil
}

// vouch returns the reason to refuse a connection of the master that claims an
// id; nil if there is none.
func (t *trust) vouch(tls bool, cert *x509.Certificate, id string) *refusal.Error {
	switch {
	case !t.isolated:
		return nil
	case salt.CheckID(id) != nil:
		return refusal.New(refusal.ID, "%.100q is the id of no master", id)
	case tls:
		return t.checkMember(cert, id)
	case t.needsTLS(id):
		return refusal.New(refusal.TLS,
			"%.100q has spoken TLS and does not any more: somebody else may be at its address, or an older version was installed there; install the "+
				"one that the others have", id)
	}
	return nil
}

// checkMember returns why a certificate is not valid for an id of this cluster; nil if it is. The signer may be a key that the present one
// endorses, if this master has not switched yet, or a former key, if the member has not switched yet.
func (t *trust) checkMember(cert *x509.Certificate, id string) *refusal.Error {
	ring := t.ring.Load()
	check := func(by *crypt.PublicKey) *refusal.Error {
		return wire.CheckCertificate(cert, by, t.cluster, id, time.Now())
	}
	why := check(ring.Key.Public())
	if why == nil || cert == nil {
		return why
	}
	for _, by := range handshake.Endorsed(ring.Key.Public(), keys.PlainEndorsements(keys.ChainOf(cert)))[1:] {
		if check(by) == nil {
			return nil
		}
	}
	if t.behind(id) {
		for _, by := range ring.Former {
			if check(by) == nil {
				return nil
			}
		}
	}
	return why
}

// behind reports whether a member is known to use a former key of the cluster.
func (t *trust) behind(id string) bool {
	s, err := t.files.Read(id)
	return err == nil && s.Key != t.ring.Load().Fingerprint
}

// allUseSecret reports whether the version of every member supports the secret.
func (t *trust) allUseSecret() bool {
	for id, p := range t.peers.all() {
		if p.isGone() {
			continue
		}
		if s, err := t.files.Read(id); err != nil || !s.Sessions {
			return false
		}
	}
	return true
}

// Parting reports whether the masters are leaving their shared directory: the first one to leave has stored a secret there. Until the
// last one has left, there are two clusters with one key, each of which commands its connected minions.
func (t *trust) Parting() bool {
	_, err := os.Stat(filepath.Join(t.pkiDir, keys.SecretFile))
	return err == nil
}

// Token implements memberauth.Shared.
func (t *trust) Token(id string) (token, cacheDir string, err error) {
	b, err := os.ReadFile(filepath.Join(t.cacheDir, ownDir, filepath.Base(id), tokenFile))
	return string(b), t.cacheDir, err
}

// Related implements memberauth.Shared.
func (t *trust) Related(cert *x509.Certificate, fingerprint string) bool {
	return t.ring.Load().Related(cert, fingerprint)
}

// PeerKey implements memberauth.Directory.
func (t *trust) PeerKey(id string) (*crypt.PublicKey, error) { return t.secrets.PeerKey(id) }

// PeerPath implements memberauth.Directory.
func (t *trust) PeerPath(id string) string { return t.secrets.PeerPath(id) }

// Vouch implements memberauth.Directory.
func (t *trust) Vouch(conn memberauth.Conn, id string, early bool) *refusal.Error {
	if why := t.vouch(conn.TLS, conn.Cert, id); why != nil {
		return why
	}
	if early && t.isolated && !conn.TLS {
		return t.admitsOld(id)
	}
	return nil
}

// WasMember implements memberauth.Directory.
func (t *trust) WasMember(id string) bool {
	p := t.peers.all()[id]
	return p != nil && p.wasThere()
}

// Admit implements memberauth.Directory.
func (t *trust) Admit(id, process string) *refusal.Error {
	p := t.peers.all()[id]
	if p == nil {
		p = t.peers.adopt(id)
	}
	if p.member().Problem != "" {
		p.look()
	}
	if p.isGone() {
		return refusal.New(refusal.Removed, "%s was removed from the cluster", id)
	}
	if other := otherProcess(p, process); other != "" {
		return refusal.New(refusal.InUse,
			"another process is connected as %s, from %s: two machines have its id and key, as after a copy of a machine; stop one of them; "+
				"to make the copy a member of its own, give it another id, and remove its cluster_pki_dir, its cachedir, and master.pem and "+
				"master.pub in pki_dir", id, other)
	}
	return nil
}

// aliveTime is how long after its last frame a connection is considered that of a running process: a few beats. A process that
// is killed closes its connections, so only the loss of a machine or network leaves one open and silent.
const aliveTime = 5 * beat

// otherProcess returns the address from which another process than the given one is connected as a peer, "" if none is.
func otherProcess(p *peer, process string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.in == nil || p.inInc == process || time.Since(p.heard) > aliveTime {
		return ""
	}
	host, _, _ := net.SplitHostPort(p.in.RemoteAddr().String())
	return host
}
