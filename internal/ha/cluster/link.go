package cluster

import (
	"context"
	"errors"
	"maps"
	"net"
	"os"
	"time"

	"brine/internal/base/salt"
	"brine/internal/base/wait"
	"brine/internal/ha/cluster/feed"
	"brine/internal/ha/cluster/memberauth"
	"brine/internal/ha/cluster/refusal"
	"brine/internal/ha/cluster/saltwire"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
	"brine/internal/store/oplog"
)

// Two Brine masters have a connection in each direction, to the same port as stock masters. The dialling master (D) sends messages, the
// other (A) acknowledges. After the handshake (package memberauth) every frame is sealed with the key and contains its number and
// direction; inside TLS frames are not sealed again.
//
//	A: {n, d, last, want}   last message it has of this process (inc) of D
//	D: {n, d, first, items} messages, numbered from first; none: a sign of life
//	A: {n, d, ack, want}
//	D: {n, d, ask, what, arg} A: {n, d, re, data}
//
// and, without a shared directory (package feed),
//
//	A: {n, d, last, want, vec}              what it knows of each stream
//	D: {n, d, rep, origin, from, to, items} changes of a stream
//	A: {n, d, rep, vec, got, gap, err}      what it knows now

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
		p.tried, p.failed = true, began
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
			pause = firstPause // the peer does not know this master yet
		case unknown:
			p.trouble(refused.Reason + "; " + p.c.wayBack())
			pause = 5 * time.Second
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

// newTime is how long a master that has just joined retries a peer that does not know it yet (refusal.NotMember).
const newTime = 30 * time.Second

// handshake connects to the peer and authenticates both ends.
func (p *peer) handshake(ctx context.Context) (*wire.Session, *wire.Start, error) {
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

func (p *peer) introduce(conn *wire.Line) (*wire.Session, *wire.Start, error) {
	c := p.c
	conn.SetDeadline(time.Now().Add(wire.HandshakeTime))
	frames := event.NewFrameReader(wire.Count(conn, &c.Received), wire.MaxGreeting)
	d := memberauth.NewDialer(c.self(), c.trust, connOf(conn), p.id)
	out, err := drive(d, nil, frames.Next, func(body []byte) error { return p.write(conn, event.Frame(body)) }, func(err error) {
		c.log.Debug("cannot send the reason of a refusal to a peer", "peer", p.id, "err", err)
	})
	if err != nil {
		return nil, nil, err
	}
	s := p.authenticated(conn, frames, &wire.Session{Cipher: out.Cipher, Out: "d", In: "a"})
	frame, err := s.Receive()
	if err != nil {
		return nil, nil, err
	}
	start := &wire.Start{}
	wire.View(frame.Body, start)
	return s, start, nil
}

// authenticated creates a session on a connection that was authenticated as the peer's.
func (p *peer) authenticated(conn *wire.Line, frames *event.FrameReader, s *wire.Session) *wire.Session {
	conn.SetDeadline(time.Time{})
	frames.SetLimit(wire.MaxFrame)
	if conn.TLS {
		p.spoke(conn)
	}
	s.Count, s.Conn, s.Frames = &p.c.Sent, conn, frames
	return s
}

// askFor is a query that waits to be sent.
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
	p.want, p.older = texts(start.Want), !start.Short
	p.mu.Unlock()
	c.log.Info("connected to a peer", "peer", p.id)
	fed, unfeed := feed.Start(ctx, p.feedPeer(), c.streams, s, start)
	defer unfeed()
	p.mu.Lock()
	p.fed = fed
	p.mu.Unlock()
	defer func() {
		had := make(map[string]oplog.Vector, len(fed))
		for name, f := range fed {
			had[name] = f.Have()
		}
		p.mu.Lock()
		p.had = had
		p.link, p.up, p.fed = nil, false, nil
		p.mu.Unlock()
		if ctx.Err() == nil {
			c.host.Lost(p.id)
		}
	}()
	last := uint64(max(start.Last, 0))
	p.out.Ack(last)
	ended := make(chan error, 1)
	go func() { ended <- p.readAcks(s, fed) }()
	next := last + 1
	timer := time.NewTimer(beat)
	defer timer.Stop()
	for {
		first, items := p.out.From(next, batchItems, batchBytes)
		if len(items) > 0 {
			if err := s.Send(&wire.Messages{First: int64(first), Items: blobs(items)}); err != nil {
				return err
			}
			next = first + uint64(len(items))
			timer.Reset(beat)
			if len(items) == batchItems {
				continue
			}
			// Send the messages that follow shortly together: each frame is sealed, written and acknowledged separately.
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
			if err := s.Send(&wire.Question{Number: q.number, What: q.what, Arg: q.arg}); err != nil {
				return err
			}
		case <-timer.C:
			if err := s.Send(&wire.Messages{First: int64(next)}); err != nil {
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

// maxWant bounds the number of prefixes that a peer may request.
const maxWant = 100

func texts(l *value.List) []string {
	out := value.OnlyTexts(l)
	return out[:min(len(out), maxWant)]
}

// feedPeer returns the peer in the form for feeds.
func (p *peer) feedPeer() feed.Peer {
	return feed.Peer{ID: p.id, Log: p.c.log, Limited: p.c.rateLimitedLog, Excluded: func() bool { return p.c.excluded(p.id) }, Behind: p.setBehind,
		Stored: p.c.setStored}
}

func (p *peer) setBehind(stream string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old, ok := p.behind[stream]; ok && old == n {
		return
	}
	next := maps.Clone(p.behind)
	if next == nil {
		next = map[string]int64{}
	}
	next[stream] = n
	p.behind = next
}

// readAcks handles the peer's acknowledgements and answers.
func (p *peer) readAcks(s *wire.Session, fed map[string]*feed.Feed) error {
	for {
		frame, err := s.Receive()
		if err != nil {
			return err
		}
		if f := fed[frame.Rep]; f != nil {
			var known wire.Known
			wire.View(frame.Body, &known)
			f.Answered(&known)
		}
		if frame.Ack != nil {
			var ack wire.Ack
			wire.View(frame.Body, &ack)
			p.out.Ack(uint64(max(ack.Ack, 0)))
		}
		if frame.Want != nil {
			var want wire.Wanted
			wire.View(frame.Body, &want)
			p.mu.Lock()
			p.want = texts(want.Want)
			p.mu.Unlock()
		}
		if frame.Re != nil {
			p.answered(frame.Body)
		}
	}
}

// answered passes an answer to the goroutine that waits for it.
func (p *peer) answered(body *value.Dict) {
	var a wire.Answer
	wire.View(body, &a)
	p.mu.Lock()
	waiting := p.asks[a.Number]
	p.mu.Unlock()
	if waiting == nil {
		return
	}
	select {
	case waiting <- a.Data:
	default:
	}
}

func connOf(l *wire.Line) memberauth.Conn {
	return memberauth.Conn{TLS: l.TLS, Cert: l.Cert, Begin: l.Transcript()}
}

// stepper is one end of a handshake.
type stepper interface {
	Step(in []byte, now time.Time) (memberauth.Out, error)
}

// drive runs a handshake to its end. first is the message that the other end has sent already, nil if this end begins. drive returns
// a refusal as its error; if the refusal cannot be sent, failed gets the error of sending.
func drive(s stepper, first []byte, next func() ([]byte, error), send func(body []byte) error, failed func(error)) (memberauth.Out, error) {
	for in := first; ; {
		out, err := s.Step(in, time.Now())
		if out.Send != nil {
			if sendErr := send(out.Send); sendErr != nil && err == nil {
				return out, sendErr
			} else if sendErr != nil {
				failed(sendErr)
			}
		}
		if err != nil || out.Done {
			return out, err
		}
		if in, err = next(); err != nil {
			return out, err
		}
	}
}

// inquire asks a Brine master that closed the connection without a message for the reason.
func (p *peer) inquire(ctx context.Context) {
	if _, err := os.Stat(markPath(p.c.cfg.Options.PKIDir, p.id)); err != nil || p.kind() != kindUnknown || p.isGone() {
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

// wasThere reports whether the peer's key has existed in the shared directory.
func (p *peer) wasThere() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

// spoke records that the peer uses TLS, and closes its connections without TLS.
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

// receiveItems handles each message of a peer once and in order.
func (p *peer) receiveItems(ctx context.Context, s *wire.Session, last uint64) error {
	c := p.c
	if err := s.Send(&wire.Start{Last: int64(last), Want: value.Strings(c.wanted()), Vec: c.vectors(), Live: true, Short: true}); err != nil {
		return err
	}
	applyQueues, stop := feed.Apply(p.feedPeer(), c.streams, s)
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
				if s.Send(&wire.Wanted{Want: value.Strings(c.wanted())}) != nil {
					return
				}
			}
		}
	}()
	for {
		frame, err := s.Receive()
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.heard = time.Now()
		p.mu.Unlock()
		switch {
		case frame.Ask != nil:
			if c.excluded(p.id) {
				return errors.New("the peer was removed from the cluster")
			}
			if err := p.answer(s, frame.Body); err != nil {
				return err
			}
		case frame.Rep != "":
			var changes wire.Changes
			wire.View(frame.Body, &changes)
			if err := applyQueues.Give(&changes); err != nil {
				return err
			}
		default:
			var m wire.Messages
			wire.View(frame.Body, &m)
			if last, err = p.take(&m, s.Conn); err != nil {
				return err
			}
			if err := s.Send(&wire.Ack{Ack: int64(last)}); err != nil {
				return err
			}
		}
	}
}

// answer answers a question of the peer.
func (p *peer) answer(s *wire.Session, body *value.Dict) error {
	c := p.c
	var q wire.Question
	wire.View(body, &q)
	if q.What == askPresent {
		return s.Send(&wire.Answer{Number: q.Number, Data: wire.Dict(&wire.Present{Present: value.Strings(c.host.Present())})})
	}
	answer := c.answers[q.What]
	if answer == nil {
		return s.Send(&wire.Answer{Number: q.Number, Data: value.NewDict(0)})
	}
	// The answer may take time, which must not delay other frames.
	go func() {
		if err := s.Send(&wire.Answer{Number: q.Number, Data: answer(p.id, q.Arg)}); err != nil {
			c.log.Debug("cannot send an answer to a peer", "peer", p.id, "err", err)
		}
	}()
	return nil
}

// take passes the messages of a frame to the host and returns the number of the last stored one.
func (p *peer) take(m *wire.Messages, conn *wire.Line) (uint64, error) {
	p.deliver.Lock()
	defer p.deliver.Unlock()
	p.mu.Lock()
	last, mine := p.inLast, p.in == conn
	p.mu.Unlock()
	if !mine {
		return last, net.ErrClosed // a newer connection has taken over
	}
	first := uint64(max(m.First, 1))
	items := value.Items(m.Items)
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
	var kind wire.ItemKind
	wire.View(d, &kind)
	switch kind.K {
	case wire.KindJob:
		var m wire.JobItem
		wire.View(d, &m)
		j := Job{JID: m.JID, Map: m.Job, Minions: idsOf(m.Minions), Until: time.UnixMilli(m.Until), From: m.From}
		if j.Map == nil || !salt.ValidJID(j.JID) {
			return errors.New("a job without an id")
		}
		c.SetOrigin(j.JID, p.id)
		c.host.Job(j)
	case wire.KindEvent, wire.KindReturn:
		var m wire.EventItem
		wire.View(d, &m)
		tag, data := m.Tag, m.Data
		if m.K == wire.KindReturn {
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
	case wire.KindNote:
		var m wire.NoteItem
		wire.View(d, &m)
		if salt.CheckID(m.ID) == nil {
			c.host.Note(Note(m.Note), m.ID)
		}
	}
	return nil
}

// idsOf returns the ids in a list, nil if it is missing.
func idsOf(v any) []string {
	if v == nil {
		return nil
	}
	list := value.Items(v)
	out := make([]string, 0, len(list))
	for _, it := range list {
		if s, ok := it.(string); ok && salt.CheckID(s) == nil {
			out = append(out, s)
		}
	}
	return out
}
