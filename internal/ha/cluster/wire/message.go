// Package wire implements the basis of all connections between two members of a cluster, or a member and a witness:
// messages with a tag, the transcript that signatures cover, TLS with the cluster's key, and numbered frames once
// both ends are authenticated. It does not interpret messages.
package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"brine/internal/ha/cluster/refusal"
	"brine/internal/net/event"
	message "brine/internal/net/wire"
	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// Protocol is the version of the protocol between Brine masters.
const Protocol = 1

// Proof returns an HMAC of the transcript that proves knowledge of the secret.
func (t Transcript) Proof(secret, label string) []byte {
	h := hmac.New(sha256.New, []byte(secret))
	h.Write(t.Sum(label))
	return h.Sum(nil)
}

// Unsigned returns a message without its signature.
func Unsigned(body []byte) []byte {
	tag, d, err := Decode(body)
	if err != nil {
		return nil
	}
	d.Delete("sig")
	b, _ := Encode(tag, d) // it was decoded from msgpack
	return b
}

// Expect reads a message that must have the tag want. It returns a refusal as an error.
func Expect(frames *event.FrameReader, want string) (*value.Dict, []byte, error) {
	body, err := frames.Next()
	if err != nil {
		return nil, nil, err
	}
	d, err := Want(body, want)
	return d, bytes.Clone(body), err
}

// Want decodes a message of an authenticated conversation, which must have the tag want. It returns a refusal as an error.
func Want(body []byte, want string) (*value.Dict, error) {
	tag, raw, ok := event.SplitBody(body)
	if !ok {
		return nil, errors.New("a message without a tag")
	}
	v, err := msgpack.UnmarshalTyped(raw)
	d, _ := v.(*value.Dict)
	switch {
	case err != nil || d == nil:
		return nil, fmt.Errorf("a message that is not a dict: %w", err)
	case tag == TagRefused:
		return nil, refusal.Read(d).Refusal().From("it")
	case tag != want:
		return nil, fmt.Errorf("%.80q instead of %s: this is not a master of a cluster without a shared directory", tag, want)
	}
	return d, nil
}

// TagRefused is the tag of a refusal, in the handshake and when joining.
const TagRefused = "brine/cluster/refused"

// Nonce returns 16 random bytes in hexadecimal digits.
func Nonce() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Transcript holds the previous messages of a handshake, for signatures.
type Transcript []byte

// Add appends parts, each with its length.
func (t *Transcript) Add(parts ...[]byte) {
	for _, p := range parts {
		*t = binary.BigEndian.AppendUint32(*t, uint32(len(p)))
		*t = append(*t, p...)
	}
}

// Sum returns the hash of the transcript for the purpose that label names.
func (t Transcript) Sum(label string) []byte {
	h := sha256.New()
	h.Write([]byte(label))
	h.Write([]byte{0})
	h.Write(t)
	return h.Sum(nil)
}

// Encode returns a message as the body of a frame.
func Encode(tag string, d *value.Dict) ([]byte, error) {
	b, err := msgpack.Marshal(d, msgpack.NewSpec)
	if err != nil {
		return nil, err
	}
	return event.Body(tag, b), nil
}

// Decode decodes a handshake message.
func Decode(body []byte) (tag string, d *value.Dict, err error) {
	tag, raw, ok := event.SplitBody(body)
	if !ok {
		return "", nil, errors.New("a message without a tag")
	}
	v, err := msgpack.Limits{Items: 8192, Bytes: MaxGreeting, Depth: 16}.UnmarshalTyped(raw)
	d, _ = v.(*value.Dict)
	if err == nil && d == nil {
		err = errors.New("a message that is not a dict")
	}
	return tag, d, err
}

// Read decodes a message of a master that is not authenticated yet into the struct that to points to. It checks types and sizes.
func Read(d *value.Dict, to any) error { return message.Decode(d, to) }

// View decodes a message of a member. A value of a wrong type counts as missing: the member may run another release.
func View(d *value.Dict, to any) { message.View(d, to) }

// Dict encodes the message that from points to.
func Dict(from any) *value.Dict { return message.Encode(from) }

// Write sends a message in a frame. If said is not nil, it appends the message to the transcript.
func Write(conn net.Conn, tag string, d *value.Dict, said *Transcript) error {
	b, err := Encode(tag, d)
	if err != nil {
		return err
	}
	if said != nil {
		said.Add(b)
	}
	_, err = conn.Write(event.Frame(b))
	return err
}

// MaxGreeting bounds messages before authentication, in bytes.
const MaxGreeting = 256 << 10
