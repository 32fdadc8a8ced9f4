// Package witness implements a voter that is not a master, and a master's connection to it.
package witness

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
	"brine/internal/base/steady"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/wire"
	"brine/internal/ha/lease"
	"brine/internal/ha/voter"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// A witness is a voter that is not a master: it has no keys of the cluster and no data. A master (M) queries a witness (W) over TLS 1.3:
//
//	M: brine/witness/hello  {cluster, id, nonce}
//	W: brine/witness/hello  {id, nonce}
//	M: brine/witness/proof  {proof, sig}
//	W: brine/witness/proof  {proof}  or  brine/witness/refused {reason}
//
// Each proof is an HMAC of all previous messages and of the TLS connection, with the witness secret (WitnessSecret); the signature is by
// the key that identifies M to members. At first the secret authenticates both ends. M then records the TLS key of W, and W records the
// keys of all members that M reports. From then on each is identified by its key, even if the secret was replaced while W was unreachable.
// After that, queries and answers alternate, with their number and direction, and M sends updates (clusterInfo).
//
// Witnesses and masters of older versions do not use TLS: there are no signatures and updates, and frames are sealed with a key derived
// from the secret and the previous messages. Once a witness knows that all members use TLS, it requires TLS. A master requires TLS of a
// witness whose key it knows.
const (
	tagWitness        = "brine/witness/hello"
	tagWitnessProof   = "brine/witness/proof"
	tagWitnessRefused = "brine/witness/refused"

	labelMaster  = tagWitnessProof + "/master"
	labelWitness = tagWitnessProof + "/witness"
	labelSign    = tagWitnessProof + "/sign"
)

// maxWitnessFrame bounds frames from unauthenticated peers, maxFrame those after authentication.
const (
	maxWitnessFrame = 16 << 10
	maxFrame        = voter.MaxPacket + 64<<10
	// witnessIdle is how long a connection without queries stays open.
	witnessIdle = time.Minute
)

// Options are the options of brine witness. Names and meanings are those of the masters' options.
type Options struct {
	ID        string   `salt:"id" default:"" doc:"address or name of this witness, by which cluster_voters names it" change:"restart"`
	Interface string   `salt:"interface" default:"0.0.0.0" doc:"address to listen on" change:"restart"`
	Cluster   string   `salt:"cluster_id" default:"" doc:"name of the cluster" change:"restart"`
	Witness   string   `salt:"cluster_witness_secret" default:"" doc:"secret of the cluster's witnesses, shown by brine cluster witness-secret on a master" change:"restart"`
	Secret    string   `salt:"cluster_secret" default:"" doc:"the joining secret, instead of cluster_witness_secret; it permits joining as a master" change:"restart"`
	Voters    []string `salt:"cluster_voters" default:"[]" doc:"voters whose majority grants the lease; the same list as on the masters" change:"restart"`
	Port      int      `salt:"cluster_pool_port" default:"4520" doc:"port for connections of masters" change:"restart"`
	Dir       string   `salt:"cachedir" default:"/var/lib/brine/witness" doc:"directory for the state of the witness" change:"restart"`
}

// Check rejects unusable options.
func (o *Options) Check() error {
	switch {
	case o.Cluster == "":
		return salt.Errorf(salt.Invalid, "cluster_id is not set: the name of the cluster whose witness this is")
	case o.Witness == "" && o.Secret == "":
		return salt.Errorf(salt.Invalid, "cluster_witness_secret is not set: brine cluster witness-secret on a master shows it")
	case o.Witness != "" && len(o.Witness) < keys.MinSecret:
		return salt.Errorf(salt.Invalid, "cluster_witness_secret must have %d characters at least: brine cluster witness-secret on a master shows it",
			keys.MinSecret)
	case o.Witness == "" && len(o.Secret) < keys.MinSecret:
		return salt.Errorf(salt.Invalid, "cluster_secret must have %d characters at least: that of the cluster; or set cluster_witness_secret",
			keys.MinSecret)
	case len(o.Voters) == 0:
		return salt.Errorf(salt.Invalid, "cluster_voters is not set: the same list as on the masters, with this witness (%q) in it", o.ID)
	case salt.CheckID(o.ID) != nil:
		return salt.Errorf(salt.Invalid, "id: %q is not the address or name of this witness", o.ID)
	case o.Port < 1 || o.Port > 65535:
		return salt.Errorf(salt.Invalid, "cluster_pool_port: %d is not a port", o.Port)
	}
	return lease.CheckVoters(o.Voters)
}

// Server is a running witness.
type Server struct {
	o              Options
	log            *slog.Logger
	rateLimitedLog *limitlog.Log
	voter          *voter.Driver
	identity       *wire.Identity
	known          *state
	listener       net.Listener
	conns          wire.ConnSet

	mu   sync.Mutex
	live map[net.Conn]asking
}

// asking is an authenticated master.
type asking struct {
	id string
	// member means that it was authenticated by the key of a known member, otherwise by the secret.
	member bool
}

// New binds the port. Run or Close must follow.
func New(o Options, log *slog.Logger) (*Server, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot create a directory: %w", err)
	}
	w := &Server{o: o, log: log, rateLimitedLog: limitlog.New(log), live: map[net.Conn]asking{}}
	var err error
	if w.identity, err = witnessIdentity(o.Dir, o.ID); err != nil {
		return nil, err
	}
	secret, joining := o.Witness, ""
	if secret == "" && strings.HasPrefix(o.Secret, witnessPrefix) {
		secret = o.Secret
	} else if secret == "" {
		secret, joining = Secret(o.Secret), o.Secret
		log.Warn("the configuration of this witness contains the joining secret of masters: replace cluster_secret by cluster_witness_secret, which " +
			"brine cluster witness-secret on a master shows")
	}
	if w.known, err = openState(filepath.Join(o.Dir, knownFile), secret, joining); err != nil {
		return nil, err
	}
	if !slices.Contains(o.Voters, o.ID) {
		log.Warn("cluster_voters does not name this witness: it votes when brine cluster voters add was run for it on a master", "id", o.ID, "configured",
			strings.Join(o.Voters, ", "))
	}
	cfg := voter.Config{Name: o.ID, Voters: o.Voters, Path: filepath.Join(o.Dir, VoterFile), Witness: true, MayLead: w.known.has, Log: log}
	if w.voter, err = voter.Drive(cfg, nil, nil); err != nil {
		return nil, err
	}
	if w.listener, err = net.Listen("tcp", net.JoinHostPort(o.Interface, strconv.Itoa(o.Port))); err != nil {
		return nil, errors.Join(salt.Errorf(salt.Unavailable, "cluster_pool_port: %w", err), w.voter.Close())
	}
	return w, nil
}

// Addr returns the listening address.
func (w *Server) Addr() net.Addr { return w.listener.Addr() }

// Run serves until ctx ends.
func (w *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// AfterFunc uses this context, so that it has ended when Accept fails because of it.
	stop := context.AfterFunc(ctx, func() { w.listener.Close(); w.conns.CloseAll() })
	defer stop()
	wg.Go(func() {
		if err := w.voter.Run(ctx); err != nil {
			w.log.Error("cannot close the state of this voter", "err", err)
		}
	})
	for {
		conn, err := w.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			w.rateLimitedLog.Warn("accept", "cannot accept a connection", "err", err)
			wait.Sleep(ctx, 100*time.Millisecond)
			continue
		}
		if !w.conns.Add(conn, true) {
			w.rateLimitedLog.Warn("too many unauthenticated",
				"connections refused: too many unauthenticated connections are open; only masters should reach cluster_pool_port", "addr", conn.RemoteAddr())
			conn.Close()
			continue
		}
		wg.Go(func() {
			defer w.conns.Remove(conn)
			defer conn.Close()
			if err := w.serve(ctx, conn); err != nil && ctx.Err() == nil {
				w.rateLimitedLog.Debug("connection ended", "addr", conn.RemoteAddr(), "err", err)
			}
		})
	}
}

// serve serves one connection.
func (w *Server) serve(ctx context.Context, raw net.Conn) error {
	raw.SetDeadline(time.Now().Add(wire.GreetingTime))
	conn, err := w.identity.Server(ctx, raw)
	if err != nil {
		return err
	}
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	d, hello, err := wire.Expect(frames, tagWitness)
	if err != nil {
		return err
	}
	said := conn.Transcript()
	said.Add(hello)
	id := d.Str("id")
	refuse := func(kind, reason string) error {
		w.rateLimitedLog.Warn("refused "+kind, "connection refused", "addr", raw.RemoteAddr(), "id", fmt.Sprintf("%.100s", id), "reason", reason)
		return wire.Write(conn, tagWitnessRefused, value.DictOf("reason", reason), nil)
	}
	secret, joining, tlsOnly := w.known.terms()
	switch {
	case d.Str("cluster") != w.o.Cluster:
		return refuse("cluster", fmt.Sprintf("cluster_id is %q here and %.100q there", w.o.Cluster, d.Str("cluster")))
	case !conn.TLS && tlsOnly:
		return refuse("without TLS", "the masters of this cluster use TLS with this witness: install the version that they have on the one that does not")
	case conn.TLS && salt.CheckID(id) != nil:
		return refuse("id", "its id is not that of a master")
	}
	answer := value.DictOf("nonce", wire.Nonce())
	if conn.TLS {
		answer.Set("id", w.o.ID)
		answer.Set("derived", true) // it accepts the witness secret
	}
	if err := wire.Write(conn, tagWitness, answer, &said); err != nil {
		return err
	}
	d, proof, err := wire.Expect(frames, tagWitnessProof)
	if err != nil {
		return err
	}
	knows := hmac.Equal(d.Bytes("proof"), said.Proof(secret, labelMaster))
	if !knows && joining != "" && hmac.Equal(d.Bytes("proof"), said.Proof(joining, labelMaster)) {
		knows, secret = true, joining // a master of a version without witness secret
	}
	a := asking{id: id, member: conn.TLS && w.known.signed(id, said.Sum(labelSign), d.Bytes("sig"))}
	if !knows && !a.member {
		return refuse("secret", "it does not know cluster_secret, and is not a master known to this witness")
	}
	said.Add(proof)
	if err := wire.Write(conn, tagWitnessProof, value.DictOf("proof", said.Proof(secret, labelWitness)), nil); err != nil {
		return err
	}
	if !conn.TLS {
		w.rateLimitedLog.Warn("old "+id, "a master does not use TLS: it has an older version, or assumes that this witness has one", "id",
			fmt.Sprintf("%.100s", id), "addr", raw.RemoteAddr())
	}
	t, err := newTalk(conn, frames, secret, said)
	if err != nil {
		return err
	}
	w.conns.Authenticated(raw)
	defer w.enter(raw, a)()
	if conn.TLS {
		frames.SetLimit(maxFrame)
	}
	for {
		conn.SetDeadline(time.Now().Add(witnessIdle))
		arg, err := t.hear("m")
		if err != nil {
			return err
		}
		var back *value.Dict
		if news := arg.Dict(fieldUpdate); conn.TLS && news != nil {
			back = w.learn(a, news)
		} else if conn.TLS {
			back = Reply(ctx, w.voter.Node, a.id, arg, w.rateLimitedLog.Log)
		} else {
			back = value.DictOf(fieldWhy, newVoter)
		}
		if err := t.say("w", back); err != nil {
			return err
		}
	}
}

// enter records an authenticated master, and closes its previous connection. The caller must call leave when the connection ends.
func (w *Server) enter(conn net.Conn, a asking) (leave func()) {
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

// endIf closes the connections for which out returns true. w.mu is held.
func (w *Server) endIf(out func(asking) bool) {
	for conn, a := range w.live {
		if out(a) {
			conn.Close()
		}
	}
}

// learn handles an update from a master, and closes the connections that are no longer allowed.
func (w *Server) learn(a asking, d *value.Dict) *value.Dict {
	news, err := readUpdate(d)
	var secret, members bool
	if err == nil {
		secret, members, err = w.known.learn(news, steady.Late())
	}
	if err != nil {
		w.rateLimitedLog.Error("update", "rejecting an update from a master", "master", a.id, "err", err)
		return value.DictOf("why", err.Error())
	}
	if secret {
		w.log.Info("the secret of the cluster was replaced", "master", a.id)
	}
	if members {
		w.log.Info("the list of masters has changed", "master", a.id, "masters", w.known.names())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endIf(func(old asking) bool {
		return secret && !old.member && old.id != a.id || members && !w.known.has(old.id)
	})
	now, _, _ := w.known.terms()
	return value.DictOf("secret", TagOf(now))
}

// talk is an authenticated connection.
type talk struct {
	conn       *wire.Line
	frames     *event.FrameReader
	cipher     *crypt.Crypticle // nil with TLS
	sent, came int64
}

func newTalk(conn *wire.Line, frames *event.FrameReader, secret string, said wire.Transcript) (*talk, error) {
	if conn.TLS {
		return &talk{conn: conn, frames: frames}, nil
	}
	cipher, err := crypt.NewCrypticle(crypt.DeriveKey([]byte(secret), hex.EncodeToString(said.Sum("brine/witness/key"))))
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
	v, err := msgpack.Limits{Items: 512, Bytes: maxFrame, Depth: 8}.UnmarshalTyped(body)
	d, _ := v.(*value.Dict)
	t.came++
	if err != nil || d.Int("n") != t.came || d.Str("d") != from {
		return nil, errors.New("an invalid or repeated frame")
	}
	return d.Dict("data"), nil
}
