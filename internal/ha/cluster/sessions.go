package cluster

import (
	"brine/internal/ha/cluster/keys"
	"brine/internal/net/crypt"
)

// Minions' session keys are computed from a secret shared by the masters (SessionFile), so that every master knows them without
// communication. The secret is random and replaceable, unlike the key of the cluster, which a removed master may have copied.
//
// Older versions computed session keys from the cluster's key. All masters must compute the same keys, so they use the cluster's key
// until every member's version supports the secret. Then one of them creates it.

// SessionSecret returns the secret from which session keys are computed now.
func (c *Cluster) SessionSecret() []byte {
	if s := c.secrets.Sessions.Current(); s != "" {
		return []byte(s + c.Keyring.ring.Load().SessionSalt())
	}
	return c.legacy
}

// signSessions returns the secret that older versions use: a signature by the cluster's key that is made only for this purpose and never
// sent.
func (c *Cluster) signSessions() ([]byte, error) {
	return c.secrets.Key.Sign(crypt.PKCS1v15SHA224, []byte("session keys of Brine's masters"))
}

// agreeSessions creates the secret if it is missing and every member supports it. may reports whether this master
// should create it.
func (c *Cluster) agreeSessions(may bool) error {
	if !c.cfg.Options.Isolated || !may || c.secrets.Sessions.Current() != "" || !c.trust.allUseSecret() {
		return nil
	}
	if err := c.secrets.Sessions.Make(); err != nil {
		return err
	}
	c.log.Info("session keys of minions are now computed from a separate secret", "path", keys.SessionFile)
	if c.local.host == nil {
		return nil // the peer is starting
	}
	// Masters removed earlier know the present AES key.
	return c.Rotate()
}

// renew replaces the secret of sessions and the key of publications. Minions sign in again at the next message, as after any replacement of
// the AES key.
func (c *Cluster) renew() error {
	if c.cfg.Options.Isolated && (c.secrets.Sessions.Current() != "" || c.trust.allUseSecret()) {
		if err := c.secrets.Sessions.Replace(); err != nil {
			return err
		}
	}
	return c.Rotate()
}
