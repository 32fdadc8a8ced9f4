package witness

import (
	"context"
	"crypto/hmac"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/limitlog"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// witnessesDir, in a master's own directory, has the key fingerprints of the witnesses that have proved knowledge of the secret to this
// master.
const Dir = "witnesses"

// Master is a master as a client of witnesses.
type Master struct {
	ID, Cluster string
	Identity    *wire.Identity
	Own         *crypt.PrivateKey
	// returns the current update for witnesses.
	Update func() (Update, error)
	Dir    string // witnessesDir
	Log    *limitlog.Log
}

// Link is a master's connection to a witness.
type Link struct {
	Master           *Master
	Witness, Address string

	mu     sync.Mutex
	t      *talk
	now    Update // update read at looked
	looked time.Time
	told   string // mark of the last update sent on this connection
	knows  string // tag of the witness's secret, as reported; "" if it is another one
	// derives means that the witness accepts the witness secret. Older versions do so only after an update from a master.
	derives bool
}

// Ask sends one query at a time, preceded by an update if there are changes.
func (l *Link) Ask(ctx context.Context, arg *value.Dict) (*value.Dict, error) {
	return l.ask(ctx, arg, 0)
}

// Pass is Ask for frequent messages: it checks for an update only every lookTime.
func (l *Link) Pass(ctx context.Context, arg *value.Dict) (*value.Dict, error) {
	return l.ask(ctx, arg, lookTime)
}

// lookTime is the interval in which Pass looks for changes.
const lookTime = 500 * time.Millisecond

func (l *Link) ask(ctx context.Context, arg *value.Dict, age time.Duration) (*value.Dict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	old := l.t != nil
	d, err := l.try(ctx, arg, age)
	if err != nil && old && ctx.Err() == nil {
		d, err = l.try(ctx, arg, 0) // the witness may have been restarted
	}
	return d, err
}

// State reports whether the witness is connected, whether by TLS, and the tag of its secret.
func (l *Link) State() (up, byTLS bool, knows string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t != nil, l.t != nil && l.t.cipher == nil, l.knows
}

// try sends a query. It checks for an update first if the last check is older than age.
func (l *Link) try(ctx context.Context, arg *value.Dict, age time.Duration) (d *value.Dict, err error) {
	defer func() {
		if err != nil && l.t != nil {
			l.t.conn.Close()
			l.t, l.told, l.knows = nil, "", ""
		}
	}()
	if l.t == nil || time.Since(l.looked) >= age {
		if l.now, err = l.Master.Update(); err != nil {
			return nil, err
		}
		l.looked = time.Now()
	}
	now := l.now
	if l.t == nil {
		l.t, err = l.dial(ctx, Secret(now.Secret))
		if salt.KindOf(err) == salt.Denied && !l.derives {
			l.t, err = l.dial(ctx, now.Secret)
		}
		if err != nil {
			return nil, err
		}
	}
	if end, ok := ctx.Deadline(); ok {
		l.t.conn.SetDeadline(end)
	}
	conn := l.t.conn
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if mark := now.mark(); l.t.cipher == nil && mark != l.told {
		if d, err = l.exchange(value.DictOf(fieldUpdate, now.dict())); err != nil {
			return nil, err
		}
		if why := d.Str("why"); why != "" {
			l.Master.Log.Warn("update "+l.Witness, "a witness rejects an update", "witness", l.Witness, "reason", fmt.Sprintf("%.500s", why))
		}
		l.told, l.knows = mark, d.Str("secret")
	}
	return l.exchange(arg)
}

func (l *Link) exchange(arg *value.Dict) (*value.Dict, error) {
	if err := l.t.say("m", arg); err != nil {
		return nil, err
	}
	return l.t.hear("w")
}

// connect makes a connection: by TLS, or without to a witness of an older version whose key is unknown.
func (l *Link) connect(ctx context.Context, pin string) (*wire.Line, error) {
	dial := func() (net.Conn, error) {
		d := net.Dialer{Timeout: wire.DialTime}
		if ip := net.ParseIP(l.Master.ID); ip != nil {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		}
		conn, err := d.DialContext(ctx, "tcp", l.Address)
		if end, ok := ctx.Deadline(); ok && err == nil {
			conn.SetDeadline(end)
		}
		return conn, err
	}
	raw, err := dial()
	if err != nil {
		return nil, err
	}
	conn, err := l.Master.Identity.Client(ctx, raw, func(*x509.Certificate) *refusal.Error { return nil }) // dial checks the certificate
	if err == nil {
		return conn, nil
	}
	raw.Close()
	if !wire.HasNoTLS(err) || pin != "" || ctx.Err() != nil {
		return nil, fmt.Errorf("TLS with the witness %s: %w", l.Witness, err)
	}
	if raw, err = dial(); err != nil {
		return nil, err
	}
	return &wire.Line{Conn: raw, Raw: raw}, nil
}

func (l *Link) dial(ctx context.Context, secret string) (_ *talk, err error) {
	pin, err := l.pin()
	if err != nil {
		return nil, err
	}
	conn, err := l.connect(ctx, pin)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	frames := event.NewFrameReader(conn, maxWitnessFrame)
	said := conn.Transcript()
	if err := wire.Write(conn, tagWitness, value.DictOf("cluster", l.Master.Cluster, "id", l.Master.ID, "nonce", wire.Nonce()), &said); err != nil {
		return nil, err
	}
	d, hello, err := expectOf(frames, tagWitness)
	if err != nil {
		return nil, err
	}
	if there := d.Str("id"); conn.TLS && there != l.Witness {
		return nil, salt.Errorf(salt.Invalid, "cluster_voters names %s, but the witness there has the id %.100q", l.Witness, there)
	}
	l.derives = d.Bool("derived")
	said.Add(hello)
	proof := value.DictOf("proof", said.Proof(secret, labelMaster))
	if conn.TLS {
		sig, err := l.Master.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(labelSign))
		if err != nil {
			return nil, err
		}
		proof.Set("sig", sig)
	}
	if err := wire.Write(conn, tagWitnessProof, proof, &said); err != nil {
		return nil, err
	}
	d, _, err = expectOf(frames, tagWitnessProof)
	if err != nil {
		return nil, err
	}
	shown := ""
	if conn.TLS {
		shown = fingerprintOf(conn.Cert)
	}
	knows := hmac.Equal(d.Bytes("proof"), said.Proof(secret, labelWitness))
	switch {
	case !knows && (pin == "" || shown != pin):
		return nil, salt.Errorf(salt.Denied, "the server at %s does not know cluster_secret, and is not a witness with a known key", l.Address)
	case conn.TLS && shown != pin:
		if err := l.note(shown); err != nil {
			return nil, err
		}
		l.Master.Log.Log.Info("authenticated a witness by the secret of the cluster; recorded its key", "witness", l.Witness, "another_before", pin != "")
	case !conn.TLS:
		l.Master.Log.Warn("old witness "+l.Witness,
			"a witness does not support TLS: it has an older version, and cannot receive a new secret; install this master's version there", "witness",
			l.Witness)
	}
	if conn.TLS {
		frames.SetLimit(maxFrame)
	}
	return newTalk(conn, frames, secret, said)
}

func (l *Link) pinPath() string { return filepath.Join(l.Master.Dir, l.Witness) }

// pin returns the fingerprint of the witness's key, "" if unknown.
func (l *Link) pin() (string, error) {
	b, err := os.ReadFile(l.pinPath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	s := strings.TrimSpace(string(b))
	if err == nil && !keys.IsFingerprint(s) {
		err = errors.New("not a fingerprint; remove the file")
	}
	if err != nil {
		return "", salt.Errorf(salt.Unavailable, "cannot read the fingerprint of a witness: %s: %w", l.pinPath(), err)
	}
	return s, nil
}

func (l *Link) note(fingerprint string) error {
	err := os.MkdirAll(l.Master.Dir, 0o700)
	if err == nil {
		err = atomicfile.Write(l.pinPath(), []byte(fingerprint+"\n"), 0o600, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the fingerprint of a witness: %w", err)
	}
	return nil
}

// expectOf reads a message of a witness, which must have the tag.
func expectOf(frames *event.FrameReader, tag string) (*value.Dict, []byte, error) {
	body, err := frames.Next()
	if err != nil {
		return nil, nil, err
	}
	got, d, err := wire.Decode(body)
	switch {
	case err != nil:
		return nil, nil, err
	case got == tagWitnessRefused:
		return nil, nil, salt.Errorf(salt.Denied, "the witness refuses: %.500s", d.Str("reason"))
	case got != tag:
		return nil, nil, fmt.Errorf("%.80q instead of %s", got, tag)
	}
	return d, body, nil
}
