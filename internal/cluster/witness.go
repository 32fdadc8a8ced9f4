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
	"sync"
	"time"

	"brine/internal/crypt"
	"brine/internal/event"
	"brine/internal/lease"
	"brine/internal/msgpack"
	"brine/internal/salt"
	"brine/internal/value"
)

// A witness is a voter that is no master: it has no keys and no data, knows the
// secret of the cluster, and answers who shows that he knows it, too. A master
// (M) asks a witness (W):
//
//	M: brine/witness/hello  {cluster, id, nonce}
//	W: brine/witness/hello  {nonce}
//	M: brine/witness/proof  {proof}
//	W: brine/witness/proof  {proof}  or  brine/witness/refused {reason}
//
// Each proof is an HMAC over all that was said until then. From there on
// questions and answers alternate, sealed with a key that is made of the secret
// and of what was said, with their number and direction.
const (
	tagWitness        = "brine/witness/hello"
	tagWitnessProof   = "brine/witness/proof"
	tagWitnessRefused = "brine/witness/refused"
)

// maxWitnessFrame bounds what a witness reads, maxMasters who may ask it.
const (
	maxWitnessFrame = 16 << 10
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
	Secret    string   `salt:"cluster_secret" default:"" doc:"the secret of the cluster" change:"restart"`
	Voters    []string `salt:"cluster_voters" default:"[]" doc:"those whose majority gives the lease, the same list as on the masters" change:"restart"`
	Port      int      `salt:"cluster_pool_port" default:"4520" doc:"port on which masters ask" change:"restart"`
	Folder    string   `salt:"cachedir" default:"/var/lib/brine/witness" doc:"folder for the one file that a witness has" change:"restart"`
}

// Check refuses options with which a witness is of no use.
func (o *WitnessOptions) Check() error {
	switch {
	case o.Cluster == "":
		return salt.Errorf(salt.Invalid, "cluster_id is not set: the name of the cluster whose witness this is")
	case len(o.Secret) < minSecret:
		return salt.Errorf(salt.Invalid, "cluster_secret must have %d characters at least: that of the cluster", minSecret)
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
	o        WitnessOptions
	log      *slog.Logger
	gripes   *gripes
	voter    *lease.Voter
	listener net.Listener
	conns    connSet
}

// NewWitness binds the port. Run or Close must follow.
func NewWitness(o WitnessOptions, log *slog.Logger) (*Witness, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Folder, 0o700); err != nil {
		return nil, salt.Errorf(salt.Unavailable, "cannot make a folder: %w", err)
	}
	w := &Witness{o: o, log: log, gripes: newGripes(log)}
	var err error
	if w.voter, err = lease.OpenVoter(filepath.Join(o.Folder, leaseFile), o.Voters); err != nil {
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
	slots := make(chan struct{}, maxMasters)
	for {
		conn, err := w.listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			w.gripes.warn("accept", "cannot take a connection", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			conn.Close()
			continue
		}
		if !w.conns.add(conn, true) {
			conn.Close()
			<-slots
			continue
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer w.conns.remove(conn)
			defer conn.Close()
			if err := w.serve(conn); err != nil && ctx.Err() == nil {
				w.gripes.debug("a connection has ended", "from", conn.RemoteAddr(), "err", err)
			}
		})
	}
}

func (w *Witness) serve(conn net.Conn) error {
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	conn.SetDeadline(time.Now().Add(greetingTime))
	d, hello, err := expect(frames, tagWitness)
	if err != nil {
		return err
	}
	var said transcript
	said.add(hello)
	refuse := func(reason string) error {
		w.gripes.warn("refused "+reason, "somebody was refused", "from", conn.RemoteAddr(), "reason", reason)
		return writeSaid(conn, tagWitnessRefused, value.DictOf("reason", reason), nil)
	}
	if d.Str("cluster") != w.o.Cluster {
		return refuse(fmt.Sprintf("cluster_id is %q here and %.100q there", w.o.Cluster, d.Str("cluster")))
	}
	if err := writeSaid(conn, tagWitness, value.DictOf("nonce", nonce()), &said); err != nil {
		return err
	}
	d, proof, err := expect(frames, tagWitnessProof)
	if err != nil {
		return err
	}
	if !hmac.Equal(d.Bytes("proof"), said.proof(w.o.Secret, tagWitnessProof+"/master")) {
		return refuse("it does not know cluster_secret")
	}
	said.add(proof)
	if err := writeSaid(conn, tagWitnessProof, value.DictOf("proof", said.proof(w.o.Secret, tagWitnessProof+"/witness")), nil); err != nil {
		return err
	}
	t, err := newTalk(conn, frames, w.o.Secret, said)
	if err != nil {
		return err
	}
	for {
		conn.SetDeadline(time.Now().Add(witnessIdle))
		arg, err := t.hear("m")
		if err != nil {
			return err
		}
		if err := t.say("w", answerLease(w.voter, arg, w.log)); err != nil {
			return err
		}
	}
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
	conn       net.Conn
	frames     *event.FrameReader
	cipher     *crypt.Crypticle
	sent, came int64
}

func newTalk(conn net.Conn, frames *event.FrameReader, secret string, said transcript) (*talk, error) {
	cipher, err := crypt.NewCrypticle(crypt.DeriveKey([]byte(secret), hex.EncodeToString(said.sum("brine/witness/key"))))
	return &talk{conn: conn, frames: frames, cipher: cipher}, err
}

func (t *talk) say(from string, d *value.Dict) error {
	t.sent++
	b, err := msgpack.Marshal(value.DictOf("n", t.sent, "d", from, "data", d), msgpack.NewSpec)
	if err != nil {
		return err
	}
	_, err = t.conn.Write(event.Frame(t.cipher.Seal(b, "")))
	return err
}

func (t *talk) hear(from string) (*value.Dict, error) {
	body, err := t.frames.Next()
	if err != nil {
		return nil, err
	}
	plain, err := t.cipher.Open(body)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Limits{Items: 256, Bytes: maxWitnessFrame, Depth: 8}.UnmarshalTyped(plain)
	d, _ := v.(*value.Dict)
	t.came++
	if err != nil || d.Int("n") != t.came || d.Str("d") != from {
		return nil, errors.New("a frame that makes no sense, or came twice")
	}
	return d.Dict("data"), nil
}

// witnessLink is a master's connection to a witness.
type witnessLink struct {
	address, from, cluster string
	secret                 func() (string, error)

	mu sync.Mutex
	t  *talk
}

// ask asks one question at a time.
func (l *witnessLink) ask(ctx context.Context, arg *value.Dict) (*value.Dict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	old := l.t != nil
	d, err := l.try(ctx, arg)
	if err != nil && old && ctx.Err() == nil {
		d, err = l.try(ctx, arg) // it may have been started anew
	}
	return d, err
}

func (l *witnessLink) try(ctx context.Context, arg *value.Dict) (d *value.Dict, err error) {
	defer func() {
		if err != nil && l.t != nil {
			l.t.conn.Close()
			l.t = nil
		}
	}()
	if l.t == nil {
		if l.t, err = l.dial(ctx); err != nil {
			return nil, err
		}
	}
	if end, ok := ctx.Deadline(); ok {
		l.t.conn.SetDeadline(end)
	}
	conn := l.t.conn
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := l.t.say("m", arg); err != nil {
		return nil, err
	}
	return l.t.hear("w")
}

func (l *witnessLink) dial(ctx context.Context) (_ *talk, err error) {
	d := net.Dialer{Timeout: dialTime}
	if ip := net.ParseIP(l.from); ip != nil {
		d.LocalAddr = &net.TCPAddr{IP: ip}
	}
	conn, err := d.DialContext(ctx, "tcp", l.address)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	if end, ok := ctx.Deadline(); ok {
		conn.SetDeadline(end)
	}
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	secret, err := l.secret()
	if err != nil {
		return nil, err
	}
	var said transcript
	if err := writeSaid(conn, tagWitness, value.DictOf("cluster", l.cluster, "id", l.from, "nonce", nonce()), &said); err != nil {
		return nil, err
	}
	_, hello, err := expectOf(frames, tagWitness)
	if err != nil {
		return nil, err
	}
	said.add(hello)
	if err := writeSaid(conn, tagWitnessProof, value.DictOf("proof", said.proof(secret, tagWitnessProof+"/master")), &said); err != nil {
		return nil, err
	}
	a, _, err := expectOf(frames, tagWitnessProof)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(a.Bytes("proof"), said.proof(secret, tagWitnessProof+"/witness")) {
		return nil, salt.Errorf(salt.Denied, "what answers at %s does not know cluster_secret", l.address)
	}
	return newTalk(conn, frames, secret, said)
}

// expectOf is expect for what a witness says.
func expectOf(frames *event.FrameReader, tag string) (*value.Dict, []byte, error) {
	body, err := frames.Next()
	if err != nil {
		return nil, nil, err
	}
	got, d, err := hear(body)
	switch {
	case err != nil:
		return nil, nil, err
	case got == tagWitnessRefused:
		return nil, nil, salt.Errorf(salt.Denied, "the witness refuses: %.500s", d.Str("reason"))
	case got != tag:
		return nil, nil, fmt.Errorf("%.80q in place of %s", got, tag)
	}
	return d, body, nil
}
