package cluster

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
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
// or brine/cluster/refused {reason}. All of it is inside TLS (tls.go), and signatures and proofs cover that connection; a member accepts it
// without TLS from masters of older versions as long as there is such a member. The steps and the options are those of Salt 3008; the
// secret itself is never sent. Both ends prove that they know it by an HMAC over all previous messages, so that J neither sends secrets to,
// nor accepts them from, an impostor.
const (
	tagDiscover      = "brine/cluster/discover"
	tagDiscoverReply = "brine/cluster/discover-reply"
	tagJoin          = "brine/cluster/join"
	tagJoinReply     = "brine/cluster/join-reply"
)

// Times of joining.
const (
	// foundTime is how long a master that may create the cluster waits for others that do not answer.
	foundTime = 5 * time.Second
	// joinTime is how long any other master waits for a member.
	joinTime  = 60 * time.Second
	joinPause = 200 * time.Millisecond
)

// establish ensures that this master has the keys of the cluster: they exist already, or a member sends them, or this master creates the
// cluster. If no peer is a member yet, the master with the lowest id (of cluster_peers and itself) creates the cluster. No other master
// ever creates keys, so that of several that start at once only one does.
func establish(cfg *Config, log *slog.Logger) (isNew bool, err error) {
	path := filepath.Join(cfg.Options.PKIDir, keys.PairName+".pem")
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if len(cfg.Options.Peers) > 0 {
		if err := cfg.Options.checkJoin(); err != nil {
			return false, err
		}
	}
	founder := len(cfg.Options.Peers) == 0 || cfg.ID < slices.Min(cfg.Options.Peers)
	from := time.Now()
	for told := false; ; told = true {
		silent, last := 0, error(nil)
		for _, id := range cfg.Options.Peers {
			err := join(cfg, id)
			var no *refusal.Error
			switch {
			case err == nil:
				log.Info("joined the cluster", "cluster", cfg.Options.ID, "peer", id)
				return true, nil
			case errors.As(err, &no):
				return false, salt.Errorf(salt.Invalid, "this master cannot join the cluster at %s: %s", id, no.Reason)
			case !errors.Is(err, syscall.ECONNREFUSED):
				silent++
			}
			last = err
		}
		waited := time.Since(from)
		switch {
		case founder && (silent == 0 || waited > foundTime):
			log.Warn("creating a new cluster: no other master answers. To join an existing one instead, stop this master, remove cluster_pki_dir, and name a running member in cluster_peers", "cluster", cfg.Options.ID)
			return true, nil
		case waited > joinTime:
			return false, salt.Errorf(salt.Unavailable, "no master of the cluster answers on port %d (%s): start %s first, which creates it, or correct cluster_peers: %w",
				cfg.Options.Port, strings.Join(cfg.Options.Peers, ", "), slices.Min(cfg.Options.Peers), last)
		case !told:
			log.Info("waiting for a member of the cluster, to join it there", "cluster", cfg.Options.ID, "cluster_peers", strings.Join(cfg.Options.Peers, ", "))
		}
		time.Sleep(joinPause)
	}
}

// Join makes this machine a member of a cluster through a running member, and writes the cluster's keys to cluster_pki_dir. A master
// without these keys does it at its start. An error of kind Denied is the member's answer.
func Join(cfg *Config, member string) error {
	if err := cfg.Options.checkJoin(); err != nil {
		return err
	}
	err := join(cfg, member)
	var no *refusal.Error
	if errors.As(err, &no) {
		return salt.Errorf(salt.Denied, "%s", no.Reason)
	}
	return err
}

func join(cfg *Config, id string) error {
	d := net.Dialer{Timeout: wire.DialTime}
	if ip := net.ParseIP(cfg.ID); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	dial := func() (net.Conn, error) {
		conn, err := d.Dial("tcp", cfg.Options.address(id))
		if err == nil {
			conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
		}
		return conn, err
	}
	raw, err := dial()
	if err != nil {
		return err
	}
	defer func() { raw.Close() }()
	// The inner messages, which are bound to this connection, authenticate the member.
	conn, err := (*wire.Identity)(nil).Client(context.Background(), raw, func(*x509.Certificate) *refusal.Error { return nil })
	if wire.HasNoTLS(err) {
		// If all members use TLS, none answers without it.
		raw.Close()
		if raw, err = dial(); err != nil {
			return err
		}
		conn = &wire.Line{Conn: raw, Raw: raw}
	}
	if err != nil {
		return err
	}
	frames := event.NewFrameReader(wire.Count(conn, new(atomic.Int64)), wire.MaxGreeting)
	said := conn.Transcript()
	discover, err := wire.Encode(tagDiscover, value.DictOf("id", cfg.ID, "cluster", cfg.Options.ID, "protocol", wire.Protocol, "nonce", wire.Nonce(), "pub", cfg.OwnPub))
	if err != nil {
		return err
	}
	said.Add(discover)
	if _, err := conn.Write(event.Frame(discover)); err != nil {
		return err
	}
	d1, body, err := wire.Expect(frames, tagDiscoverReply)
	if err != nil {
		return err
	}
	if d1.Str("id") != id {
		return refusal.New(refusal.ID, "cluster_peers names %s, but the master there has the id %q", id, d1.Str("id"))
	}
	clusterPub := d1.Bytes("cluster_pub")
	sum := sha256.Sum256(clusterPub)
	if f := cfg.Options.Fingerprint; f != "" && !strings.EqualFold(f, hex.EncodeToString(sum[:])) {
		return refusal.New(refusal.Key, "its cluster.pub has the fingerprint %x, and cluster_pub_fingerprint is %s: this is another cluster", sum, f)
	}
	clusterKey, err := crypt.ParsePublic(clusterPub)
	if err != nil {
		return err
	}
	sig := d1.Bytes("sig")
	said.Add(wire.Unsigned(body))
	if err := clusterKey.Verify(crypt.PKCS1v15SHA224, said.Sum(tagDiscoverReply), sig); err != nil {
		return refusal.New(refusal.Key, "the master there does not have the key that it shows")
	}
	memberKey, err := crypt.ParsePublic(d1.Bytes("pub"))
	if err != nil {
		return err
	}
	key := crypt.NewKey()
	box, err := memberKey.Encrypt(crypt.OAEPSHA224, []byte(key))
	if err != nil {
		return err
	}
	said.Add(box)
	proof := said.Proof(cfg.Options.Secret, tagJoin)
	said.Add(proof)
	own, err := cfg.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(tagJoin))
	if err != nil {
		return err
	}
	msg, err := wire.Encode(tagJoin, value.DictOf("key", box, "proof", proof, "sig", own))
	if err != nil {
		return err
	}
	if _, err := conn.Write(event.Frame(msg)); err != nil {
		return err
	}
	frames.SetLimit(maxWelcome)
	d2, _, err := wire.Expect(frames, tagJoinReply)
	if err != nil {
		return err
	}
	cipher, err := crypt.NewCrypticle(key)
	if err != nil {
		return err
	}
	plain, err := cipher.Open(d2.Bytes("sealed"))
	if err != nil {
		return err
	}
	v, err := msgpack.UnmarshalTyped(plain)
	welcome, _ := v.(*value.Dict)
	if err != nil || !hmac.Equal(welcome.Bytes("proof"), said.Proof(cfg.Options.Secret, tagJoinReply)) {
		return refusal.New(refusal.Secret, "the master there does not know cluster_secret")
	}
	if !bytes.Equal(welcome.Bytes("cluster_pub"), clusterPub) {
		return refusal.New(refusal.Key, "the master there has two keys")
	}
	return settle(cfg, welcome)
}

// maxWelcome bounds the last message in bytes: it has the keys of all members.
const maxWelcome = 4 << 20

// settle writes the keys, that of the cluster last: with it this master is a member.
func settle(cfg *Config, welcome *value.Dict) error {
	if cfg.Joins != nil {
		if err := cfg.Joins(); err != nil {
			return salt.Errorf(salt.Unavailable, "cannot move away the state of an earlier membership: %w", err)
		}
	}
	dir := cfg.Options.PKIDir
	peers := filepath.Join(dir, keys.PeersDir)
	for _, made := range []struct {
		path string
		mode fs.FileMode
	}{{dir, 0o700}, {peers, 0o755}} {
		if err := os.MkdirAll(made.path, made.mode); err != nil {
			return salt.Errorf(salt.Unavailable, "cannot create a directory of the cluster: %w", err)
		}
	}
	if _, err := crypt.NewCrypticle(welcome.Str("aes")); err != nil {
		return fmt.Errorf("the AES key of the cluster is invalid: %w", err)
	}
	for k, pub := range welcome.Dict("peers").All() {
		id := value.Str(k)
		text, _ := pub.([]byte)
		if _, err := crypt.ParsePublic(text); salt.CheckID(id) != nil || err != nil {
			return fmt.Errorf("the key of the member %.80q is invalid", id)
		}
		if id != cfg.ID {
			if err := atomicfile.Write(filepath.Join(peers, id+".pub"), text, 0o644, true); err != nil {
				return err
			}
		}
	}
	key, err := crypt.ParsePrivate(welcome.Bytes("cluster_pem"), cfg.Options.KeyPass)
	if err != nil {
		return fmt.Errorf("the key of the cluster is invalid: %w", err)
	}
	if pub, err := crypt.ParsePublic(welcome.Bytes("cluster_pub")); err != nil || !pub.Equal(key.Public()) {
		return errors.New("the private and public key of the cluster do not match")
	}
	clusterPEM, err := key.EncryptedPEM(cfg.Options.KeyPass)
	if err != nil {
		return err
	}
	// A member of an older version has no secret of sessions.
	if s := welcome.Str("sessions"); s != "" {
		if _, err := crypt.NewCrypticle(s); err != nil {
			return fmt.Errorf("the secret of session keys that the member sent is invalid: %w", err)
		}
		if err := atomicfile.Write(filepath.Join(dir, keys.SessionFile), []byte(s), 0o600, true); err != nil {
			return err
		}
	}
	var r keys.Rotation
	if b := welcome.Bytes("rotation"); len(b) > 0 && json.Unmarshal(b, &r) == nil && r.Pub != "" {
		if err := atomicfile.Write(filepath.Join(dir, keys.RotationFile), b, 0o644, true); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name    string
		content []byte
		mode    fs.FileMode
	}{
		{keys.AESName, []byte(welcome.Str("aes")), 0o600},
		{keys.PairName + ".pub", welcome.Bytes("cluster_pub"), 0o644},
		{keys.PairName + ".pem", clusterPEM, 0o400},
	} {
		if err := atomicfile.Write(filepath.Join(dir, f.name), f.content, f.mode, true); err != nil {
			return err
		}
	}
	return nil
}

// answerJoin admits a master that knows the secret.
func (c *Cluster) answerJoin(conn *wire.Line, frames *event.FrameReader, discover []byte) {
	id, err := c.letIn(conn, frames, bytes.Clone(discover))
	var no *refusal.Error
	switch {
	case errors.As(err, &no):
		c.rateLimitedLog.Warn("join "+no.Reason, "refused a master that wants to join the cluster", "addr", conn.RemoteAddr(), "reason", no.Reason)
		if err := c.write(conn, wire.TagRefused, no.Dict()); err != nil {
			c.log.Debug("cannot send a refusal", "addr", conn.RemoteAddr(), "err", err)
		}
	case err != nil:
		c.rateLimitedLog.Warn("join", "a master failed to join the cluster", "addr", conn.RemoteAddr(), "err", err)
	default:
		c.log.Info("a master has joined the cluster", "peer", id, "addr", conn.RemoteAddr())
		c.takeUp()
	}
}

func (c *Cluster) letIn(conn *wire.Line, frames *event.FrameReader, discover []byte) (id string, err error) {
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	_, d, err := wire.Decode(discover)
	if err != nil {
		return "", err
	}
	id = d.Str("id")
	pubText := d.Bytes("pub")
	pub, err := crypt.ParsePublic(pubText)
	switch {
	case salt.CheckID(id) != nil || err != nil:
		return "", refusal.New(refusal.ID, "its id or its key is invalid")
	case id == c.cfg.ID:
		return "", refusal.New(refusal.ID, "%s is the id of a member already", id)
	case d.Str("cluster") != c.cfg.Options.ID:
		return "", refusal.New(refusal.Settings, "cluster_id is %q on %s and %q on %s", c.cfg.Options.ID, c.cfg.ID, d.Str("cluster"), id)
	case d.Int("protocol") != wire.Protocol:
		return "", refusal.New(refusal.Protocol, "the version of the protocol between masters is %d on %s and %d on %s", wire.Protocol, c.cfg.ID, d.Int("protocol"), id)
	case !conn.TLS && c.allTLS():
		return "", refusal.New(refusal.TLS, "the members of this cluster use TLS, and %s does not: install the version of the members there", id)
	}
	ring := c.ring.Load()
	// Byte for byte as in the file: a joining master may check its hash.
	clusterPub, err := os.ReadFile(filepath.Join(c.cfg.Options.PKIDir, keys.PairName+".pub"))
	if err != nil {
		return "", err
	}
	said := conn.Transcript()
	said.Add(discover)
	reply := value.DictOf("id", c.cfg.ID, "nonce", wire.Nonce(), "pub", c.cfg.OwnPub, "cluster_pub", clusterPub)
	bare, err := wire.Encode(tagDiscoverReply, reply)
	if err != nil {
		return "", err
	}
	said.Add(bare)
	sig, err := ring.Key.Sign(crypt.PKCS1v15SHA224, said.Sum(tagDiscoverReply))
	if err != nil {
		return "", err
	}
	reply.Set("sig", sig)
	if err := c.write(conn, tagDiscoverReply, reply); err != nil {
		return "", err
	}
	d, _, err = wire.Expect(frames, tagJoin)
	if err != nil {
		return "", err
	}
	secret, err := c.cfg.Options.secret()
	if err != nil {
		return "", err
	}
	said.Add(d.Bytes("key"))
	if !hmac.Equal(d.Bytes("proof"), said.Proof(secret, tagJoin)) {
		return "", refusal.New(refusal.Secret, "%s does not know cluster_secret", id)
	}
	said.Add(d.Bytes("proof"))
	if err := pub.Verify(crypt.PKCS1v15SHA224, said.Sum(tagJoin), d.Bytes("sig")); err != nil {
		return "", refusal.New(refusal.Key, "%s does not have the key that it shows", id)
	}
	if r, removed, err := c.banned(id); err != nil {
		return "", err
	} else if removed {
		return "", refusal.New(refusal.Removed, "%s was removed from this cluster (on %s, at %s): to let it join again, run brine cluster readmit %[1]s on a member", id, r.By, wire.Stamp(r.At))
	}
	key, err := c.cfg.Own.Decrypt(crypt.OAEPSHA224, d.Bytes("key"))
	if err != nil {
		return "", refusal.New(refusal.Key, "cannot decrypt the key of the connection")
	}
	cipher, err := crypt.NewCrypticle(string(key))
	if err != nil {
		return "", refusal.New(refusal.Key, "the key of the connection is invalid")
	}
	if there, err := c.secrets.PeerKey(id); err == nil && !there.Equal(pub) {
		return "", refusal.New(refusal.ID, "a member with the id %s and another key exists already; if that one is gone for good, delete %s on any member", id, c.secrets.PeerPath(id))
	}
	// The members learn of it before it learns of them.
	if err := atomicfile.Write(c.secrets.PeerPath(id), pubText, 0o644, true); err != nil {
		return "", err
	}
	members := value.DictOf(c.cfg.ID, c.cfg.OwnPub)
	for other := range c.all() {
		if text, err := os.ReadFile(c.secrets.PeerPath(other)); err == nil {
			members.Set(other, text)
		}
	}
	rotated, err := json.Marshal(ring.Rotation)
	if err != nil {
		return "", err
	}
	welcome, err := msgpack.Marshal(value.DictOf("proof", said.Proof(secret, tagJoinReply), "cluster_pem", ring.Key.PEM(),
		"cluster_pub", clusterPub, "aes", c.secrets.AES.Current(), "sessions", c.secrets.Sessions.Current(), "rotation", rotated, "peers", members), msgpack.NewSpec)
	if err != nil {
		return "", err
	}
	return id, c.write(conn, tagJoinReply, value.DictOf("sealed", cipher.Seal(welcome, "")))
}
