// Package memberauth has the handshakes of masters of a cluster as state machines: that of two members (Dialer and Answerer), and that of
// a master that joins at a member (Joiner and Admitter). A machine takes the other end's message and the time, and returns what to send;
// it has no socket and no clock. The package cluster drives it.
//
// Two Brine masters have a connection in each direction, to the same port as stock masters. The dialling master (D) sends messages, the
// other (A) acknowledges.
//
//	D: brine/cluster/hello  {nonce, facts}
//	A: brine/cluster/reply  {nonce, facts, sig}
//	D: brine/cluster/key    {key, proof, inc, sig}     key: encrypted for A
//	   or  brine/cluster/refused {reason, code, sig}
//	A: brine/cluster/ready  {}  or  brine/cluster/refused {reason, code, sig}
//
// Each signature covers all previous messages, that of a refusal also the reason, and the code if the other end understands codes (package
// refusal). Without a shared directory everything is inside TLS: the signatures also cover the TLS connection, and there is no key. A peer
// whose certificate is not a member's gets an unsigned refusal instead of the reply.
package memberauth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
)

// Tags of the messages of two members.
const (
	TagHello = "brine/cluster/hello"
	TagReply = "brine/cluster/reply"
	TagKey   = "brine/cluster/key"
	TagReady = "brine/cluster/ready"
)

// Shared gives access to shared directories and to the keys of the cluster.
type Shared interface {
	// Parting reports whether the masters are leaving their shared directory.
	Parting() bool
	// Token returns the token of another master in cachedir, and the name of cachedir. The error matches fs.ErrNotExist if there is none.
	Token(id string) (token, cacheDir string, err error)
	// Related reports whether a peer with the fingerprint of a cluster key belongs to the same cluster. cert may be nil.
	Related(cert *x509.Certificate, fingerprint string) bool
}

// Directory looks up the other masters.
type Directory interface {
	Shared
	// PeerKey returns the public key of a master; the error matches fs.ErrNotExist if there is none.
	PeerKey(id string) (*crypt.PublicKey, error)
	// PeerPath returns the file with that key, for error messages.
	PeerPath(id string) string
	// Vouch returns the reason to refuse a connection of the master that claims an id, nil if there is none. It is
	// called before this master signs anything for it. early means that the other master is not authenticated yet.
	Vouch(conn Conn, id string, early bool) *refusal.Error
	// WasMember reports whether a master whose key is missing had one before.
	WasMember(id string) bool
	// Admit accepts an authenticated master. It refuses a master that was removed, and one as which another process than the given one is
	// connected.
	Admit(id, process string) *refusal.Error
}

// Conn describes the connection of a handshake.
type Conn struct {
	TLS  bool
	Cert *x509.Certificate // of the other end, nil for none
	// Begin is the initial transcript. With TLS it contains a secret of the connection.
	Begin wire.Transcript
}

// Self is the local master.
type Self struct {
	// Facts are its settings, without proof and time.
	Facts Facts
	Own   *crypt.PrivateKey
	// Token is its token in cachedir, Process the name of this process.
	Token, Process string
	// Nonce returns a new nonce, Key a new AES key. Nil: random ones.
	Nonce, Key func() string
}

func (s Self) nonce() string {
	if s.Nonce == nil {
		return wire.Nonce()
	}
	return s.Nonce()
}

func (s Self) key() string {
	if s.Key == nil {
		return crypt.NewKey()
	}
	return s.Key()
}

func (s Self) facts(nonce string, now time.Time) Facts {
	f := s.Facts
	f.Proof, f.Now = ProofOf(s.Token, nonce), now
	return f
}

// refuse returns the signed message of a refusal.
func (s Self) refuse(said wire.Transcript, theirs Facts, why *refusal.Error) ([]byte, error) {
	codes := min(s.Facts.Refusals, theirs.Refusals)
	said = slices.Clone(said)
	said.Add(why.Signed(codes)...)
	sig, err := s.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(wire.TagRefused))
	if err != nil {
		return nil, err
	}
	m := why.Message(codes) // no code if the signature does not cover it
	m.Sig = sig
	return wire.Encode(wire.TagRefused, wire.Dict(m))
}

// readRefusal returns the refusal sent by the master with the key pub.
func readRefusal(id string, pub *crypt.PublicKey, said wire.Transcript, m *refusal.Message) (*refusal.Error, error) {
	said = slices.Clone(said)
	why := m.Refusal()
	said.Add(why.Signed(m.Understands())...)
	if err := pub.Verify(crypt.PKCS1v15SHA224, said.Sum(wire.TagRefused), m.Sig); err != nil {
		return nil, errors.New("a refusal with an invalid signature")
	}
	return why.From(id), nil
}

// Out is the result of a step.
type Out struct {
	// Send is the body of the message to send, nil for none. It must be sent even if the step returns an error, since it is the refusal
	// then.
	Send []byte
	// Done says that the handshake is complete once Send was sent.
	Done bool
	// Peer has the facts of the other end, Process the name of its process (set by Answerer), and Cipher the key of the frames that
	// follow, nil with TLS. They are valid when the handshake is complete.
	Peer    Facts
	Process string
	Cipher  *crypt.Crypticle
}

// errOrder is the error for a step after the end.
var errOrder = errors.New("the handshake has ended")

// Dialer is the handshake of the master that made the connection.
type Dialer struct {
	self Self
	dir  Directory
	conn Conn
	peer string

	step   int
	nonce  string
	asked  time.Time
	said   wire.Transcript
	theirs Facts
	pub    *crypt.PublicKey
	cipher *crypt.Crypticle
}

// NewDialer returns a handshake with the master peer.
func NewDialer(self Self, dir Directory, conn Conn, peer string) *Dialer {
	return &Dialer{self: self, dir: dir, conn: conn, peer: peer}
}

// Step takes the other end's message, nil at first. A refusal by either end is a *refusal.Error.
func (d *Dialer) Step(in []byte, now time.Time) (Out, error) {
	d.step++
	switch d.step {
	case 1:
		return d.hello(now)
	case 2:
		return d.reply(in, now)
	case 3:
		return d.end(in)
	}
	return Out{}, errOrder
}

func (d *Dialer) hello(now time.Time) (Out, error) {
	d.nonce = d.self.nonce()
	hello, err := wire.Encode(TagHello, wire.Dict(&wire.Hello{Nonce: d.nonce, Facts: d.self.facts("", now).Dict()}))
	if err != nil {
		return Out{}, err
	}
	d.said = slices.Clone(d.conn.Begin)
	d.said.Add(hello)
	d.asked = now
	return Out{Send: hello}, nil
}

// reply checks the other end's answer, and returns the message with a key or a refusal.
func (d *Dialer) reply(in []byte, now time.Time) (Out, error) {
	tag, body, err := wire.Decode(in)
	if err == nil && tag == wire.TagRefused && d.conn.TLS {
		return Out{}, refusal.Read(body).Refusal().From(d.peer)
	}
	if err != nil || tag != TagReply {
		return Out{}, errors.Join(fmt.Errorf("not an answer of a Brine master: %.80q", tag), err)
	}
	var m wire.Reply
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	if d.theirs, err = ReadFacts(m.Facts); err != nil {
		return Out{}, err
	}
	d.said.Add([]byte(m.Nonce), RawFacts(m.Facts))
	if why := d.judge(&m, now); why != nil {
		b, err := d.self.refuse(d.said, d.theirs, why)
		return Out{Send: b}, errors.Join(why, err)
	}
	var box []byte
	if !d.conn.TLS {
		key := d.self.key()
		if box, err = d.pub.Encrypt(crypt.OAEPSHA224, []byte(key)); err == nil {
			d.cipher, err = crypt.NewCrypticle(key)
		}
		if err != nil {
			return Out{}, err
		}
	}
	proof := ProofOf(d.self.Token, m.Nonce)
	d.said.Add(box, []byte(proof), []byte(d.self.Process))
	sig, err := d.self.Own.Sign(crypt.PKCS1v15SHA224, d.said.Sum(TagKey))
	if err != nil {
		return Out{}, err
	}
	b, err := wire.Encode(TagKey, wire.Dict(&wire.Key{Key: box, Proof: proof, Process: d.self.Process, Sig: sig}))
	return Out{Send: b}, err
}

func (d *Dialer) judge(m *wire.Reply, now time.Time) *refusal.Error {
	self := d.self.Facts.ID
	if d.theirs.ID != d.peer {
		return refusal.New(refusal.ID,
			"cluster_peers names %s, but the master there has the id %q: stock masters would drop its events; name it by its id, which must be its address",
			d.peer, d.theirs.ID)
	}
	var err error
	if d.pub, err = d.dir.PeerKey(d.peer); err != nil {
		return refusal.New(refusal.Key, "there is no key of %s in the shared directory of %s (is cluster_pki_dir one directory for both?): %v", d.peer, self,
			err)
	}
	if err := d.pub.Verify(crypt.PKCS1v15SHA224, d.said.Sum(TagReply), m.Sig); err != nil {
		return refusal.New(refusal.Key, "the master at %s does not have the key that is in %s", d.peer, d.dir.PeerPath(d.peer))
	}
	if why := Differences(d.self.Facts, d.theirs, d.nonce, d.conn.Cert, d.dir); why != nil {
		return why
	}
	return Skewed(self, d.theirs, d.asked, now)
}

func (d *Dialer) end(in []byte) (Out, error) {
	tag, m, err := wire.Decode(in)
	if err != nil {
		return Out{}, err
	}
	if tag == wire.TagRefused {
		why, err := readRefusal(d.peer, d.pub, d.said, refusal.Read(m))
		if err != nil {
			return Out{}, err
		}
		return Out{}, why
	}
	if tag != TagReady {
		return Out{}, fmt.Errorf("%.80q at the end of a handshake", tag)
	}
	return Out{Done: true, Peer: d.theirs, Cipher: d.cipher}, nil
}

// Refused is the error when the dialling master refuses this one. It matches io.EOF: the connection ends without an error of this end.
type Refused struct {
	ID string
	// Why is the refusal, nil if it is not authentic. In that case Err is the reason: the master's key is unknown (Unknown), or the
	// signature is invalid.
	Why     *refusal.Error
	Unknown bool
	Err     error
	// Claimed is the text as sent.
	Claimed string
}

func (r *Refused) Error() string { return fmt.Sprintf("%.100q refuses this master", r.ID) }

// Is makes it match io.EOF.
func (r *Refused) Is(err error) bool { return err == io.EOF }

// Answerer is the handshake of the master that accepted the connection.
type Answerer struct {
	self Self
	dir  Directory
	conn Conn

	step   int
	nonce  string
	said   wire.Transcript
	theirs Facts
}

// NewAnswerer returns a handshake with a master that has connected.
func NewAnswerer(self Self, dir Directory, conn Conn) *Answerer {
	return &Answerer{self: self, dir: dir, conn: conn}
}

// Step takes the other end's message. A *refusal.Error means that this master refuses the other; a *Refused means that the other refuses
// this one.
func (a *Answerer) Step(in []byte, now time.Time) (Out, error) {
	a.step++
	switch a.step {
	case 1:
		return a.hello(in, now)
	case 2:
		return a.key(in)
	}
	return Out{}, errOrder
}

func (a *Answerer) hello(in []byte, now time.Time) (Out, error) {
	_, body, err := wire.Decode(in)
	if err != nil {
		return Out{}, err
	}
	var m wire.Hello
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	if a.theirs, err = ReadFacts(m.Facts); err != nil {
		return Out{}, err
	}
	// Check this before signing or disclosing anything: without TLS any peer may send hello.
	if why := a.dir.Vouch(a.conn, a.theirs.ID, true); why != nil {
		b, err := wire.Encode(wire.TagRefused, why.Dict())
		return Out{Send: b}, errors.Join(why, err)
	}
	a.nonce = a.self.nonce()
	reply := &wire.Reply{Nonce: a.nonce, Facts: a.self.facts(m.Nonce, now).Dict()}
	a.said = slices.Clone(a.conn.Begin)
	a.said.Add(in, []byte(a.nonce), RawFacts(reply.Facts))
	sig, err := a.self.Own.Sign(crypt.PKCS1v15SHA224, a.said.Sum(TagReply))
	if err != nil {
		return Out{}, err
	}
	reply.Sig = sig
	b, err := wire.Encode(TagReply, wire.Dict(reply))
	return Out{Send: b}, err
}

func (a *Answerer) key(in []byte) (Out, error) {
	tag, body, err := wire.Decode(in)
	if err == nil && tag == wire.TagRefused {
		return Out{}, a.refused(refusal.Read(body))
	}
	if err != nil || tag != TagKey {
		return Out{}, errors.Join(fmt.Errorf("%.80q instead of a key", tag), err)
	}
	var m wire.Key
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	a.said.Add(m.Key, []byte(m.Proof), []byte(m.Process))
	cipher, why := a.judge(&m)
	if why != nil {
		b, err := a.self.refuse(a.said, a.theirs, why)
		return Out{Send: b}, errors.Join(why, err)
	}
	b, err := wire.Encode(TagReady, wire.Dict(&wire.Ready{}))
	return Out{Send: b, Done: true, Peer: a.theirs, Process: m.Process, Cipher: cipher}, err
}

func (a *Answerer) refused(m *refusal.Message) error {
	r := &Refused{ID: a.theirs.ID, Claimed: m.Reason}
	pub, err := a.dir.PeerKey(r.ID)
	if err != nil {
		r.Unknown, r.Err = true, err
		return r
	}
	r.Why, r.Err = readRefusal(r.ID, pub, a.said, m)
	return r
}

// judge decides after the last message of the other master whether to accept it.
func (a *Answerer) judge(m *wire.Key) (*crypt.Crypticle, *refusal.Error) {
	id, self := a.theirs.ID, a.self.Facts.ID
	pub, err := a.dir.PeerKey(id)
	missing := errors.Is(err, fs.ErrNotExist)
	if a.self.Facts.Isolated && missing {
		return nil, refusal.New(refusal.NotMember, "%.100q %s of %s", id, refusal.TextNotMember, self)
	}
	if why := a.dir.Vouch(a.conn, id, false); why != nil {
		return nil, why
	}
	if missing && a.dir.WasMember(id) {
		return nil, refusal.New(refusal.Removed, "%s was removed from the cluster: %s was deleted; restart it to have it back", id, a.dir.PeerPath(id))
	}
	if salt.CheckID(id) != nil || err != nil {
		return nil, refusal.New(refusal.Key, "%.100q has no key in cluster_pki_dir of %s (is that one directory for both?)", id, self)
	}
	if err := pub.Verify(crypt.PKCS1v15SHA224, a.said.Sum(TagKey), m.Sig); err != nil {
		return nil, refusal.New(refusal.Key, "%s does not have the key that is in %s", id, a.dir.PeerPath(id))
	}
	a.theirs.Proof = m.Proof
	if why := Differences(a.self.Facts, a.theirs, a.nonce, a.conn.Cert, a.dir); why != nil {
		return nil, why
	}
	var cipher *crypt.Crypticle
	if !a.conn.TLS {
		key, err := a.self.Own.Decrypt(crypt.OAEPSHA224, m.Key)
		if err != nil {
			return nil, refusal.New(refusal.Key, "cannot decrypt the key of the connection")
		}
		if cipher, err = crypt.NewCrypticle(string(key)); err != nil {
			return nil, refusal.New(refusal.Key, "the key of the connection is invalid")
		}
	}
	return cipher, a.dir.Admit(id, m.Process)
}
