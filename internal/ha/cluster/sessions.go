package cluster

import "brine/internal/net/crypt"

// Session keys of minions are computed from a secret that the masters share
// (SessionFile), so that every master knows them and none has to send them. It is
// random and can be replaced, in contrast to the key of the cluster, which a
// master that was removed may have copied.
//
// Versions before that secret computed session keys from the cluster's key. All
// masters must compute the same, so that stays so until every member has a
// version that can do better; then one of them makes the secret.

// SessionSecret is what session keys are computed from now.
func (c *Cluster) SessionSecret() []byte {
	if s := c.secrets.Sessions.Current(); s != "" {
		return []byte(s + c.ring.Load().sessionSalt())
	}
	return c.legacy
}

// signSessions returns what versions without the secret compute session keys
// from: a signature of the cluster's key that is made for nothing else, and not
// sent.
func (c *Cluster) signSessions() ([]byte, error) {
	return c.secrets.Key.Sign(crypt.PKCS1v15SHA224, []byte("session keys of Brine's masters"))
}

// agreeSessions makes the secret if there is none and every member can use it.
// may says whether this master is the one to make it.
func (c *Cluster) agreeSessions(may bool) error {
	if !c.cfg.Options.Isolated || !may || c.secrets.Sessions.Current() != "" || !c.allUseSecret() {
		return nil
	}
	if err := c.secrets.Sessions.make(); err != nil {
		return err
	}
	c.log.Info("session keys of minions are computed from a secret of their own now", "file", SessionFile)
	if c.host == nil {
		return nil // it is being started
	}
	// Masters that were removed before know the present one.
	return c.Rotate()
}

// allUseSecret reports whether every member says that its version computes
// session keys from the secret.
func (c *Cluster) allUseSecret() bool {
	for id, p := range c.all() {
		if p.isGone() {
			continue
		}
		if s, err := c.readStation(id); err != nil || !s.Sessions {
			return false
		}
	}
	return true
}

// renew replaces the keys by which minions and masters read each other: the
// secret of sessions and the key of publications. Minions sign in again at the
// next message, as they do whenever the AES key is replaced.
func (c *Cluster) renew() error {
	if c.cfg.Options.Isolated && (c.secrets.Sessions.Current() != "" || c.allUseSecret()) {
		if err := c.secrets.Sessions.Replace(); err != nil {
			return err
		}
	}
	return c.Rotate()
}
