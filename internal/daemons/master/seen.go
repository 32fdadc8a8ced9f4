package master

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"

	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// askSeen is the message that reports served requests of minions to another
// master, which then refuses their replay. The answer is empty. Its data:
//
//	from, boot  the id of the master, and a random id of its process
//	seen        a list of [id, key, generation, floor, nonces]
//
// A nonce is 8 bytes of its hash and 4 of the minion's time.
const askSeen = "seen"

const (
	// seenEvery is the interval of these messages. For that long a request can be
	// replayed at another master.
	seenEvery = 50 * time.Millisecond
	// seenChunk bounds the nonces of one message, and seenMinions its minions.
	seenChunk   = 1 << 14
	seenMinions = 2000
	nonceSize   = 8 + 4
	// seenWaits bounds the minions and nonces that are queued for another master.
	// Beyond it that master is sent everything again, as after an outage.
	seenWaits = 1 << 20
)

// seenTeller reports the requests that this master serves to the other masters of
// a cluster.
type seenTeller struct {
	cluster *cluster.Cluster
	server  *channel.Server
	self    string
	boot    string
	// ask sends a message to a master and waits for the answer.
	ask func(ctx context.Context, id string, arg *value.Dict) error

	mu    sync.Mutex
	peers map[string]*seenPeer
}

// seenPeer is the state of one other master.
type seenPeer struct {
	boot  string // identifies its process; a new process has forgotten everything
	told  bool   // it knows everything except what is queued
	busy  bool   // a message is in flight
	waits []channel.Seen
}

func newSeenTeller(c *cluster.Cluster, server *channel.Server, self string) *seenTeller {
	var b [8]byte
	rand.Read(b[:])
	ask := func(ctx context.Context, id string, arg *value.Dict) error {
		_, err := c.Queries.AskOne(ctx, id, askSeen, arg)
		return err
	}
	return &seenTeller{cluster: c, server: server, self: self, boot: hex.EncodeToString(b[:]), ask: ask, peers: map[string]*seenPeer{}}
}

// run reports until ctx ends.
func (s *seenTeller) run(ctx context.Context) {
	tick := time.NewTicker(seenEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		news := s.server.TakeSeen()
		for _, m := range s.cluster.Members() {
			s.look(ctx, m.ID, m.Up && m.Kind == "brine" && !m.Gone, news)
		}
	}
}

// look sends a master the new reports, or everything if it may lack something.
func (s *seenTeller) look(ctx context.Context, id string, up bool, news []channel.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peer(id)
	if !up {
		p.told, p.waits = false, nil
		return
	}
	if p.told {
		p.wait(append(p.waits, news...))
	}
	if p.busy || p.told && len(p.waits) == 0 {
		return
	}
	tell := p.waits
	if !p.told {
		tell = s.server.AllSeen()
	}
	p.busy, p.told, p.waits = true, true, nil
	go s.tell(ctx, id, p, tell)
}

// peer returns the state of a master. s.mu is held.
func (s *seenTeller) peer(id string) *seenPeer {
	p := s.peers[id]
	if p == nil {
		p = &seenPeer{}
		s.peers[id] = p
	}
	return p
}

// tell sends new reports to a master. What could not be sent is queued again: if it started
// over, a slow receiver might never get everything.
func (s *seenTeller) tell(ctx context.Context, id string, p *seenPeer, seen []channel.Seen) {
	var err error
	// At least one message is sent: it identifies this process.
	for first := true; err == nil && (first || len(seen) > 0); first = false {
		chunk, rest := packSeen(seen)
		if err = s.send(ctx, id, chunk); err == nil {
			seen = rest
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.busy = false
	switch {
	case err == nil || !p.told:
	case len(seen) == 0:
		p.told, p.waits = false, nil // it does not know this process yet
	default:
		p.wait(append(seen, p.waits...))
	}
}

// send sends one message, which has a timeout of its own.
func (s *seenTeller) send(ctx context.Context, id string, chunk *value.List) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return s.ask(ctx, id, wire.Encode(&wire.SeenReport{From: s.self, Boot: s.boot, Seen: chunk}))
}

// wait replaces the queue. If it is too long, it is dropped, and everything is sent again.
func (p *seenPeer) wait(seen []channel.Seen) {
	n := len(seen)
	for _, e := range seen {
		n += len(e.Nonces)
	}
	p.told, p.waits = n <= seenWaits, seen
	if !p.told {
		p.waits = nil
	}
}

// take records what another master served.
func (s *seenTeller) take(arg *value.Dict) *value.Dict {
	var in wire.SeenReport
	wire.View(arg, &in)
	s.server.Learn(unpackSeen(value.Items(in.Seen)))
	s.meet(in.From, in.Boot)
	return value.NewDict(0)
}

// meet records the process of a master. A new process lacks everything that was sent to the
// previous one, even if no lost connection was noticed.
func (s *seenTeller) meet(id, boot string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[id]
	if p == nil || p.boot == boot {
		return
	}
	if p.boot != "" {
		p.told, p.waits = false, nil
	}
	p.boot = boot
}

// packSeen encodes as much as fits into a message, and returns the rest.
func packSeen(seen []channel.Seen) (chunk *value.List, rest []channel.Seen) {
	chunk = &value.List{}
	nonces := 0
	for i, e := range seen {
		if nonces += len(e.Nonces); i > 0 && nonces > seenChunk || i == seenMinions {
			return chunk, seen[i:]
		}
		var key [8]byte
		binary.BigEndian.PutUint64(key[:], e.Key)
		b := make([]byte, 0, len(e.Nonces)*nonceSize)
		for _, n := range e.Nonces {
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, n.Hash), n.Sent)
		}
		chunk.Append(value.ListOf(e.ID, key[:], int64(e.Generation), int64(e.Floor), b))
	}
	return chunk, nil
}

// unpackSeen decodes the output of packSeen and skips malformed entries.
func unpackSeen(list []any) (out []channel.Seen) {
	for _, item := range list {
		l, _ := item.(*value.List)
		if l == nil || len(l.Items) != 5 {
			continue
		}
		id, isText := l.Items[0].(string)
		key, isKey := l.Items[1].([]byte)
		generation, isNumber := l.Items[2].(int64)
		floor, isTime := l.Items[3].(int64)
		b, isBytes := l.Items[4].([]byte)
		if !isText || !isKey || len(key) != 8 || !isNumber || !isTime || !isBytes {
			continue
		}
		e := channel.Seen{ID: id, Key: binary.BigEndian.Uint64(key), Generation: uint32(generation), Floor: uint32(floor)}
		for ; len(b) >= nonceSize; b = b[nonceSize:] {
			e.Nonces = append(e.Nonces, channel.SeenNonce{Hash: binary.BigEndian.Uint64(b), Sent: binary.BigEndian.Uint32(b[8:])})
		}
		out = append(out, e)
	}
	return out
}
