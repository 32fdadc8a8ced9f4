// Package channel combines a transport, the ciphers and the sign-in into the
// daemons' interface: authenticated requests with typed maps in and out, and
// publications that only minions with the master's current key can read.
//
// Server and PublishServer are the master's side, Client and Subscription the minion's. The package
// knows nothing of jobs and routes: a request that passed all checks becomes a Call.
//
// A request is an envelope map
//
//	clear: {enc: "clear", load: map, version: 3}
//	aes:   {enc: "aes", load: sealed, version: 3, id, enc_algo, sig_algo}
//
// whose sealed load is a map under the minion's session key, ending with nonce,
// ts, tok and id. A publication is {enc: "aes", load: sealed, sig_algo, sig}
// under the master's AES key.
package channel

import (
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"brine/internal/py/msgpack"
	"brine/internal/py/value"
)

// protocolVersion is the supported version of Salt's request protocol.
const protocolVersion = 3

// sessionVersion is the first version with session keys. Before it, all minions shared the key for
// publications, and any of them could impersonate another; such requests are refused regardless of
// minimum_auth_version.
const sessionVersion = 3

// Plain strings with which a master answers instead of an encrypted reply.
const (
	badLoad      = "bad load"
	badLoadID    = "bad load: id contains a null byte"
	badLoadIDStr = "bad load: id is not a string"
	badDict      = "payload and load must be a dict"
	badMinion    = "Some exception handling minion payload"
	serverError  = "Server-side exception handling payload"
)

// Decoder limits for an unauthenticated peer, and for an authenticated one.
var (
	unauthenticatedLimits = msgpack.Limits{Depth: 64, Items: 1 << 18}
	minionLimits          = msgpack.Limits{Depth: 500, Items: 4 << 20}
	// signInLimits are for sign-ins, in both directions, and registrations: small
	// unauthenticated messages.
	signInLimits = msgpack.Limits{Depth: 16, Items: 8 << 10, Bytes: 256 << 10}
)

// envelope is an unauthenticated request.
type envelope struct {
	enc     string
	load    []byte // the raw msgpack of the load
	version int
	id      string // "" if it is missing or not a string
}

var errEnvelope = errors.New("not a request envelope")

func parseEnvelope(body []byte) (envelope, error) {
	var e envelope
	raw, ok, err := msgpack.Field(body, "enc")
	if err != nil || !ok {
		return e, errEnvelope
	}
	enc, ok := msgpack.Text(raw)
	if !ok {
		return e, errEnvelope
	}
	e.enc = string(enc)
	if e.load, ok, err = msgpack.Field(body, "load"); err != nil || !ok {
		return e, errEnvelope
	}
	if raw, ok, _ := msgpack.Field(body, "version"); ok {
		e.version = parseVersion(raw)
	}
	e.id, _ = textField(body, "id")
	return e, nil
}

// textField returns the value of a key of an encoded map if it is a string.
func textField(m []byte, key string) (string, bool) {
	raw, ok, err := msgpack.Field(m, key)
	if err != nil || !ok {
		return "", false
	}
	text, ok := msgpack.Text(raw)
	return string(text), ok && utf8.Valid(text)
}

// parseVersion accepts what Python's int() accepts; anything else is 0.
func parseVersion(raw []byte) int {
	if len(raw) == 1 && raw[0] <= 0x7f {
		return int(raw[0]) // a small number, the usual form
	}
	v, err := msgpack.Limits{Depth: 1, Items: 4}.Unmarshal(raw)
	if err != nil {
		return 0
	}
	switch x := v.(type) {
	case int64:
		return int(x)
	case string:
		n, _ := strconv.Atoi(x)
		return n
	}
	return 0
}

// dictOf decodes one msgpack map.
func dictOf(raw []byte, l msgpack.Limits) (*value.Dict, error) {
	v, err := l.Unmarshal(raw)
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fmt.Errorf("expected a map, got %s", value.TypeName(v))
	}
	return d, nil
}
