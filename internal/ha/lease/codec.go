package lease

import (
	"encoding/json"

	"brine/internal/base/salt"
)

// Bounds of received messages, in bytes.
const (
	maxRequest = 4 << 10
	maxHolder  = 512
	// maxAnswer has room for all claims.
	maxAnswer = 4 << 20
)

// Encode encodes a request.
func (r Request) Encode() ([]byte, error) { return json.Marshal(r) }

// ReadRequest decodes a request.
func ReadRequest(b []byte) (r Request, err error) {
	if len(b) > maxRequest {
		return r, salt.Errorf(salt.Invalid, "a request to a voter has %d bytes; at most %d are allowed", len(b), maxRequest)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, salt.Errorf(salt.Invalid, "cannot decode a request to a voter: %w", err)
	}
	if r.Voter != "" && checkVoter(r.Voter) != nil {
		return r, salt.Errorf(salt.Invalid, "a request to a voter names the voter %.80q, which is not an address or name", r.Voter)
	}
	if len(r.Holder) > maxHolder || len(r.Name) > MaxClaim {
		return r, salt.Errorf(salt.Invalid, "a request to a voter names %.80q and %.80q, which is too long", r.Holder, r.Name)
	}
	return r, nil
}

// Encode encodes an answer.
func (a Answer) Encode() ([]byte, error) { return json.Marshal(a) }

// ReadAnswer decodes an answer.
func ReadAnswer(b []byte) (a Answer, err error) {
	if len(b) > maxAnswer {
		return a, salt.Errorf(salt.Invalid, "an answer of a voter has %d bytes; at most %d are allowed", len(b), maxAnswer)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, salt.Errorf(salt.Invalid, "cannot decode an answer of a voter: %w", err)
	}
	return a, nil
}
