package master

import (
	"brine/internal/base/salt"
	"brine/internal/ha/cluster"
	"brine/internal/net/channel"
	"brine/internal/store/keystore"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
)

// refusesKey returns an error if connected minions would not accept a new key of
// the cluster: stock minions know one key only.
func refusesKey(o *Options, q *queue, p *presence) error {
	if o.MasterSignPubkey && o.MasterUsePubkeySignature {
		return salt.Errorf(salt.Invalid,
			"master_use_pubkey_signature has a stored signature of the present key, which minions would not take for another one: use the signing "+
				"key itself meanwhile, or --force and put the new signature there")
	}
	stock := q.mute(slices.Sorted(maps.Keys(p.connected())))
	if len(stock) == 0 {
		return nil
	}
	shown := stock[:min(len(stock), 5)]
	return salt.Errorf(salt.Invalid,
		"%d minions that are connected may be Salt's (%s ...), which take no other key of their master: remove minion_master.pub in their pki_dir "+
			"right before, or have masters sign their key (master_sign_pubkey) and minions verify that; then use --force", len(stock),
		strings.Join(shown, ", "))
}

// requestPorts returns the request ports by transport name.
func requestPorts(listen []Listen) map[string]int {
	out := map[string]int{}
	for _, l := range listen {
		_, text, err := net.SplitHostPort(l.Request)
		if err != nil {
			continue
		}
		if port, err := strconv.Atoi(text); err == nil && port > 0 {
			out[l.Transport.Name()] = port
		}
	}
	return out
}

// leaveCluster makes a master hand over its data, leave its cluster and exit.
func leaveCluster(id string, r *replicated, end func()) error {
	if r == nil {
		return salt.Errorf(salt.Invalid,
			"the masters of this cluster share a directory: take this one out of the balancer, stop it, and delete peers/%s.pub in cluster_pki_dir", id)
	}
	return r.leave(end)
}

// deriveSessions computes session keys from a secret that all masters of the
// cluster share, so that a load balancer may connect a minion to any of them.
// The minion's public key is an input, too, so that the previous owner of an id
// cannot decrypt later messages.
func deriveSessions(s *channel.Sessions, c *cluster.Cluster, keys *keystore.Store) error {
	return s.Derive(c.SessionSecret, func(id string) (string, error) {
		k, err := keys.AcceptedKey(id)
		if err != nil {
			return "", err
		}
		return k.PEM, nil
	})
}
