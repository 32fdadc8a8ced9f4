package cluster

import (
	"brine/internal/ha/cluster/keys"
	"brine/internal/ha/cluster/saltwire"
)

// Files of keys in cluster_pki_dir; see the package keys.
const (
	KeyFile      = keys.KeyFile
	PublicFile   = keys.PublicFile
	SecretFile   = keys.SecretFile
	SessionFile  = keys.SessionFile
	RotationFile = keys.RotationFile
)

// PeerID is the field in an event's data that names the master it came from.
const PeerID = saltwire.PeerID

// CurrentSecret calls keys.Joining.
func CurrentSecret(dir, option string) (string, error) { return keys.Joining(dir, option) }
