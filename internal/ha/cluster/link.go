package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Two Brine masters have a connection in each direction, to the same port as stock masters. The dialling master (D) sends messages, the
// other (A) acknowledges.
//
//	D: brine/cluster/hello  {nonce, facts}
//	A: brine/cluster/reply  {nonce, facts, sig}
//	D: brine/cluster/key    {key, proof, inc, sig}     key: encrypted for A
//	   or  brine/cluster/refused {reason, sig}
//	A: brine/cluster/ready  {}  or  brine/cluster/refused {reason, sig}
//
// Each signature covers all previous messages. After the handshake every frame is sealed with the key and contains its number and
// direction. Without a shared directory everything is inside TLS (tls.go): the signatures also cover the TLS connection, there is no key,
// and frames are not sealed again. A peer whose certificate is not a member's is refused instead of the reply, without a signature.
//
//	A: {n, d, last, want}   last message it has of this process (inc) of D
//	D: {n, d, first, items} messages, numbered from first; none: a sign of life
//	A: {n, d, ack, want}
//	D: {n, d, ask, what, arg} A: {n, d, re, data}
//
// and, without a shared folder (feed.go),
//
//	A: {n, d, last, want, vec}              what it knows of each stream
//	D: {n, d, rep, origin, from, to, items} changes of a stream
//	A: {n, d, rep, vec, got, gap, err}      what it knows now
const (
	tagHello = "brine/cluster/hello"
	tagReply = "brine/cluster/reply"
	tagKey   = "brine/cluster/key"
	tagReady = "brine/cluster/ready"
)

// beat is the interval of keep-alives on an idle connection.
const beat = time.Second

// Bounds of one frame of messages.
const (
	batchItems = 512
	// gather is how long messages after a sent one are collected. The first message after a pause is sent at once.
	gather     = 5 * time.Millisecond
	batchBytes = 512 << 10
)

// runLink maintains the connection to a Brine master.
func (p *peer) runLink(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		p.mu.Lock()
		on := p.mode == kindBrine && !p.gone
		p.mu.Unlock()
		if !on {
			wait.Sleep(ctx, 50*time.Millisecond)
			continue
		}
		began := time.Now()
		err := p.runOut(ctx)
		p.mu.Lock()
		p.tried = true
		p.mu.Unlock()
		refused := refusal.Of(err)
		unknown := refusal.Is(err, refusal.NotMember)
		if unknown {
			p.mu.Lock()
			p.disowns = true
			p.mu.Unlock()
		}
		switch {
		case ctx.Err() != nil:
			return
		case unknown && time.Since(p.c.began) < newTime:
			pause = firstPause // it does not know this master yet
		case refused != nil:
			p.trouble(refused.Reason)
			pause = 5 * time.Second
		default:
			p.c.log.Debug("connection to a peer ended", "peer", p.id, "err", err)
			if time.Since(began) > time.Second {
				pause = firstPause
			}
		}
		wait.Sleep(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// newTime is how long a master that has just joined retries where it is not known yet (refusal.NotMember).
const newTime = 30 * time.Second

// handshake connects to the peer and authenticates both ends.
func (p *peer) handshake(ctx context.Context) (*wire.Session, *value.Dict, error) {
	c := p.c
	conn, err := p.dialLine(ctx)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	s, first, err := p.introduce(conn)
	if err != nil {
		c.conns.Remove(conn.Raw)
		conn.Close()
	}
	return s, first, err
}

func (p *peer) introduce(conn *wire.Line) (*wire.Session, *value.Dict, error) {
	c := p.c
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	frames := event.NewFrameReader(wire.Count(conn, &c.Received), wire.MaxGreeting)
	na := wire.Nonce()
	hello, err := wire.Encode(tagHello, value.DictOf("nonce", na, "facts", c.facts("").dict()))
	if err != nil {
		return nil, nil, err
	}
	asked := time.Now()
	if err := p.write(conn, event.Frame(hello)); err != nil {
		return nil, nil, err
	}
	reply, err := frames.Next()
	if err != nil {
		return nil, nil, err
	}
	answered := time.Now()
	tag, d, err := wire.Decode(reply)
	if err == nil && tag == wire.TagRefused && conn.TLS {
		return nil, nil, refusal.Read(d).From(p.id)
	}
	if err != nil || tag != tagReply {
		return nil, nil, fmt.Errorf("not an answer of a Brine master: %q %w", tag, err)
	}
	theirs := readFacts(d.Dict("facts"))
	said := conn.Transcript()
	said.Add(hello, []byte(d.Str("nonce")), rawFacts(d))
	refuse := func(r *refusal.Error) error {
		if err := c.refuse(conn, said, theirs, r); err != nil {
			c.log.Debug("cannot send the reason of a refusal to a peer", "peer", p.id, "err", err)
		}
		return r
	}
	if theirs.id != p.id {
		return nil, nil, refuse(refusal.New(refusal.ID, "cluster_peers names %s, but the master there has the id %q: stock masters would drop its events; name it by its id, which must be its address", p.id, theirs.id))
	}
	pub, err := c.secrets.PeerKey(p.id)
	if err != nil {
		return nil, nil, refuse(refusal.New(refusal.Key, "there is no key of %s in the shared directory of %s (is cluster_pki_dir one directory for both?): %v", p.id, c.cfg.ID, err))
	}
	if err := pub.Verify(crypt.PKCS1v15SHA224, said.Sum(tagReply), d.Bytes("sig")); err != nil {
		return nil, nil, refuse(refusal.New(refusal.Key, "the master at %s does not have the key that is in %s", p.id, c.secrets.PeerPath(p.id)))
	}
	if why := c.differences(theirs, na, conn.Cert); why != nil {
		return nil, nil, refuse(why)
	}
	if why := c.skewed(theirs, asked, answered); why != nil {
		return nil, nil, refuse(why)
	}
	var box []byte
	var cipher *crypt.Crypticle
	if !conn.TLS {
		key := crypt.NewKey()
		if box, err = pub.Encrypt(crypt.OAEPSHA224, []byte(key)); err == nil {
			cipher, err = crypt.NewCrypticle(key)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	proof := proofOf(c.token, d.Str("nonce"))
	said.Add(box, []byte(proof), []byte(c.inc))
	sig, err := c.cfg.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(tagKey))
	if err != nil {
		return nil, nil, err
	}
	msg, err := wire.Encode(tagKey, value.DictOf("key", box, "proof", proof, "inc", c.inc, "sig", sig))
	if err != nil {
		return nil, nil, err
	}
	if err := p.write(conn, event.Frame(msg)); err != nil {
		return nil, nil, err
	}
	last, err := frames.Next()
	if err != nil {
		return nil, nil, err
	}
	tag, d, err = wire.Decode(last)
	if err != nil {
		return nil, nil, err
	}
	if tag == wire.TagRefused {
		r, err := readRefusal(p.id, pub, said, d)
		if err != nil {
			return nil, nil, err
		}
		return nil, nil, r
	}
	if tag != tagReady {
		return nil, nil, fmt.Errorf("%.80q at the end of a handshake", tag)
	}
	conn.SetDeadline(time.Time{})
	frames.SetLimit(wire.MaxFrame)
	if conn.TLS {
		p.spoke(conn)
	}
	s := &wire.Session{Count: &c.Sent, Conn: conn, Frames: frames, Cipher: cipher, Out: "d", In: "a"}
	start, err := s.Receive()
	return s, start, err
}

// rawFacts returns the signed bytes of the facts in a reply.
func rawFacts(d *value.Dict) []byte {
	b, _ := msgpack.Marshal(d.Dict("facts"), msgpack.NewSpec) // came so
	return b
}

// askFor is a pending query.
type askFor struct {
	number int64
	what   string
	arg    *value.Dict // may be nil
}

const askPresent = "present"

// ask queries the peer and waits for the answer. arg may be nil.
func (p *peer) ask(ctx context.Context, what string, arg *value.Dict) (*value.Dict, error) {
	answer := make(chan *value.Dict, 1)
	p.mu.Lock()
	if !p.up || p.mode != kindBrine {
		p.mu.Unlock()
		return nil, salt.Errorf(salt.Unavailable, "%s is unreachable", p.id)
	}
	p.nextAsk++
	n, ended := p.nextAsk, p.ended
	p.asks[n] = answer
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.asks, n)
		p.mu.Unlock()
	}()
	select {
	case p.questions <- askFor{n, what, arg}:
	case <-ended:
		return nil, salt.Errorf(salt.Unavailable, "%s is unreachable", p.id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case d := <-answer:
		return d, nil
	case <-ended:
		return nil, salt.Errorf(salt.Unavailable, "%s is unreachable", p.id)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runOut sends messages over one connection until it ends.
func (p *peer) runOut(ctx context.Context) error {
	s, start, err := p.handshake(ctx)
	if err != nil {
		return err
	}
	c := p.c
	defer c.conns.Remove(s.Conn.Raw)
	defer s.Conn.Close()
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return net.ErrClosed
	}
	p.link, p.up, p.problem, p.seen, p.disowns = s.Conn, true, "", true, false
	linked := make(chan struct{})
	defer close(linked)
	p.ended = linked
	p.want = texts(start, "want")
	p.mu.Unlock()
	c.log.Info("connected to a peer", "peer", p.id)
	fed, unfeed := p.feedAll(ctx, s, start)
	defer unfeed()
	p.mu.Lock()
	p.fed = fed
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		p.link, p.up, p.fed = nil, false, nil
		p.mu.Unlock()
		if ctx.Err() == nil {
			c.host.Lost(p.id)
		}
	}()
	last := uint64(max(start.Int("last"), 0))
	p.out.Ack(last)
	ended := make(chan error, 1)
	go func() { ended <- p.readAcks(s, fed) }()
	next := last + 1
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		first, items := p.out.From(next, batchItems, batchBytes)
		if len(items) > 0 {
			if err := s.Send("first", int64(first), "items", blobs(items)); err != nil {
				return err
			}
			next = first + uint64(len(items))
			timer.Reset(beat)
			if len(items) == batchItems {
				continue
			}
			// Send following messages together: each frame is sealed, written and acknowledged separately.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-ended:
				return err
			case <-time.After(gather):
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-p.out.More.C():
		case q := <-p.questions:
			pairs := []any{"ask", q.number, "what", q.what}
			if q.arg != nil {
				pairs = append(pairs, "arg", q.arg)
			}
			if err := s.Send(pairs...); err != nil {
				return err
			}
		case <-timer.C:
			if err := s.Send("first", int64(next), "items", &value.List{}); err != nil {
				return err
			}
			timer.Reset(beat)
		}
	}
}

func blobs(items [][]byte) *value.List {
	l := &value.List{}
	for _, b := range items {
		l.Append(b)
	}
	return l
}

// maxWant bounds the prefixes of a peer.
const maxWant = 100

func texts(d *value.Dict, key string) (out []string) {
	for _, it := range d.List(key) {
		if s, ok := it.(string); ok && len(out) < maxWant {
			out = append(out, s)
		}
	}
	return out
}

// readAcks handles the peer's acknowledgements and answers.
func (p *peer) readAcks(s *wire.Session, fed map[string]*feed) error {
	for {
		d, err := s.Receive()
		if err != nil {
			return err
		}
		if f := fed[d.Str("rep")]; f != nil {
			f.answered(d)
		}
		if d.Has("ack") {
			p.out.Ack(uint64(max(d.Int("ack"), 0)))
		}
		if d.Has("want") {
			p.mu.Lock()
			p.want = texts(d, "want")
			p.mu.Unlock()
		}
		if d.Has("re") {
			p.mu.Lock()
			answer := p.asks[d.Int("re")]
			p.mu.Unlock()
			if answer != nil {
				select {
				case answer <- d.Dict("data"):
				default:
				}
			}
		}
	}
}

// answerLink serves a connection made by a Brine master.
func (c *Cluster) answerLink(ctx context.Context, conn *wire.Line, frames *event.FrameReader, hello []byte) {
	p, s, inc, err := c.agreeWith(conn, frames, hello)
	if err == nil {
		c.conns.Authenticated(conn.Raw)
	}
	if errors.Is(err, io.EOF) || wire.IsTimeout(err) {
		c.log.Debug("a master has ended the handshake", "addr", conn.RemoteAddr(), "err", err)
		return
	}
	if err != nil {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		key := "link from " + host
		if why := refusal.Of(err); why != nil {
			key += " " + why.Reason // log each reason; other errors may contain a port
		}
		c.rateLimitedLog.Warn(key, "refused a connection of another master", "addr", conn.RemoteAddr(), "reason", err)
		return
	}
	p.mu.Lock()
	if old := p.in; old != nil {
		old.Close()
	}
	p.in = conn
	if p.inInc != inc {
		p.inInc, p.inLast = inc, 0
	}
	last := p.inLast
	news := p.mode != kindBrine
	p.mode = kindBrine
	p.mu.Unlock()
	if news {
		p.plain.Clear()
		p.poke()
	}
	defer func() {
		p.mu.Lock()
		if p.in == conn {
			p.in = nil
		}
		p.mu.Unlock()
	}()
	if err := p.receiveItems(ctx, s, last); err != nil && ctx.Err() == nil {
		c.log.Debug("connection of a peer ended", "peer", p.id, "err", err)
	}
}

// agreeWith answers the handshake of a dialling master.
func (c *Cluster) agreeWith(conn *wire.Line, frames *event.FrameReader, helloData []byte) (*peer, *wire.Session, string, error) {
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	hello := event.Body(tagHello, helloData)
	_, d, err := wire.Decode(hello)
	if err != nil {
		return nil, nil, "", err
	}
	theirs := readFacts(d.Dict("facts"))
	// Before anything is signed or disclosed: without TLS any peer may send hello.
	why := c.vouch(conn, theirs.id)
	if why == nil && !conn.TLS && c.cfg.Options.Isolated {
		why = c.admitsOld(theirs.id)
	}
	if why != nil {
		return nil, nil, "", errors.Join(why, c.write(conn, wire.TagRefused, why.Dict()))
	}
	na, nb := d.Str("nonce"), wire.Nonce()
	mine := c.facts(na).dict()
	reply := value.DictOf("nonce", nb, "facts", mine)
	said := conn.Transcript()
	said.Add(hello, []byte(nb), rawFacts(reply))
	sig, err := c.cfg.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(tagReply))
	if err != nil {
		return nil, nil, "", err
	}
	reply.Set("sig", sig)
	if err := c.write(conn, tagReply, reply); err != nil {
		return nil, nil, "", err
	}
	body, err := frames.Next()
	if err != nil {
		return nil, nil, "", err
	}
	tag, d, err := wire.Decode(body)
	if err == nil && tag == wire.TagRefused {
		c.refusedBy(theirs.id, said, d)
		return nil, nil, "", io.EOF
	}
	if err != nil || tag != tagKey {
		return nil, nil, "", fmt.Errorf("%q instead of a key: %w", tag, err)
	}
	said.Add(d.Bytes("key"), []byte(d.Str("proof")), []byte(d.Str("inc")))
	p, key, why := c.judge(conn, theirs, d, said, nb)
	if why != nil {
		return nil, nil, "", errors.Join(why, c.refuse(conn, said, theirs, why))
	}
	if err := c.write(conn, tagReady, value.NewDict(0)); err != nil {
		return nil, nil, "", err
	}
	conn.SetDeadline(time.Time{})
	frames.SetLimit(wire.MaxFrame)
	if conn.TLS {
		p.spoke(conn)
	}
	return p, &wire.Session{Count: &c.Sent, Conn: conn, Frames: frames, Cipher: key, Out: "a", In: "d"}, d.Str("inc"), nil
}

// refuse sends the other end of a handshake the reason of its refusal.
func (c *Cluster) refuse(conn net.Conn, said wire.Transcript, theirs facts, why *refusal.Error) error {
	said = slices.Clone(said)
	said.Add(why.Signed(theirs.refusals)...)
	sig, err := c.cfg.Own.Sign(crypt.PKCS1v15SHA224, said.Sum(wire.TagRefused))
	if err != nil {
		return err
	}
	d := why.Dict()
	if theirs.refusals < 1 {
		d.Delete("code") // the signature does not cover it
	}
	d.Set("sig", sig)
	return c.write(conn, wire.TagRefused, d)
}

// readRefusal returns the refusal by the master with the key pub.
func readRefusal(id string, pub *crypt.PublicKey, said wire.Transcript, d *value.Dict) (*refusal.Error, error) {
	said = slices.Clone(said)
	why := refusal.Read(d)
	understood := int64(0)
	if d.Has("code") {
		understood = refusal.Version
	}
	said.Add(why.Signed(understood)...)
	if err := pub.Verify(crypt.PKCS1v15SHA224, said.Sum(wire.TagRefused), d.Bytes("sig")); err != nil {
		return nil, errors.New("a refusal with an invalid signature")
	}
	return why.From(id), nil
}

// refusedBy logs that a dialling master refuses this one.
func (c *Cluster) refusedBy(id string, said wire.Transcript, d *value.Dict) {
	pub, err := c.secrets.PeerKey(id)
	if err != nil {
		c.rateLimitedLog.Warn("refused by an unauthenticated master", "an unauthenticated master (its key is unknown here) refuses this one", "peer", fmt.Sprintf("%.100s", id), "reason", fmt.Sprintf("%.1000s", d.Str("reason")), "err", err)
		return
	}
	why, err := readRefusal(id, pub, said, d)
	if err != nil {
		c.rateLimitedLog.Warn("refusal of "+id, "invalid refusal in a handshake", "peer", id, "err", err)
		return
	}
	if p := c.all()[id]; p != nil {
		p.trouble(why.Reason)
		return
	}
	c.rateLimitedLog.Error("refused "+id, "another master refuses this one: "+why.Reason, "peer", id)
}

// inquire asks a peer that is a Brine master and hung up without a message for the reason.
func (p *peer) inquire(ctx context.Context) {
	if _, err := os.Stat(p.c.markPath(p.id)); err != nil || p.kind() != kindUnknown || p.isGone() {
		return
	}
	s, _, err := p.handshake(ctx)
	if err == nil {
		p.c.conns.Remove(s.Conn.Raw)
		s.Conn.Close()
	}
	if why := refusal.Of(err); why != nil && ctx.Err() == nil {
		p.trouble(why.Reason)
	}
}

// judge decides whether to accept a dialling master after its last message.
func (c *Cluster) judge(conn *wire.Line, theirs facts, d *value.Dict, said wire.Transcript, nb string) (*peer, *crypt.Crypticle, *refusal.Error) {
	pub, err := c.secrets.PeerKey(theirs.id)
	if c.cfg.Options.Isolated && errors.Is(err, fs.ErrNotExist) {
		return nil, nil, refusal.New(refusal.NotMember, "%.100q %s of %s", theirs.id, refusal.TextNotMember, c.cfg.ID)
	}
	if why := c.vouch(conn, theirs.id); why != nil {
		return nil, nil, why
	}
	if p := c.all()[theirs.id]; errors.Is(err, fs.ErrNotExist) && p != nil && p.wasThere() {
		return nil, nil, refusal.New(refusal.Removed, "%s was removed from the cluster: %s was deleted; restart it to have it back", theirs.id, c.secrets.PeerPath(theirs.id))
	}
	if salt.CheckID(theirs.id) != nil || err != nil {
		return nil, nil, refusal.New(refusal.Key, "%.100q has no key in cluster_pki_dir of %s (is that one directory for both?)", theirs.id, c.cfg.ID)
	}
	if err := pub.Verify(crypt.PKCS1v15SHA224, said.Sum(tagKey), d.Bytes("sig")); err != nil {
		return nil, nil, refusal.New(refusal.Key, "%s does not have the key that is in %s", theirs.id, c.secrets.PeerPath(theirs.id))
	}
	theirs.proof = d.Str("proof")
	if why := c.differences(theirs, nb, conn.Cert); why != nil {
		return nil, nil, why
	}
	var cipher *crypt.Crypticle
	if !conn.TLS {
		key, err := c.cfg.Own.Decrypt(crypt.OAEPSHA224, d.Bytes("key"))
		if err != nil {
			return nil, nil, refusal.New(refusal.Key, "cannot decrypt the key of the connection")
		}
		if cipher, err = crypt.NewCrypticle(string(key)); err != nil {
			return nil, nil, refusal.New(refusal.Key, "the key of the connection is invalid")
		}
	}
	p := c.all()[theirs.id]
	if p == nil {
		p = c.adopt(theirs.id)
	}
	if p.member().Problem != "" {
		p.look()
	}
	if p.isGone() {
		return nil, nil, refusal.New(refusal.Removed, "%s was removed from the cluster", theirs.id)
	}
	return p, cipher, nil
}

// wasThere reports whether its key has existed in the shared directory.
func (p *peer) wasThere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// spoke records that the peer uses TLS, and closes connections without it.
func (p *peer) spoke(l *wire.Line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tls = true
	if l.Cert != nil {
		p.certEnds = l.Cert.NotAfter
	}
	for _, old := range []*wire.Line{p.link, p.in} {
		if old != nil && !old.TLS {
			old.Close()
		}
	}
}

func (p *peer) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

func (c *Cluster) write(conn net.Conn, tag string, d *value.Dict) error {
	body, err := wire.Encode(tag, d)
	if err != nil {
		return err
	}
	n, err := conn.Write(event.Frame(body))
	c.Sent.Add(int64(n))
	return err
}

// receiveItems handles the messages of a peer in order, each once.
func (p *peer) receiveItems(ctx context.Context, s *wire.Session, last uint64) error {
	c := p.c
	if err := s.Send("last", int64(last), "want", value.Strings(c.wanted()), "vec", c.vectors(), "live", true); err != nil {
		return err
	}
	applyQueues, stop := p.applyAll(s)
	defer stop()
	news, end := c.conns.Changes()
	defer end()
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-news.C():
				if s.Send("want", value.Strings(c.wanted())) != nil {
					return
				}
			}
		}
	}()
	for {
		d, err := s.Receive()
		if err != nil {
			return err
		}
		if d.Has("ask") {
			if c.excluded(p.id) {
				return errors.New("the peer was removed from the cluster")
			}
			number, what := d.Int("ask"), d.Str("what")
			data := value.NewDict(1)
			if what == askPresent {
				data.Set("present", value.Strings(c.host.Present()))
			} else if answer := c.answers[what]; answer != nil {
				// It may take time, which must not delay other frames.
				go func() {
					if err := s.Send("re", number, "data", answer(d.Dict("arg"))); err != nil {
						c.log.Debug("cannot send an answer to a peer", "peer", p.id, "err", err)
					}
				}()
				continue
			}
			if err := s.Send("re", number, "data", data); err != nil {
				return err
			}
			continue
		}
		if d.Has("rep") {
			if err := applyQueues.give(d); err != nil {
				return err
			}
			continue
		}
		if last, err = p.take(d, s.Conn); err != nil {
			return err
		}
		if err := s.Send("ack", int64(last)); err != nil {
			return err
		}
	}
}

// take passes the messages of a frame to the host and returns the number of the last stored one.
func (p *peer) take(d *value.Dict, conn *wire.Line) (uint64, error) {
	p.deliver.Lock()
	defer p.deliver.Unlock()
	p.mu.Lock()
	last, mine := p.inLast, p.in == conn
	p.mu.Unlock()
	if !mine {
		return last, net.ErrClosed // a newer connection has taken over
	}
	first := uint64(max(d.Int("first"), 1))
	items := d.List("items")
	if last > 0 && first > last+1 {
		p.c.log.Warn("the peer dropped messages for this master: its queue was full", "peer", p.id, "messages", first-last-1)
		p.c.host.Lost(p.id)
	}
	for i, it := range items {
		n := first + uint64(i)
		if n <= last {
			continue
		}
		b, _ := it.([]byte)
		if s, ok := it.(string); ok {
			b = []byte(s)
		}
		if err := p.takeItem(b); err != nil {
			p.c.rateLimitedLog.Warn("item of "+p.id, "cannot decode a message of a peer", "peer", p.id, "err", err)
		}
		last = n
	}
	p.mu.Lock()
	p.inLast = last
	p.mu.Unlock()
	return last, nil
}

func (p *peer) takeItem(b []byte) error {
	v, err := msgpack.UnmarshalTyped(b)
	if err != nil {
		return err
	}
	d, _ := v.(*value.Dict)
	c := p.c
	switch d.Str("k") {
	case "job":
		j := Job{JID: d.Str("jid"), Map: d.Dict("job"), Minions: idsOf(d, "minions"), Until: time.UnixMilli(d.Int("until")), From: d.Str("from")}
		if j.Map == nil || !salt.ValidJID(j.JID) {
			return errors.New("a job without an id")
		}
		c.SetOrigin(j.JID, p.id)
		c.host.Job(j)
	case "event", "ret":
		tag, data := d.Str("tag"), d.Dict("data")
		if d.Str("k") == "ret" {
			tag = returnTag(data)
		}
		if data == nil || tag == "" {
			return errors.New("an event without data")
		}
		data.Set(saltwire.PeerID, p.id)
		if tag == tagRotate {
			c.host.Rotated()
		}
		c.host.Relay(p.id, tag, data)
	case "note":
		if id := d.Str("id"); salt.CheckID(id) == nil {
			c.host.Note(Note(d.Str("note")), id)
		}
	}
	return nil
}

// idsOf returns the ids in a list, nil if it is missing.
func idsOf(d *value.Dict, key string) []string {
	if !d.Has(key) {
		return nil
	}
	out := make([]string, 0, len(d.List(key)))
	for _, it := range d.List(key) {
		if s, ok := it.(string); ok && salt.CheckID(s) == nil {
			out = append(out, s)
		}
	}
	return out
}

// markPath is the file that marks a Brine master before the first connection.
func (c *Cluster) markPath(id string) string {
	return filepath.Join(c.cfg.Options.PKIDir, keys.PeersDir, "."+id+".brine")
}

// announce writes the own mark; withdraw removes it, since a stock master may replace this one.
func (c *Cluster) announce() error {
	if c.cfg.Options.Isolated {
		return nil
	}
	return atomicfile.Write(c.markPath(c.cfg.ID), nil, 0o644, false)
}

func (c *Cluster) withdraw() { os.Remove(c.markPath(c.cfg.ID)) }

// agreeTime is the timeout for the peers at the start of a master.
const agreeTime = 3 * time.Second

// agree checks the settings with the running Brine masters. Those that are unreachable or do not answer are checked when they connect.
func (c *Cluster) agree() error {
	ctx, cancel := context.WithTimeout(context.Background(), agreeTime)
	defer cancel()
	var mu sync.Mutex
	var reasons, unknown []string // unknown: a member may not know yet who has joined
	var clocks []string           // of two clocks it is unknown which one is wrong
	agreed := c.founding          // accepted by the member that admitted it
	var wg sync.WaitGroup
	for _, p := range c.all() {
		if _, err := os.Stat(c.markPath(p.id)); err != nil && !c.cfg.Options.Isolated {
			continue
		}
		wg.Go(func() {
			s, _, err := p.handshake(ctx)
			if err == nil {
				c.conns.Remove(s.Conn.Raw)
				s.Conn.Close()
			}
			mu.Lock()
			defer mu.Unlock()
			r := refusal.Of(err)
			switch {
			case err == nil:
				agreed = true
			case r == nil:
			case r.Code == refusal.Shares:
				c.log.Warn("continuing without a peer: "+r.Reason, "peer", p.id)
				agreed = true
			case r.Code == refusal.Clock && c.cfg.Options.Isolated:
				clocks = append(clocks, r.Reason)
			case r.Code == refusal.NotMember:
				unknown = append(unknown, r.Reason)
			default:
				reasons = append(reasons, r.Reason)
			}
		})
	}
	wg.Wait()
	if !agreed {
		reasons = append(reasons, unknown...)
	}
	if !agreed && len(clocks) > 1 {
		reasons = append(reasons, clocks...) // its own clock is wrong
	} else if len(clocks) > 0 {
		c.log.Warn("continuing without a peer until the clocks agree", "reasons", strings.Join(clocks, "; "))
	}
	if len(reasons) == 0 {
		return nil
	}
	slices.Sort(reasons)
	return salt.Errorf(salt.Invalid, "this master cannot be a member of the cluster: %s", strings.Join(reasons, "; "))
}
