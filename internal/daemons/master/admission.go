package master

import (
	"cmp"
	"fmt"
	"log/slog"

	"brine/internal/base/salt"
	"brine/internal/net/channel"
	"brine/internal/net/crypt"
	"brine/internal/net/handshake"
	"brine/internal/py/value"
	"brine/internal/store/keystore"
)

// keyBook gives the sign-in access to the key store. It calls note with each
// change.
type keyBook struct {
	keys *keystore.Store
	note func(keystore.Decision)
}

// by returns the key store for changes made by a rule, or, without a rule, by
// the minion itself.
func (b keyBook) by(rule string) *keystore.Store {
	return b.as(cmp.Or(rule, byMinion), bySignIn)
}

// The author of a key change and its origin, for changes that no user made.
const (
	byMinion = "minion"
	bySignIn = "sign-in"
)

func (b keyBook) Known(id string) (handshake.Known, string, error) {
	st, pub, err := b.keys.Lookup(id)
	if salt.KindOf(err) == salt.Denied {
		return handshake.Blocked, "", nil
	}
	switch st {
	case keystore.Accepted:
		return handshake.Accepted, pub, err
	case keystore.Pending:
		return handshake.Pending, pub, err
	case keystore.Rejected:
		return handshake.Rejected, pub, err
	}
	return handshake.Unknown, "", err
}

func (b keyBook) Store(bank handshake.Bank, id, pem, rule string) error {
	if bank == handshake.ToDenied {
		rule = "" // the rule accepts a key of this id, but not the one that was presented
	}
	return b.by(rule).Put(stateOf(bank), id, pem)
}

func (b keyBook) Add(bank handshake.Bank, id, pem, rule string) error {
	return b.by(rule).Add(stateOf(bank), id, pem)
}

// as returns the key store for changes that are recorded with their author (who)
// and origin (how).
func (b keyBook) as(who, how string) *keystore.Store { return b.keys.As(b.note, who, how) }

func stateOf(bank handshake.Bank) keystore.State {
	switch bank {
	case handshake.ToAccepted:
		return keystore.Accepted
	case handshake.ToPending:
		return keystore.Pending
	case handshake.ToRejected:
		return keystore.Rejected
	}
	return keystore.Denied
}

func (b keyBook) DropPending(id, rule string) error {
	err := b.by(rule).Delete(keystore.Pending, id)
	if salt.KindOf(err) == salt.NotFound {
		return nil
	}
	return err
}

// acceptedKeys gives the request channel the accepted keys.
type acceptedKeys struct{ keys *keystore.Store }

func (a acceptedKeys) AcceptedKey(id string) (*crypt.PublicKey, bool, error) {
	k, err := a.keys.AcceptedKey(id)
	switch {
	case err == nil:
		return k.Public, true, nil
	case salt.KindOf(err) == salt.NotFound:
		return nil, false, nil
	}
	return nil, false, err
}

// admission is the operator's policy for unknown minions.
type admission struct {
	settings *settings
	keys     *keystore.Store
	// present returns the connected minions.
	present func() map[string]bool
	pending *pendingCount
}

// Open implements channel.Admission.
func (a admission) Open() bool { return a.settings.options().OpenMode }

// Policy implements channel.Admission.
func (a admission) Policy(id string, grains *value.Dict) handshake.Policy {
	if a.settings.autosign().Rejects(id) {
		return handshake.Policy{AutoReject: true, Rule: "autoreject_file"}
	}
	rule := a.settings.autosign().Signs(id, grains)
	return handshake.Policy{AutoSign: rule != "", Rule: rule}
}

// Full implements channel.Admission.
func (a admission) Full(id string) bool {
	o := a.settings.options()
	if o.MaxMinions > 0 {
		there := a.present()
		if len(there) > o.MaxMinions && !there[id] {
			return true
		}
	}
	return o.MaxPending > 0 && a.pendingFull(id, o.MaxPending)
}

var (
	_ channel.KeyBook   = keyBook{}
	_ channel.Keys      = acceptedKeys{}
	_ channel.Admission = admission{}
)

// pendingFull reports whether id must be refused: it has no key yet, and the
// limit of pending keys is reached.
func (a admission) pendingFull(id string, limit int) bool {
	full := a.pending.reached(limit, func() int {
		all, err := a.keys.List()
		if err != nil {
			return 0
		}
		return len(all[keystore.Pending])
	})
	if !full {
		return false
	}
	if st, _, err := a.keys.Lookup(id); err != nil || st != keystore.None {
		return false
	}
	a.pending.rateLimitedLog.Log(slog.LevelWarn,
		"new minions are turned away: too many keys wait for a decision; make it with salt-key, or raise max_pending_keys",
		"limit", limit, "minion", fmt.Sprintf("%.80s", id))
	return true
}
