package cluster

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A witness is a voter that is no master: it has no keys of the cluster and no
// data. A master (M) asks a witness (W), by TLS 1.3:
//
//	M: brine/witness/hello  {cluster, id, nonce}
//	W: brine/witness/hello  {id, nonce}
//	M: brine/witness/proof  {proof, sig}
//	W: brine/witness/proof  {proof}  or  brine/witness/refused {reason}
//
// Each proof is an HMAC over all that was said until then, and over the
// connection by TLS, with the secret of witnesses (WitnessSecret); the signature is by the key
// by which members know M. The first time the secret says who is at the other
// end. M notes the key then that W has shown by TLS, and W the keys of all members
// of which M tells it; from then on either is known by its key, also when the
// secret was replaced while W was away. From there on questions and answers
// alternate, with their number and direction, and M tells what is new (tidings).
//
// Witnesses and masters of older versions speak without TLS: there are no
// signatures and tidings, and frames are sealed with a key that is made of the
// secret and of what was said. A witness that was told that all members speak TLS
// takes nothing else, and a master nothing else of a witness whose key it knows.
const (
	tagWitness        = "brine/witness/hello"
	tagWitnessProof   = "brine/witness/proof"
	tagWitnessRefused = "brine/witness/refused"

	labelMaster  = tagWitnessProof + "/master"
	labelWitness = tagWitnessProof + "/witness"
	labelSign    = tagWitnessProof + "/sign"
)

// maxWitnessFrame bounds what a witness reads of whom it does not know,
// maxTidings of a master, and maxMasters how many it may be told of.
const (
	maxWitnessFrame = 16 << 10
	maxClusterInfo  = 512 << 10
	maxMasters      = 64
	// witnessIdle ends a connection on which nobody asks.
	witnessIdle = time.Minute
)

// WitnessOptions are those of brine witness. Names and meanings are those of the
// masters' options.
type WitnessOptions struct {
	ID        string   `salt:"id" default:"" doc:"address or name of this witness, by which cluster_voters names it" change:"restart"`
	Interface string   `salt:"interface" default:"0.0.0.0" doc:"address to listen on" change:"restart"`
	Cluster   string   `salt:"cluster_id" default:"" doc:"name of the cluster" change:"restart"`
	Witness   string   `salt:"cluster_witness_secret" default:"" doc:"the secret of the witnesses of the cluster: brine cluster witness-secret on a master shows it" change:"restart"`
	Secret    string   `salt:"cluster_secret" default:"" doc:"the secret by which masters join, in place of cluster_witness_secret: whoever reads it can join" change:"restart"`
	Voters    []string `salt:"cluster_voters" default:"[]" doc:"those whose majority gives the lease, the same list as on the masters" change:"restart"`
	Port      int      `salt:"cluster_pool_port" default:"4520" doc:"port on which masters ask" change:"restart"`
	Dir       string   `salt:"cachedir" default:"/var/lib/brine/witness" doc:"folder for the one file that a witness has" change:"restart"`
}

// Check refuses options with which a witness is of no use.
func (o *WitnessOptions) Check() error {
	switch {
	case o.Cluster == "":
		return salt.Errorf(salt.Invalid, "cluster_id is not set: the name of the cluster whose witness this is")
	case o.Witness == "" && o.Secret == "":
		return salt.Errorf(salt.Invalid, "cluster_witness_secret is not set: brine cluster witness-secret on a master shows it")
	case o.Witness != "" && len(o.Witness) < minSecret:
		return salt.Errorf(salt.Invalid, "cluster_witness_secret must have %d characters at least: brine cluster witness-secret on a master shows it", minSecret)
	case o.Witness == "" && len(o.Secret) < minSecret:
		return salt.Errorf(salt.Invalid, "cluster_secret must have %d characters at least: that of the cluster; or set cluster_witness_secret", minSecret)
	case len(o.Voters) == 0:
		return salt.Errorf(salt.Invalid, "cluster_voters is not set: the same list as on the masters, with this witness (%q) in it", o.ID)
	case !slices.Contains(o.Voters, o.ID):
		return salt.Errorf(salt.Invalid, "cluster_voters does not name this witness, whose id is %q", o.ID)
	case o.Port < 1 || o.Port > 65535:
		return salt.Errorf(salt.Invalid, "cluster_pool_port: %d is no port", o.Port)
	}
	return lease.CheckVoters(o.Voters)
}

// Witness is the program.
type Witness struct {
	o              WitnessOptions
	log            *slog.Logger
	rateLimitedLog *rateLimitedLog
	voter          *lease.Voter
	tlsIdentity    *tlsIdentity
	known          *witnessState
	listener       net.Listener
	conns          connSet

	mu   sync.Mutex
	live map[net.Conn]asking
}

// asking is a master that has shown who it is.
type asking struct {
	id string
	// member says that it has the key of a member, of which this witness was told;
	// otherwise it is known by the secret.
	member bool
}

// NewWitness binds the port. Run or Close must follow.
func NewWitness(o WitnessOptions, log *slog.Logger) (*Witness, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot make a folder: %w", err)
	}
	w := &Witness{o: o, log: log, rateLimitedLog: newRateLimitedLog(log), live: map[net.Conn]asking{}}
	var err error
	if w.voter, err = lease.OpenVoter(filepath.Join(o.Dir, leaseFile), o.Voters); err != nil {
		return nil, err
	}
	if w.tlsIdentity, err = witnessIdentity(o.Dir, o.ID); err != nil {
		return nil, err
	}
	secret, joining := o.Witness, ""
	if secret == "" && strings.HasPrefix(o.Secret, witnessPrefix) {
		secret = o.Secret
	} else if secret == "" {
		secret, joining = WitnessSecret(o.Secret), o.Secret
		log.Warn("the configuration of this witness has the secret by which masters join: replace cluster_secret by cluster_witness_secret, which brine cluster witness-secret on a master shows")
	}
	if w.known, err = openWitnessState(filepath.Join(o.Dir, knownFile), secret, joining); err != nil {
		return nil, err
	}
	if w.listener, err = net.Listen("tcp", net.JoinHostPort(o.Interface, strconv.Itoa(o.Port))); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cluster_pool_port: %w", err)
	}
	return w, nil
}

// Addr is where it listens.
func (w *Witness) Addr() net.Addr { return w.listener.Addr() }

// Run answers until ctx ends.
func (w *Witness) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := context.AfterFunc(ctx, func() { w.listener.Close(); w.conns.closeAll() })
	defer stop()
	for {
		conn, err := w.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			w.rateLimitedLog.warn("accept", "cannot take a connection", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		if !w.conns.add(conn, true) {
			w.rateLimitedLog.warn("strangers", "connections were refused: too many are open whose other end has not shown who it is; only masters should reach cluster_pool_port", "from", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer w.conns.remove(conn)
			defer conn.Close()
			if err := w.serve(ctx, conn); err != nil && ctx.Err() == nil {
				w.rateLimitedLog.debug("a connection has ended", "from", conn.RemoteAddr(), "err", err)
			}
		})
	}
}

// serve answers on one connection.
func (w *Witness) serve(ctx context.Context, raw net.Conn) error {
	raw.SetDeadline(time.Now().Add(greetingTime))
	conn, err := w.tlsIdentity.answer(ctx, raw)
	if err != nil {
		return err
	}
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	d, hello, err := expect(frames, tagWitness)
	if err != nil {
		return err
	}
	said := conn.begun()
	said.add(hello)
	id := d.Str("id")
	refuse := func(kind, reason string) error {
		w.rateLimitedLog.warn("refused "+kind, "somebody was refused", "from", raw.RemoteAddr(), "id", fmt.Sprintf("%.100s", id), "reason", reason)
		return writeSaid(conn, tagWitnessRefused, value.DictOf("reason", reason), nil)
	}
	secret, joining, tlsOnly := w.known.terms()
	switch {
	case d.Str("cluster") != w.o.Cluster:
		return refuse("cluster", fmt.Sprintf("cluster_id is %q here and %.100q there", w.o.Cluster, d.Str("cluster")))
	case !conn.tls && tlsOnly:
		return refuse("without TLS", "the masters of this cluster speak TLS with this witness: install the version that they have on the one that does not")
	case conn.tls && salt.CheckID(id) != nil:
		return refuse("id", "its id is that of no master")
	}
	answer := value.DictOf("nonce", nonce())
	if conn.tls {
		answer.Set("id", w.o.ID)
		answer.Set("derived", true) // it takes the secret of witnesses
	}
	if err := writeSaid(conn, tagWitness, answer, &said); err != nil {
		return err
	}
	d, proof, err := expect(frames, tagWitnessProof)
	if err != nil {
		return err
	}
	knows := hmac.Equal(d.Bytes("proof"), said.proof(secret, labelMaster))
	if !knows && joining != "" && hmac.Equal(d.Bytes("proof"), said.proof(joining, labelMaster)) {
		knows, secret = true, joining // a master of a version that has no secret of witnesses
	}
	a := asking{id: id, member: conn.tls && w.known.signed(id, said.sum(labelSign), d.Bytes("sig"))}
	if !knows && !a.member {
		return refuse("secret", "it does not know cluster_secret, and is none of the masters that this witness has been told of")
	}
	said.add(proof)
	if err := writeSaid(conn, tagWitnessProof, value.DictOf("proof", said.proof(secret, labelWitness)), nil); err != nil {
		return err
	}
	if !conn.tls {
		w.rateLimitedLog.warn("old "+id, "a master speaks without TLS: it is of an older version, or takes this witness for one", "id", fmt.Sprintf("%.100s", id), "from", raw.RemoteAddr())
	}
	t, err := newTalk(conn, frames, secret, said)
	if err != nil {
		return err
	}
	w.conns.known(raw)
	defer w.enter(raw, a)()
	if conn.tls {
		frames.SetLimit(maxClusterInfo)
	}
	for {
		conn.SetDeadline(time.Now().Add(witnessIdle))
		arg, err := t.hear("m")
		if err != nil {
			return err
		}
		var back *value.Dict
		if news := arg.Dict("tidings"); conn.tls && news != nil {
			back = w.learn(a, news)
		} else {
			back = answerLease(w.voter, arg, w.log)
		}
		if err := t.say("w", back); err != nil {
			return err
		}
	}
}

// enter notes a master that has shown who it is; of each there is one
// connection, the last. The result is to be called at its end.
func (w *Witness) enter(conn net.Conn, a asking) (leave func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endIf(func(old asking) bool { return old.id == a.id })
	w.live[conn] = a
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.live, conn)
	}
}

// endIf ends connections. w.mu is held.
func (w *Witness) endIf(out func(asking) bool) {
	for conn, a := range w.live {
		if out(a) {
			conn.Close()
		}
	}
}

// learn takes what a master tells, and ends the connections of those who have no
// right to them any more.
func (w *Witness) learn(a asking, d *value.Dict) *value.Dict {
	news, err := readClusterInfo(d)
	var secret, members bool
	if err == nil {
		secret, members, err = w.known.learn(news, time.Now())
	}
	if err != nil {
		w.rateLimitedLog.error("tidings", "what a master tells is not taken", "from", a.id, "err", err)
		return value.DictOf("why", err.Error())
	}
	if secret {
		w.log.Info("the secret of the cluster was replaced", "told_by", a.id)
	}
	if members {
		w.log.Info("the masters of the cluster are others now", "told_by", a.id, "masters", w.known.names())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endIf(func(old asking) bool {
		return secret && !old.member && old.id != a.id || members && !w.known.has(old.id)
	})
	now, _, _ := w.known.terms()
	return value.DictOf("secret", tagOf(now))
}

func writeSaid(conn net.Conn, tag string, d *value.Dict, said *transcript) error {
	b, err := say(tag, d)
	if err != nil {
		return err
	}
	if said != nil {
		said.add(b)
	}
	_, err = conn.Write(event.Frame(b))
	return err
}

// talk is a connection after the proofs.
type talk struct {
	conn       *line
	frames     *event.FrameReader
	cipher     *crypt.Crypticle // nil: TLS does it
	sent, came int64
}

func newTalk(conn *line, frames *event.FrameReader, secret string, said transcript) (*talk, error) {
	if conn.tls {
		return &talk{conn: conn, frames: frames}, nil
	}
	cipher, err := crypt.NewCrypticle(crypt.DeriveKey([]byte(secret), hex.EncodeToString(said.sum("brine/witness/key"))))
	return &talk{conn: conn, frames: frames, cipher: cipher}, err
}

func (t *talk) say(from string, d *value.Dict) error {
	t.sent++
	b, err := msgpack.Marshal(value.DictOf("n", t.sent, "d", from, "data", d), msgpack.NewSpec)
	if err != nil {
		return err
	}
	if t.cipher != nil {
		b = t.cipher.Seal(b, "")
	}
	_, err = t.conn.Write(event.Frame(b))
	return err
}

func (t *talk) hear(from string) (*value.Dict, error) {
	body, err := t.frames.Next()
	if err != nil {
		return nil, err
	}
	if t.cipher != nil {
		if body, err = t.cipher.Open(body); err != nil {
			return nil, err
		}
	}
	v, err := msgpack.Limits{Items: 512, Bytes: maxClusterInfo, Depth: 8}.UnmarshalTyped(body)
	d, _ := v.(*value.Dict)
	t.came++
	if err != nil || d.Int("n") != t.came || d.Str("d") != from {
		return nil, errors.New("a frame that makes no sense, or came twice")
	}
	return d.Dict("data"), nil
}
