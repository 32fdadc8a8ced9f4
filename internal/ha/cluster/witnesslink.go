package cluster

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
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/base/atomicfile"
	"brine/internal/base/salt"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/lease"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/value"
)

// witnessesDir, in a master's own directory, has the key fingerprints of the witnesses that have proved knowledge of the secret to this
// master.
const witnessesDir = "witnesses"

// asker is a master as a client of witnesses.
type asker struct {
	id, cluster string
	tlsIdentity *tlsIdentity
	own         *crypt.PrivateKey
	// returns the current update for witnesses.
	clusterInfo    func() (clusterInfo, error)
	dir            string // witnessesDir
	rateLimitedLog *rateLimitedLog
}

// witnessLink is a master's connection to a witness.
type witnessLink struct {
	*asker
	witness, address string

	mu    sync.Mutex
	t     *talk
	told  string // mark of the last update sent on this connection
	knows string // tag of the witness's secret, as reported; "" if it is another one
	// derives says that it accepts the witness secret. Older versions do so only after an update of a master.
	derives bool
}

// ask sends one query at a time, preceded by an update if there are changes.
func (l *witnessLink) ask(ctx context.Context, arg *value.Dict) (*value.Dict, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	old := l.t != nil
	d, err := l.try(ctx, arg)
	if err != nil && old && ctx.Err() == nil {
		d, err = l.try(ctx, arg) // it may have been restarted
	}
	return d, err
}

// state returns whether the witness is connected, whether by TLS, and the tag of its secret.
func (l *witnessLink) state() (up, byTLS bool, knows string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.t != nil, l.t != nil && l.t.cipher == nil, l.knows
}

func (l *witnessLink) try(ctx context.Context, arg *value.Dict) (d *value.Dict, err error) {
	defer func() {
		if err != nil && l.t != nil {
			l.t.conn.Close()
			l.t, l.told, l.knows = nil, "", ""
		}
	}()
	now, err := l.clusterInfo()
	if err != nil {
		return nil, err
	}
	if l.t == nil {
		l.t, err = l.dial(ctx, WitnessSecret(now.secret))
		if salt.KindOf(err) == salt.Denied && !l.derives {
			l.t, err = l.dial(ctx, now.secret)
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
		if d, err = l.exchange(value.DictOf("tidings", now.dict())); err != nil {
			return nil, err
		}
		if why := d.Str("why"); why != "" {
			l.rateLimitedLog.warn("tidings "+l.witness, "a witness rejects an update", "witness", l.witness, "reason", fmt.Sprintf("%.500s", why))
		}
		l.told, l.knows = mark, d.Str("secret")
	}
	return l.exchange(arg)
}

func (l *witnessLink) exchange(arg *value.Dict) (*value.Dict, error) {
	if err := l.t.say("m", arg); err != nil {
		return nil, err
	}
	return l.t.hear("w")
}

// connect makes a connection: by TLS, or without to a witness of an older version whose key is unknown.
func (l *witnessLink) connect(ctx context.Context, pin string) (*line, error) {
	dial := func() (net.Conn, error) {
		d := net.Dialer{Timeout: dialTime}
		if ip := net.ParseIP(l.id); ip != nil {
			d.LocalAddr = &net.TCPAddr{IP: ip}
		}
		conn, err := d.DialContext(ctx, "tcp", l.address)
		if end, ok := ctx.Deadline(); ok && err == nil {
			conn.SetDeadline(end)
		}
		return conn, err
	}
	raw, err := dial()
	if err != nil {
		return nil, err
	}
	conn, err := l.tlsIdentity.call(ctx, raw, func(*x509.Certificate) *refusal.Error { return nil }) // dial looks at it
	if err == nil {
		return conn, nil
	}
	raw.Close()
	if !isOld(err) || pin != "" || ctx.Err() != nil {
		return nil, fmt.Errorf("TLS with the witness %s: %w", l.witness, err)
	}
	if raw, err = dial(); err != nil {
		return nil, err
	}
	return &line{Conn: raw, raw: raw}, nil
}

func (l *witnessLink) dial(ctx context.Context, secret string) (_ *talk, err error) {
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
	said := conn.begun()
	if err := writeSaid(conn, tagWitness, value.DictOf("cluster", l.cluster, "id", l.id, "nonce", nonce()), &said); err != nil {
		return nil, err
	}
	d, hello, err := expectOf(frames, tagWitness)
	if err != nil {
		return nil, err
	}
	if there := d.Str("id"); conn.tls && there != l.witness {
		return nil, salt.Errorf(salt.Invalid, "cluster_voters names %s, but the witness there has the id %.100q", l.witness, there)
	}
	l.derives = d.Bool("derived")
	said.add(hello)
	proof := value.DictOf("proof", said.proof(secret, labelMaster))
	if conn.tls {
		sig, err := l.own.Sign(crypt.PKCS1v15SHA224, said.sum(labelSign))
		if err != nil {
			return nil, err
		}
		proof.Set("sig", sig)
	}
	if err := writeSaid(conn, tagWitnessProof, proof, &said); err != nil {
		return nil, err
	}
	d, _, err = expectOf(frames, tagWitnessProof)
	if err != nil {
		return nil, err
	}
	shown := ""
	if conn.tls {
		shown = fingerprintOf(conn.cert)
	}
	knows := hmac.Equal(d.Bytes("proof"), said.proof(secret, labelWitness))
	switch {
	case !knows && (pin == "" || shown != pin):
		return nil, salt.Errorf(salt.Denied, "the server at %s does not know cluster_secret, and is not a witness with a known key", l.address)
	case conn.tls && shown != pin:
		if err := l.note(shown); err != nil {
			return nil, err
		}
		l.rateLimitedLog.log.Info("authenticated a witness by the secret of the cluster; recorded its key", "witness", l.witness, "another_before", pin != "")
	case !conn.tls:
		l.rateLimitedLog.warn("old witness "+l.witness, "a witness does not support TLS: it has an older version, and cannot receive a new secret; install this master's version there", "witness", l.witness)
	}
	return newTalk(conn, frames, secret, said)
}

func (l *witnessLink) pinPath() string { return filepath.Join(l.dir, l.witness) }

// pin returns the fingerprint of the witness's key, "" if unknown.
func (l *witnessLink) pin() (string, error) {
	b, err := os.ReadFile(l.pinPath())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	s := strings.TrimSpace(string(b))
	if err == nil && !isFingerprint(s) {
		err = errors.New("not a fingerprint; remove the file")
	}
	if err != nil {
		return "", salt.Errorf(salt.Unavailable, "cannot read the fingerprint of a witness: %s: %w", l.pinPath(), err)
	}
	return s, nil
}

func (l *witnessLink) note(fingerprint string) error {
	err := os.MkdirAll(l.dir, 0o700)
	if err == nil {
		err = atomicfile.Write(l.pinPath(), []byte(fingerprint+"\n"), 0o600, true)
	}
	if err != nil {
		return salt.Errorf(salt.Unavailable, "cannot store the fingerprint of a witness: %w", err)
	}
	return nil
}

// expectOf is expect for messages of a witness.
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
		return nil, nil, fmt.Errorf("%.80q instead of %s", got, tag)
	}
	return d, body, nil
}

// tidings is what witnesses are to know of this cluster.
func (c *Cluster) clusterInfo() (t clusterInfo, err error) {
	if t.secret, err = c.cfg.Options.secret(); err != nil {
		return t, err
	}
	if fi, err := os.Stat(filepath.Join(c.cfg.Options.PKIDir, SecretFile)); err == nil {
		t.secretFrom = fi.ModTime()
	}
	if fi, err := os.Stat(c.PeersDir()); err == nil {
		t.membersFrom = fi.ModTime()
	}
	t.members = map[string]string{c.cfg.ID: string(c.cfg.OwnPub)}
	for id, p := range c.all() {
		if p.isGone() {
			continue
		}
		if text, err := os.ReadFile(c.secrets.peerPath(id)); err == nil {
			t.members[id] = string(text)
		}
	}
	t.tls = c.allTLS()
	return t, nil
}

// outside returns the voters that are not masters, as far as known.
func (c *Cluster) outside() []string {
	var out []string
	for _, v := range c.cfg.Options.Voters {
		if v != c.cfg.ID && c.all()[v] == nil {
			out = append(out, v)
		}
	}
	return out
}

// informed reports whether a witness has the current joining secret; an error says why it will not get it soon.
func (c *Cluster) informed(ctx context.Context, witness string) (bool, error) {
	l := c.witnesses[witness]
	if l == nil {
		return false, salt.Errorf(salt.Unavailable, "this master has no connection to it")
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	_, err := l.ask(ctx, requestDict(lease.Request{Holder: c.cfg.ID, Voters: lease.Fingerprint(c.cfg.Options.Voters)}))
	up, byTLS, knows := l.state()
	if err == nil && up && !byTLS {
		err = salt.Errorf(salt.Unavailable, "it does not support TLS, and cannot receive a secret")
	}
	return err == nil && c.isTag(knows), err
}

// Voter is the state of a voter, as seen by this master.
type Voter struct {
	ID string
	// Witness says that it is not a master of the cluster.
	Witness bool
	// Votes says that it answers and can grant the lease; Why is the reason if not.
	Votes bool
	Why   string
	// Holder is the holder of its present grant, "" for none, and Token the greatest that it has granted.
	Holder string
	Token  uint64
	// TLS says that it is connected by TLS, or is this master; Secret that a witness has the current secret of the cluster.
	TLS, Secret bool
}

// Voters queries the voters, in the order of the configuration.
func (c *Cluster) Voters(ctx context.Context) (voters []Voter) {
	s := c.Lease(ctx)
	if s == nil {
		return nil
	}
	outside := c.outside()
	for _, id := range c.cfg.Options.Voters {
		v := Voter{ID: id, Witness: slices.Contains(outside, id), Why: s.Silent[id]}
		if a, ok := s.Voters[id]; ok {
			v.Votes, v.Holder, v.Token = true, a.Holder, a.Seen
		}
		if p := c.all()[id]; p != nil {
			v.TLS = p.member().TLS
		} else if l := c.witnesses[id]; v.Witness && l != nil {
			_, byTLS, knows := l.state()
			v.TLS, v.Secret = byTLS, c.isTag(knows)
		} else {
			v.TLS = true
		}
		voters = append(voters, v)
	}
	return voters
}
