// Package saltwire defines the messages of stock masters in a cluster with a shared directory: keys and events. It opens no connection.
package saltwire

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"brine/internal/base/salt"
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/wire"
	"brine/internal/net/crypt"
	"brine/internal/net/event"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Stock masters send each other events in the frames of the event bus, one way per connection:
//
//	cluster/peer/FROM         {peer_id, peers: {TO: {aes, sig}}}
//	cluster/event/FROM/TAG    bin: {event_payload: data} sealed with FROM's key
//
// aes is FROM's key for the second kind, encrypted for TO; sig is FROM's signature of its SHA-256 in hex. A Brine master adds the field
// brine to the first, which stock masters ignore.
const (
	TagPeer  = "cluster/peer/"
	tagEvent = "cluster/event/"
)

// PeerID is the field in an event's data that names the master it came from.
const PeerID = "__peer_id"

// KeyMessage returns the message that sends the own key to the peers. A peer whose public key is still unknown gets an empty entry, as in
// Salt.
func KeyMessage(s *keys.Secrets, peers []string, aes string, answer bool) ([]byte, error) {
	digest := sha256.Sum256([]byte(aes))
	sig, err := s.Own.SignX931([]byte(hex.EncodeToString(digest[:])))
	if err != nil {
		return nil, err
	}
	to := value.NewDict(len(peers))
	for _, p := range peers {
		var entry wire.PeerKey
		if pub, err := s.PeerKey(p); err == nil {
			sealed, err := pub.Encrypt(crypt.OAEPSHA224, []byte(aes))
			if err != nil {
				return nil, fmt.Errorf("the key of the peer %s: %w", p, err)
			}
			entry.AES, entry.Sig = sealed, sig
		}
		to.Set(p, wire.Dict(&entry))
	}
	data := &wire.PeerKeys{PeerID: s.ID, Peers: to, Brine: wire.Dict(&wire.BrinePeer{Protocol: wire.Protocol, Answer: answer}), Stamp: event.Stamp(time.Now())}
	b, err := msgpack.Marshal(wire.Dict(data), msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	return event.Body(TagPeer+s.ID, b), nil
}

// Greeting is the contents of a key message.
type Greeting struct {
	From  string
	Names []string // the peers listed by the sender
	Key   string   // its AES key; "" if there is none for this master
	Brine bool
	Reply bool // it answers a message of this master
}

// ReadGreeting decodes a key message and verifies its sender.
func ReadGreeting(s *keys.Secrets, raw []byte) (g Greeting, err error) {
	v, err := msgpack.Limits{Items: 4096, Bytes: wire.MaxGreeting}.UnmarshalTyped(raw)
	if err != nil {
		return g, err
	}
	d, _ := v.(*value.Dict)
	var m wire.PeerKeys
	err = wire.Read(d, &m)
	g.From = m.PeerID
	if err != nil {
		return g, err
	}
	if err := salt.CheckID(g.From); err != nil {
		return g, fmt.Errorf("peer_id: %w", err)
	}
	if m.Brine != nil {
		var b wire.BrinePeer
		wire.View(m.Brine, &b)
		g.Brine, g.Reply = true, b.Answer
	}
	for k := range m.Peers.All() {
		if name, ok := k.(string); ok {
			g.Names = append(g.Names, name)
		}
	}
	own := m.Peers.Dict(s.ID)
	if own.Len() == 0 {
		return g, nil
	}
	var entry wire.PeerKey
	if err := wire.Read(own, &entry); err != nil {
		return g, err
	}
	key, err := s.Own.Decrypt(crypt.OAEPSHA224, entry.AES)
	if err != nil {
		return g, fmt.Errorf("the key is not meant for this master: %w", err)
	}
	pub, err := s.PeerKey(g.From)
	if err != nil {
		return g, err
	}
	signed, err := pub.RecoverX931(entry.Sig)
	digest := sha256.Sum256(key)
	if err != nil || subtle.ConstantTimeCompare(signed, []byte(hex.EncodeToString(digest[:]))) != 1 {
		return g, salt.Errorf(salt.Denied, "the signature is not of the key in %s", s.PeerPath(g.From))
	}
	if _, err := crypt.NewCrypticle(string(key)); err != nil {
		return g, err
	}
	g.Key = string(key)
	return g, nil
}

// EventMessage returns the message of an event for stock masters.
func EventMessage(s *keys.Secrets, c *crypt.Crypticle, tag string, data *value.Dict) ([]byte, error) {
	plain, err := msgpack.Marshal(wire.Dict(&wire.PeerEvent{Payload: data}), msgpack.Wire)
	if err != nil {
		return nil, err
	}
	sealed := c.Seal(plain, "")
	return event.Body(tagEvent+s.ID+"/"+tag, msgpack.AppendBin(nil, sealed, msgpack.NewSpec)), nil
}

// SplitEvent splits the tag of an event message.
func SplitEvent(tag string) (from, rest string, ok bool) {
	rest, ok = strings.CutPrefix(tag, tagEvent)
	if !ok {
		return "", "", false
	}
	from, rest, ok = strings.Cut(rest, "/")
	return from, rest, ok && from != "" && rest != ""
}

// OpenEvent returns the data of an event message.
func OpenEvent(c *crypt.Crypticle, raw []byte) (*value.Dict, error) {
	sealed, ok := msgpack.Text(raw)
	if !ok {
		return nil, fmt.Errorf("an event is not sealed: %w", msgpack.ErrInvalid)
	}
	plain, err := c.Open(sealed)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Unmarshal(plain)
	if err != nil {
		return nil, err
	}
	d, _ := v.(*value.Dict)
	var m wire.PeerEvent
	wire.View(d, &m)
	if m.Payload == nil {
		return nil, fmt.Errorf("an event has no data: %w", msgpack.ErrInvalid)
	}
	return m.Payload, nil
}
