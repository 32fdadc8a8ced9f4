package witness

import (
	"context"
	"log/slog"

	"brine/internal/base/salt"
	"brine/internal/ha/lease"
	"brine/internal/ha/voter"
	"brine/internal/net/wire"
	"brine/internal/py/value"
)

// VoterFile, in a voter's own directory, stores its state.
const VoterFile = "voter.db"

// Fields of wire.VoterMessage. The packages voter and lease define their contents.
const (
	fieldPacket  = "packet"
	fieldRequest = "request"
	fieldAnswer  = "answer"
	fieldWhy     = "why"
)

// newVoter is the error sent to a master of a version before the voters agreed by raft.
const newVoter = "it has a newer version, whose voters do not grant leases to masters of this one: install it on all masters and witnesses"

// oldVoter is the error when a voter has such a version.
const oldVoter = "it has an older version, with which this one does not vote: install the version of this master there"

// PacketDict encodes a packet for another voter.
func PacketDict(p voter.Packet) (*value.Dict, error) {
	b, err := p.Encode()
	return value.DictOf(fieldPacket, b), err
}

// ReadPacket decodes the packet in a voter's answer.
func ReadPacket(d *value.Dict) (voter.Packet, error) {
	m := messageOf(d)
	switch {
	case len(m.Packet) > 0:
		return voter.ReadPacket(m.Packet)
	case m.Why != "":
		return voter.Packet{}, salt.Errorf(salt.Unavailable, "%.500s", m.Why)
	}
	return voter.Packet{}, salt.Errorf(salt.Unavailable, oldVoter)
}

func messageOf(d *value.Dict) (m wire.VoterMessage) {
	wire.View(d, &m)
	return m
}

// RequestDict encodes a request to a voter.
func RequestDict(r lease.Request) (*value.Dict, error) {
	b, err := r.Encode()
	return value.DictOf(fieldRequest, b), err
}

// ReadAnswer decodes the answer of a voter.
func ReadAnswer(d *value.Dict) (lease.Answer, error) {
	m := messageOf(d)
	switch {
	case len(m.Answer) > 0:
		return lease.ReadAnswer(m.Answer)
	case m.Granted != nil || d.Len() == 0: // the answers of versions with other voters, or none
		return lease.Answer{}, salt.Errorf(salt.Unavailable, oldVoter)
	}
	return lease.Answer{Why: m.Why}, nil
}

// Reply answers a packet or a request to the voter n, which may be nil. from is the authenticated
// sender.
func Reply(ctx context.Context, n *voter.Node, from string, arg *value.Dict, log *slog.Logger) *value.Dict {
	d, err := reply(ctx, n, from, arg)
	if err != nil {
		level := slog.LevelWarn
		if salt.KindOf(err) == salt.Unavailable { // no majority
			level = slog.LevelDebug
		}
		log.Log(ctx, level, "cannot answer a voter, or a master that asks for the lease", "from", from, "err", err)
		return value.DictOf(fieldWhy, err.Error())
	}
	return d
}

func reply(ctx context.Context, n *voter.Node, from string, arg *value.Dict) (*value.Dict, error) {
	m := messageOf(arg)
	switch {
	case n == nil:
		return value.DictOf(fieldWhy, "it has no cluster_voters: set it there"), nil
	case len(m.Packet) > 0:
		p, err := voter.ReadPacket(m.Packet)
		if err != nil {
			return nil, err
		}
		return PacketDict(n.Exchange(from, p))
	case len(m.Request) > 0:
		r, err := lease.ReadRequest(m.Request)
		if err != nil {
			return nil, err
		}
		a, err := n.Answer(ctx, r)
		if err != nil {
			return nil, err
		}
		b, err := a.Encode()
		return value.DictOf(fieldAnswer, b), err
	}
	return value.DictOf(fieldWhy, newVoter), nil
}
