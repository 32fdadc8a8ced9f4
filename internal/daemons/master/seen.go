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
	"brine/internal/py/value"
)

// askSeen tells another master which requests of minions were served, so that it
// refuses their replay. Nothing of the answer counts but that it comes. Its data:
//
//	from, boot  the id of the master, and a number of its process
//	seen        a list of [id, key, generation, floor, nonces]
//
// A nonce is 8 bytes of its hash and 4 of the minion's time.
const askSeen = "seen"

const (
	// seenEvery is how often masters tell each other. As long may a request be
	// replayed at another one.
	seenEvery = 50 * time.Millisecond
	// seenChunk bounds the nonces of one message, and seenMinions its minions.
	seenChunk   = 1 << 14
	seenMinions = 2000
	nonceSize   = 8 + 4
	// seenWaits bounds the minions and nonces that wait for one other master. Beyond
	// it that master is told everything again, as one that was down.
	seenWaits = 1 << 20
)

// seenTeller tells the other masters of a cluster which requests this one serves.
type seenTeller struct {
	cluster *cluster.Cluster
	server  *channel.Server
	self    string
	boot    string
	// ask sends one message to a master and waits for the answer.
	ask func(ctx context.Context, id string, arg *value.Dict) error

	mu    sync.Mutex
	peers map[string]*seenPeer
}

// seenPeer is what is known of one other master.
type seenPeer struct {
	boot  string // of its process; another one has forgotten what it was told
	told  bool   // it knows all up to now, but for what waits
	busy  bool   // a message is on its way
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

// run tells until ctx ends.
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

// look tells one master the news, or everything if it may lack something.
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

// peer returns what is known of a master. s.mu is held.
func (s *seenTeller) peer(id string) *seenPeer {
	p := s.peers[id]
	if p == nil {
		p = &seenPeer{}
		s.peers[id] = p
	}
	return p
}

// tell sends what is new to a master. What could not be sent waits again: with
// everything from the beginning a slow master might never come to the end.
func (s *seenTeller) tell(ctx context.Context, id string, p *seenPeer, seen []channel.Seen) {
	var err error
	// At least one message is sent: it says which process this is.
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
		p.told, p.waits = false, nil // it does not know of this process yet
	default:
		p.wait(append(seen, p.waits...))
	}
}

// send sends one message, which has its own time.
func (s *seenTeller) send(ctx context.Context, id string, chunk *value.List) error {
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	return s.ask(ctx, id, value.DictOf("from", s.self, "boot", s.boot, "seen", chunk))
}

// wait sets what waits to be told. If it is too much, everything is told again.
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

// take learns what another master has served.
func (s *seenTeller) take(arg *value.Dict) *value.Dict {
	s.server.Learn(unpackSeen(arg.List("seen")))
	from, boot := arg.Str("from"), arg.Str("boot")
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.peers[from]; p != nil && p.boot != boot {
		if p.boot != "" {
			p.told, p.waits = false, nil
		}
		p.boot = boot
	}
	return value.NewDict(0)
}

// packSeen encodes as much as one message may hold, and returns the rest.
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

// unpackSeen decodes what packSeen made; what is malformed is left out.
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
