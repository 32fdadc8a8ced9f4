package memberauth

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A master without the keys of its cluster (J) joins it at a member (M):
//
//	J: brine/cluster/discover        {id, cluster, protocol, nonce, pub}
//	M: brine/cluster/discover-reply  {id, nonce, pub, cluster_pub, sig}   sig: with the cluster's key
//	J: brine/cluster/join            {key, proof, sig}                    key: encrypted for M; sig: with J's own
//	M: brine/cluster/join-reply      sealed with key: {proof, cluster_pem, cluster_pub, aes, peers}
//
// or brine/cluster/refused {reason, code}. All of it is inside TLS, and signatures and proofs cover that connection; a member accepts it
// without TLS from masters of older versions as long as there is such a member. The steps and the options are those of Salt 3008; the
// secret itself is never sent. Both ends prove that they know it by an HMAC over all previous messages, so that J neither sends secrets to,
// nor accepts them from, an impostor.
const (
	TagDiscover      = "brine/cluster/discover"
	TagDiscoverReply = "brine/cluster/discover-reply"
	TagJoin          = "brine/cluster/join"
	TagJoinReply     = "brine/cluster/join-reply"
)

// Applicant is a master that joins.
type Applicant struct {
	ID, Cluster string
	// Member is the id of the member at which it joins.
	Member string
	// Secret is the joining secret. Fingerprint is that of the cluster's key, "" if it is unknown.
	Secret, Fingerprint string
	Own                 *crypt.PrivateKey
	OwnPub              []byte
}

// Joiner is the handshake of the joining master.
type Joiner struct {
	a    Applicant
	conn Conn

	step       int
	said       wire.Transcript
	key        string
	clusterPub []byte
	// Welcome is the member's last message, set when the handshake is complete.
	Welcome *wire.Welcome
}

// NewJoiner returns the handshake of a master that joins.
func NewJoiner(a Applicant, conn Conn) *Joiner { return &Joiner{a: a, conn: conn} }

// Step takes the member's message, nil at first. A refusal by either end is a *refusal.Error.
func (j *Joiner) Step(in []byte, _ time.Time) (Out, error) {
	j.step++
	switch j.step {
	case 1:
		return j.discover()
	case 2:
		return j.prove(in)
	case 3:
		return j.welcome(in)
	}
	return Out{}, errOrder
}

func (j *Joiner) discover() (Out, error) {
	b, err := wire.Encode(TagDiscover, wire.Dict(&wire.Discover{ID: j.a.ID, Cluster: j.a.Cluster, Protocol: wire.Protocol, Nonce: wire.Nonce(),
		Pub: j.a.OwnPub}))
	j.said = slices.Clone(j.conn.Begin)
	j.said.Add(b)
	return Out{Send: b}, err
}

func (j *Joiner) prove(in []byte) (Out, error) {
	body, err := wire.Want(in, TagDiscoverReply)
	if err != nil {
		return Out{}, err
	}
	var m wire.DiscoverReply
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	if m.ID != j.a.Member {
		return Out{}, refusal.New(refusal.ID, "cluster_peers names %s, but the master there has the id %q", j.a.Member, m.ID)
	}
	j.clusterPub = m.ClusterPub
	sum := sha256.Sum256(j.clusterPub)
	if f := j.a.Fingerprint; f != "" && !strings.EqualFold(f, hex.EncodeToString(sum[:])) {
		return Out{}, refusal.New(refusal.Key, "its cluster.pub has the fingerprint %x, and cluster_pub_fingerprint is %s: this is another cluster", sum, f)
	}
	if _, err := j.verify(in, &m); err != nil {
		return Out{}, err
	}
	memberKey, err := crypt.ParsePublic(m.Pub)
	if err != nil {
		return Out{}, err
	}
	j.key = crypt.NewKey()
	box, err := memberKey.Encrypt(crypt.OAEPSHA224, []byte(j.key))
	if err != nil {
		return Out{}, err
	}
	j.said.Add(box)
	proof := j.said.Proof(j.a.Secret, TagJoin)
	j.said.Add(proof)
	sig, err := j.a.Own.Sign(crypt.PKCS1v15SHA224, j.said.Sum(TagJoin))
	if err != nil {
		return Out{}, err
	}
	b, err := wire.Encode(TagJoin, wire.Dict(&wire.Join{Key: box, Proof: proof, Sig: sig}))
	return Out{Send: b}, err
}

// verify checks that the member has the key of the cluster that it shows, and returns that key.
func (j *Joiner) verify(in []byte, m *wire.DiscoverReply) (*crypt.PublicKey, error) {
	clusterKey, err := crypt.ParsePublic(m.ClusterPub)
	if err != nil {
		return nil, err
	}
	j.said.Add(wire.Unsigned(in))
	if err := clusterKey.Verify(crypt.PKCS1v15SHA224, j.said.Sum(TagDiscoverReply), m.Sig); err != nil {
		return nil, refusal.New(refusal.Key, "the master there does not have the key that it shows")
	}
	return clusterKey, nil
}

// Identify takes the member's first message, and returns its id and the key of its cluster without joining. It replaces the second
// call of Step.
func (j *Joiner) Identify(in []byte) (id string, clusterKey *crypt.PublicKey, err error) {
	body, err := wire.Want(in, TagDiscoverReply)
	if err != nil {
		return "", nil, err
	}
	var m wire.DiscoverReply
	if err := wire.Read(body, &m); err != nil {
		return "", nil, err
	}
	if err := salt.CheckID(m.ID); err != nil {
		return "", nil, refusal.New(refusal.ID, "the id of the master there is invalid")
	}
	clusterKey, err = j.verify(in, &m)
	return m.ID, clusterKey, err
}

func (j *Joiner) welcome(in []byte) (Out, error) {
	body, err := wire.Want(in, TagJoinReply)
	if err != nil {
		return Out{}, err
	}
	var m wire.JoinReply
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	cipher, err := crypt.NewCrypticle(j.key)
	if err != nil {
		return Out{}, err
	}
	plain, err := cipher.Open(m.Sealed)
	if err != nil {
		return Out{}, err
	}
	welcome := &wire.Welcome{}
	v, err := msgpack.UnmarshalTyped(plain)
	if err == nil {
		d, _ := v.(*value.Dict)
		err = wire.Read(d, welcome)
	}
	if err != nil || !hmac.Equal(welcome.Proof, j.said.Proof(j.a.Secret, TagJoinReply)) {
		return Out{}, refusal.New(refusal.Secret, "the master there does not know cluster_secret")
	}
	if !bytes.Equal(welcome.ClusterPub, j.clusterPub) {
		return Out{}, refusal.New(refusal.Key, "the master there has two keys")
	}
	j.Welcome = welcome
	return Out{Done: true}, nil
}

// Admission decides for a member about joining masters.
type Admission interface {
	// AllTLS reports whether all members use TLS.
	AllTLS() bool
	// Secret returns the joining secret.
	Secret() (string, error)
	// Banned returns why a removed id may not join; nil if it may.
	Banned(id string) (*refusal.Error, error)
	// PeerKey and PeerPath are those of Directory.
	PeerKey(id string) (*crypt.PublicKey, error)
	PeerPath(id string) string
	// Welcome makes a master with a public key (PEM) a member, and returns the keys to send to it.
	Welcome(id string, pub []byte) (*wire.Welcome, error)
}

// Host is the member at which a master joins.
type Host struct {
	ID, Cluster string
	Own         *crypt.PrivateKey
	OwnPub      []byte
	// Key is the cluster's key. ClusterPub is its public half, byte for byte as in the file: a joining master may check its hash.
	Key        *crypt.PrivateKey
	ClusterPub []byte
}

// Admitter is the handshake of the member.
type Admitter struct {
	h    Host
	dir  Admission
	conn Conn

	step int
	said wire.Transcript
	id   string
	pub  *crypt.PublicKey
	pem  []byte
}

// NewAdmitter returns the handshake with a master that wants to join.
func NewAdmitter(h Host, dir Admission, conn Conn) *Admitter {
	return &Admitter{h: h, dir: dir, conn: conn}
}

// ID returns the id of the master, "" if it is unknown or invalid.
func (a *Admitter) ID() string { return a.id }

// Step takes the other master's message. Send is the refusal if the error is a *refusal.Error.
func (a *Admitter) Step(in []byte, _ time.Time) (out Out, err error) {
	a.step++
	switch a.step {
	case 1:
		out, err = a.discover(in)
	case 2:
		out, err = a.join(in)
	default:
		return Out{}, errOrder
	}
	if why := refusal.Of(err); why != nil {
		b, err2 := wire.Encode(wire.TagRefused, why.Dict())
		if err2 != nil {
			return Out{}, err2
		}
		out.Send = b
	}
	return out, err
}

func (a *Admitter) discover(in []byte) (Out, error) {
	_, body, err := wire.Decode(in)
	if err != nil {
		return Out{}, err
	}
	var m wire.Discover
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	a.pem = m.Pub
	a.pub, err = crypt.ParsePublic(a.pem)
	id := m.ID
	switch {
	case salt.CheckID(id) != nil || err != nil:
		return Out{}, refusal.New(refusal.ID, "its id or its key is invalid")
	case id == a.h.ID:
		return Out{}, refusal.New(refusal.ID, "%s is the id of a member already", id)
	case m.Cluster != a.h.Cluster:
		return Out{}, refusal.New(refusal.Settings, "cluster_id is %q on %s and %q on %s", a.h.Cluster, a.h.ID, m.Cluster, id)
	case m.Protocol != wire.Protocol:
		return Out{}, refusal.New(refusal.Protocol, "the version of the protocol between masters is %d on %s and %d on %s", wire.Protocol, a.h.ID,
			m.Protocol, id)
	case !a.conn.TLS && a.dir.AllTLS():
		return Out{}, refusal.New(refusal.TLS, "the members of this cluster use TLS, and %s does not: install the version of the members there", id)
	}
	a.id = id
	a.said = slices.Clone(a.conn.Begin)
	a.said.Add(in)
	reply := &wire.DiscoverReply{ID: a.h.ID, Nonce: wire.Nonce(), Pub: a.h.OwnPub, ClusterPub: a.h.ClusterPub}
	bare, err := wire.Encode(TagDiscoverReply, wire.Dict(reply))
	if err != nil {
		return Out{}, err
	}
	a.said.Add(bare)
	sig, err := a.h.Key.Sign(crypt.PKCS1v15SHA224, a.said.Sum(TagDiscoverReply))
	if err != nil {
		return Out{}, err
	}
	reply.Sig = sig
	b, err := wire.Encode(TagDiscoverReply, wire.Dict(reply))
	return Out{Send: b}, err
}

func (a *Admitter) join(in []byte) (Out, error) {
	body, err := wire.Want(in, TagJoin)
	if err != nil {
		return Out{}, err
	}
	var m wire.Join
	if err := wire.Read(body, &m); err != nil {
		return Out{}, err
	}
	secret, err := a.dir.Secret()
	if err != nil {
		return Out{}, err
	}
	a.said.Add(m.Key)
	if !hmac.Equal(m.Proof, a.said.Proof(secret, TagJoin)) {
		return Out{}, refusal.New(refusal.Secret, "%s does not know cluster_secret", a.id)
	}
	a.said.Add(m.Proof)
	if err := a.pub.Verify(crypt.PKCS1v15SHA224, a.said.Sum(TagJoin), m.Sig); err != nil {
		return Out{}, refusal.New(refusal.Key, "%s does not have the key that it shows", a.id)
	}
	if why, err := a.dir.Banned(a.id); err != nil {
		return Out{}, err
	} else if why != nil {
		return Out{}, why
	}
	key, err := a.h.Own.Decrypt(crypt.OAEPSHA224, m.Key)
	if err != nil {
		return Out{}, refusal.New(refusal.Key, "cannot decrypt the key of the connection")
	}
	cipher, err := crypt.NewCrypticle(string(key))
	if err != nil {
		return Out{}, refusal.New(refusal.Key, "the key of the connection is invalid")
	}
	if there, err := a.dir.PeerKey(a.id); err == nil && !there.Equal(a.pub) {
		return Out{}, refusal.New(refusal.ID, "a member with the id %s and another key exists already; if that one is gone for good, delete %s on any member",
			a.id, a.dir.PeerPath(a.id))
	}
	welcome, err := a.dir.Welcome(a.id, a.pem)
	if err != nil {
		return Out{}, err
	}
	welcome.Proof = a.said.Proof(secret, TagJoinReply)
	plain, err := msgpack.Marshal(wire.Dict(welcome), msgpack.NewSpec)
	if err != nil {
		return Out{}, err
	}
	b, err := wire.Encode(TagJoinReply, wire.Dict(&wire.JoinReply{Sealed: cipher.Seal(plain, "")}))
	return Out{Send: b, Done: true}, err
}
