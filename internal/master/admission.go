package master

import (
	"fmt"
	"log/slog"

	"brine/internal/channel"
	"brine/internal/crypt"
	"brine/internal/handshake"
	"brine/internal/keystore"
	"brine/internal/salt"
	"brine/internal/value"
)

// keyBook shows the store of keys to the sign-in.
type keyBook struct{ keys *keystore.Store }

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

func (b keyBook) Store(bank handshake.Bank, id, pem string) error {
	return b.keys.Put(stateOf(bank), id, pem)
}

func (b keyBook) Add(bank handshake.Bank, id, pem string) error {
	return b.keys.Add(stateOf(bank), id, pem)
}

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

func (b keyBook) DropPending(id string) error {
	err := b.keys.Delete(keystore.Pending, id)
	if salt.KindOf(err) == salt.NotFound {
		return nil
	}
	return err
}

// acceptedKeys shows the accepted keys to the request channel.
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

// admission is the operator's rule about minions that are not known.
type admission struct{ m *Master }

// Open implements channel.Admission.
func (a admission) Open() bool { return a.m.options().OpenMode }

// Policy implements channel.Admission.
func (a admission) Policy(id string, grains *value.Dict) handshake.Policy {
	p := handshake.Policy{AutoReject: a.m.autosign().Rejects(id)}
	if !p.AutoReject {
		p.AutoSign = a.m.autosign().Signs(id, grains)
	}
	return p
}

// Full implements channel.Admission.
func (a admission) Full(id string) bool {
	o := a.m.options()
	if o.MaxMinions > 0 {
		there := a.m.presence.current()
		if len(there) > o.MaxMinions && !there[id] {
			return true
		}
	}
	return o.MaxPending > 0 && a.m.pendingFull(id, o.MaxPending)
}

var (
	_ channel.KeyBook   = keyBook{}
	_ channel.Keys      = acceptedKeys{}
	_ channel.Admission = admission{}
)

// pendingFull reports whether too many keys wait for acceptance for another
// stranger to be entered.
func (m *Master) pendingFull(id string, limit int) bool {
	full := m.pending.reached(limit, func() int {
		all, err := m.keys.List()
		if err != nil {
			return 0
		}
		return len(all[keystore.Pending])
	})
	if !full {
		return false
	}
	if st, _, err := m.keys.Lookup(id); err != nil || st != keystore.None {
		return false
	}
	m.pending.gripes.Log(slog.LevelWarn, "new minions are turned away: too many keys wait for a decision; make it with salt-key, or raise max_pending_keys",
		"limit", limit, "minion", fmt.Sprintf("%.80s", id))
	return true
}
