package wire

import "brine/internal/py/value"

// SignIn is the load of an _auth request, which a minion sends unencrypted.
// Source: Salt's AsyncAuth.minion_sign_in_payload. The last fields are Brine's
// own; Salt's masters ignore them.
type SignIn struct {
	Cmd            string      `wire:"cmd" max:"64"`
	ID             string      `wire:"id" max:"1024"`
	Nonce          string      `wire:"nonce" max:"64"`
	EncAlgo        string      `wire:"enc_algo" max:"64"`
	SigAlgo        string      `wire:"sig_algo" max:"64"`
	AutosignGrains *value.Dict `wire:"autosign_grains,omitempty"`
	Token          []byte      `wire:"token,omitempty" max:"4096"`
	Pub            string      `wire:"pub" max:"16384"`
	// TakesHints means that the minion understands the answer ComeBack.
	TakesHints bool        `wire:"takes_hints,omitempty"`
	Rest       *value.Dict `wire:"*"`
}

// Signed is the answer to a SignIn: Load is the encoded Acceptance or Refusal
// that Sig signs, or a map that is not signed (Busy, and refusals to peers
// older than protocol version 2).
type Signed struct {
	Enc  string      `wire:"enc"`
	Load any         `wire:"load,required"`
	Sig  []byte      `wire:"sig,omitempty"`
	Rest *value.Dict `wire:"*"`
}

// Refusal is a signed answer that is not an acceptance. Ret is False (refused),
// True (wait for acceptance) or "full". ID is Brine's own: the minion that the
// refusal is for, so that it cannot be replayed to another one that signed in
// with the same nonce.
type Refusal struct {
	Ret   any         `wire:"ret"`
	Nonce string      `wire:"nonce"`
	ID    any         `wire:"id,omitempty"`
	Rest  *value.Dict `wire:"*"`
}

// Unsigned is an unsigned answer, which anyone can send: "bad enc algo", "bad
// sig algo", a refusal to a peer older than protocol version 2, or, from a
// Brine master to a minion that sent TakesHints, ComeBack.
type Unsigned struct {
	Ret any `wire:"ret"`
	// ComeBack is the delay in milliseconds after which the minion should sign in
	// again, because the master is busy now.
	ComeBack int64       `wire:"come_back,omitempty"`
	Rest     *value.Dict `wire:"*"`
}

// ComeBack is the value of Ret in an Unsigned with ComeBack.
const ComeBack = "come_back"

// Acceptance is the signed answer to an accepted minion. Source: Salt's
// ReqServerChannel._auth. The fields below Nonce are Brine's own; Salt's
// minions ignore them.
type Acceptance struct {
	Enc         string `wire:"enc"`
	PubKey      string `wire:"pub_key"`
	PublishPort any    `wire:"publish_port"`      // a port; other values mean none
	PubSig      string `wire:"pub_sig,omitempty"` // base64 with newlines
	Token       []byte `wire:"token,omitempty"`
	AES         []byte `wire:"aes"`
	Session     []byte `wire:"session,omitempty"`
	Sig         []byte `wire:"sig"` // of the AES key
	Nonce       string `wire:"nonce"`
	// Brine means that the master supports Brine's additional commands.
	Brine bool `wire:"brine,omitempty"`
	// Shares means that the master answers _brine_tree and _brine_part.
	Shares bool `wire:"brine_shares,omitempty"`
	// Signs means that the master signs every publication. A Brine minion then
	// refuses any other: all minions know the key that encrypts publications, so
	// that without signatures each could forge commands to the others.
	Signs bool `wire:"brine_signs,omitempty"`
	// Endorsed is a list of Endorsement.
	Endorsed *value.List `wire:"brine_endorsed,omitempty"`
	// Common means that the key is that of all masters of the minion.
	Common bool        `wire:"brine_common_key,omitempty"`
	Rest   *value.Dict `wire:"*"`
}

// Endorsement is a key that another key has signed.
type Endorsement struct {
	Pub  string      `wire:"pub"`
	Sig  []byte      `wire:"sig"`
	Rest *value.Dict `wire:"*"`
}
