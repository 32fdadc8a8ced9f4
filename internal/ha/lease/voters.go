package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"brine/internal/base/salt"
)

// Fingerprint returns the fingerprint of a list of voters, regardless of order.
func Fingerprint(voters []string) string {
	l := slices.Sorted(slices.Values(voters))
	sum := sha256.Sum256([]byte(strings.Join(l, "\x00")))
	return hex.EncodeToString(sum[:8])
}

func checkVoter(id string) error {
	if salt.CheckID(id) != nil || strings.ContainsAny(id, "/ ") {
		return salt.Errorf(salt.Invalid, "%.80q is not an address or name", id)
	}
	return nil
}

// CheckVoters rejects lists that cannot grant a lease, or that cannot grant it after the loss of one voter.
func CheckVoters(voters []string) error {
	seen := map[string]bool{}
	for _, v := range voters {
		switch {
		case checkVoter(v) != nil:
			return salt.Errorf(salt.Invalid, "cluster_voters: %w", checkVoter(v))
		case seen[v]:
			return salt.Errorf(salt.Invalid, "cluster_voters names %s twice", v)
		}
		seen[v] = true
	}
	if n := len(voters); n > 0 && (n < 3 || n%2 == 0) {
		return salt.Errorf(salt.Invalid,
			"cluster_voters names %d: an odd number of at least 3 is required; with two masters, add a machine that runs brine witness", n)
	}
	return nil
}
