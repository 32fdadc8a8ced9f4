package channel

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"brine/internal/base/ratelimit"
	"brine/internal/base/salt"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
)

// KeyBook is the sign-in's access to the store of minion keys. An error of kind
// salt.Invalid means that the id is invalid.
type KeyBook interface {
	// Known returns the state of an id and the stored key, if any.
	Known(id string) (handshake.Known, string, error)
	// Store writes a key to a bank, replacing the stored one. rule names the rule
	// that decided, "" for the minion's own sign-in.
	Store(bank handshake.Bank, id, pem, rule string) error
	// Add is Store for an unknown id. If the id got a key in that bank meanwhile,
	// from another master with the same directory, the error is of kind
	// salt.Exists.
	Add(bank handshake.Bank, id, pem, rule string) error
	// DropPending removes id's pending key.
	DropPending(id, rule string) error
}

// Admission is the operator's policy for unknown minions.
type Admission interface {
	// Open reports whether any key is accepted (open_mode).
	Open() bool
	// Policy returns how to treat a key of id that is neither accepted nor
	// rejected; the call may use up a one-time permission. grains are those that
	// the minion sends for autosigning, or nil.
	Policy(id string, grains *value.Dict) handshake.Policy
	// Full reports whether max_minions excludes id.
	Full(id string) bool
}

// AuthEvent is a sign-in, for the event bus.
type AuthEvent struct {
	Result  bool
	Act     string // accept, pend, reject, denied, full, or ""
	ID, Pub string
}

// Authenticator answers sign-ins.
type Authenticator struct {
	identity  *handshake.Identity
	book      KeyBook
	admission Admission
	sessions  *Sessions
	publishes func() Publications
	notify    func(AuthEvent)
	opts      func() Options // nil: the defaults; see NewServer
	log       *slog.Logger
	complain  *ratelimit.Log // about errors that any peer can cause
	deciding  sync.Mutex
}

// Publications is the data that a minion needs to read a master's publications.
type Publications struct {
	Key    string // the current AES key
	Port   int
	Signed bool // every publication carries the master's signature
}

// NewAuthenticator returns an authenticator. publishes describes the current
// publications; notify, which may be nil, receives every decision.
func NewAuthenticator(identity *handshake.Identity, book KeyBook, admission Admission, sessions *Sessions,
	publishes func() Publications, notify func(AuthEvent), log *slog.Logger) *Authenticator {
	if notify == nil {
		notify = func(AuthEvent) {}
	}
	a := &Authenticator{identity: identity, book: book, admission: admission, sessions: sessions, publishes: publishes, notify: notify, log: log,
		complain: ratelimit.NewLog(log, 10, 10*time.Second)}
	identity.Foreign = func(id string) {
		a.complain.Log(slog.LevelWarn, "a minion signs in that knows another master's key, and probably refuses this master: give this master the same "+
			"master.pem and master.pub as the minion's other masters, or remove the key of the master in pki_dir of the minion", "minion", id)
	}
	return a
}

// Identity returns the master's identity towards minions.
func (a *Authenticator) Identity() *handshake.Identity { return a.identity }

// signIn answers one _auth request; changed means that the minion's accepted key has changed. pub
// is the parsed key in req, or nil if it was not parsed before. It always returns a reply; Salt
// 3007 sometimes sends none.
func (a *Authenticator) signIn(req handshake.Request, pub *crypt.PublicKey) (reply any, changed bool) {
	refuseSHA1 := a.opts != nil && a.opts().RefuseSHA1
	if !crypt.ValidSigning(req.SigAlgo) || refuseSHA1 && req.SigAlgo == crypt.PKCS1v15SHA1 {
		return handshake.BadAlgorithm("sig"), false
	}
	if !crypt.ValidEncryption(req.EncAlgo) || refuseSHA1 && req.EncAlgo == crypt.OAEPSHA1 {
		return handshake.BadAlgorithm("enc"), false
	}
	if pub == nil {
		var err error
		if pub, err = checkPeer(req); err != nil {
			a.log.Info("sign-in refused", "err", err)
			return a.refusal(req, handshake.Refuse), false
		}
	}
	if a.admission.Full(req.ID) {
		a.log.Info("too many minions connected or waiting (max_minions)", "minion", req.ID)
		a.notify(AuthEvent{Act: "full", ID: req.ID, Pub: req.Pub})
		return a.refusal(req, handshake.Full), false
	}
	v, err := a.decide(req, pub)
	if salt.KindOf(err) == salt.Invalid {
		a.log.Info("sign-in refused", "err", err)
		return a.refusal(req, handshake.Refuse), false
	}
	if err != nil {
		a.complain.Log(slog.LevelError, "cannot decide about a sign-in", "minion", req.ID, "err", err)
		return badMinion, false
	}
	return a.answer(req, v, pub), v.Store == handshake.ToAccepted
}

// checkPeer checks what does not need the key store. Salt stores any data as a key, and detects an
// invalid one when the key is accepted.
func checkPeer(req handshake.Request) (*crypt.PublicKey, error) {
	if err := salt.CheckID(req.ID); err != nil {
		return nil, err
	}
	pub, err := crypt.ParsePublic([]byte(req.Pub))
	if err != nil {
		return nil, fmt.Errorf("public key of %s: %w", req.ID, err)
	}
	return pub, nil
}

// decide looks the minion up and carries out the verdict.
func (a *Authenticator) decide(req handshake.Request, pub *crypt.PublicKey) (handshake.Verdict, error) {
	known, same, err := a.lookUp(req)
	if err != nil {
		return handshake.Verdict{}, err
	}
	if known == handshake.Unknown {
		if err := salt.CheckNewID(req.ID); err != nil {
			return handshake.Verdict{}, salt.Errorf(salt.Invalid, "%w", err)
		}
	}
	if known == handshake.Accepted && same {
		// Nothing to store: a reconnecting fleet waits neither for the disk nor for unauthenticated
		// peers.
		return handshake.Decide(known, same, a.policy(known, req)), nil
	}
	// A small key that the operator has accepted stays valid.
	if a.opts != nil && pub.Bits() < a.opts().MinMinionKey {
		return handshake.Verdict{},
			salt.Errorf(salt.Invalid, "the key of %s has %d bits, min_minion_key_bits is %d: make a new key on the minion, or lower the option",
				req.ID, pub.Bits(), a.opts().MinMinionKey)
	}
	// The rest is atomic: if two keys arrive for an unknown id at the same moment, only one may
	// find it unknown.
	a.deciding.Lock()
	defer a.deciding.Unlock()
	for range decideTries {
		v, err := a.decideUnknown(req)
		if salt.KindOf(err) != salt.Exists {
			return v, err
		}
	}
	return handshake.Verdict{}, salt.Errorf(salt.Unavailable, "the key of %s changes all the time", req.ID)
}

// decideTries bounds how often a decision is repeated because another master that shares the keys
// was faster.
const decideTries = 3

func (a *Authenticator) decideUnknown(req handshake.Request) (handshake.Verdict, error) {
	known, same, err := a.lookUp(req)
	if err != nil {
		return handshake.Verdict{}, err
	}
	p := a.policy(known, req)
	v := handshake.Decide(known, same, p)
	if v.Store != handshake.None {
		store := a.book.Store
		if known == handshake.Unknown && !p.Open {
			store = a.book.Add
		}
		if err := store(v.Store, req.ID, req.Pub, p.Rule); err != nil {
			return v, err
		}
	}
	if v.DropPending {
		if err := a.book.DropPending(req.ID, p.Rule); err != nil {
			a.log.Error("cannot remove a pending key", "minion", req.ID, "err", err)
		}
	}
	if v.Store == handshake.ToAccepted {
		// The former owner of this id knows its session key.
		return v, a.sessions.Forget(req.ID)
	}
	return v, nil
}

func (a *Authenticator) lookUp(req handshake.Request) (known handshake.Known, same bool, err error) {
	known, onFile, err := a.book.Known(req.ID)
	return known, err == nil && crypt.CleanKey(onFile) == crypt.CleanKey(req.Pub), err
}

func (a *Authenticator) policy(known handshake.Known, req handshake.Request) handshake.Policy {
	switch {
	case a.admission.Open():
		return handshake.Policy{Open: true, Rule: "open_mode"}
	case known == handshake.Unknown || known == handshake.Pending:
		return a.admission.Policy(req.ID, req.AutosignGrains)
	}
	return handshake.Policy{}
}

func (a *Authenticator) answer(req handshake.Request, v handshake.Verdict, pub *crypt.PublicKey) any {
	if v.Answer != handshake.Accept {
		a.tell(req, v)
		return a.refusal(req, v.Answer)
	}
	rep, err := a.acceptance(req, pub)
	if err != nil {
		a.complain.Log(slog.LevelError, "cannot answer a sign-in", "minion", req.ID, "err", err)
		return badMinion
	}
	a.tell(req, v)
	return rep
}

func (a *Authenticator) tell(req handshake.Request, v handshake.Verdict) {
	ok := v.Answer == handshake.Accept || v.Answer == handshake.Wait
	switch v.Act {
	case "denied":
		a.complain.Log(slog.LevelError, "sign-in denied: the key differs from the one on file; if the minion was reinstalled, delete its old key; "+
			"if two minions have this id, set the option id of one of them", "minion",
			req.ID)
	case "pend":
		a.log.Info("new key is pending", "minion", req.ID)
	case "accept":
		a.log.Debug("sign-in accepted", "minion", req.ID)
	default:
		a.log.Info("sign-in refused", "minion", req.ID, "act", v.Act)
	}
	a.notify(AuthEvent{Result: ok, Act: v.Act, ID: req.ID, Pub: req.Pub})
}

func (a *Authenticator) acceptance(req handshake.Request, pub *crypt.PublicKey) (*value.Dict, error) {
	session, _, err := a.sessions.Get(req.ID)
	if err != nil {
		return nil, err
	}
	p := a.publishes()
	return a.identity.Acceptance(req, pub, handshake.Secrets{AES: p.Key, Session: session, PublishPort: p.Port, Signs: p.Signed})
}

func (a *Authenticator) refusal(req handshake.Request, ans handshake.Answer) any {
	rep, err := a.identity.Refusal(req, ans)
	if err != nil {
		a.log.Error("cannot sign a refusal", "err", err)
		return badMinion
	}
	return rep
}
