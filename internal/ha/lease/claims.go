package lease

import (
	"maps"
	"slices"
)

// Bounds of claims.
const (
	maxClaims = 4096
	// MaxClaim bounds a name in bytes.
	MaxClaim = 64
)

// forgottenHolder stands for the holder of a claim that was forgotten.
const forgottenHolder = "(unknown)"

// Claims records the names of work that has begun or is about to begin.
type Claims struct {
	// By maps each name to its holder.
	By map[string]string `json:"by"`
	// Forgotten is the highest name that was dropped.
	Forgotten string `json:"forgotten"`
}

// Record records a name for a holder. If the name is already recorded for another holder, Record returns that holder.
func (c *Claims) Record(name, holder string) (by string) {
	if by, ok := c.By[name]; ok {
		if by == holder {
			return ""
		}
		return by
	}
	if name <= c.Forgotten {
		return forgottenHolder
	}
	c.By[name] = holder
	c.forget()
	return ""
}

// forget drops the lowest names if there are more than maxClaims.
func (c *Claims) forget() {
	n := len(c.By) - maxClaims
	if n <= 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.By))[:n] {
		delete(c.By, name)
		c.Forgotten = max(c.Forgotten, name)
	}
}

// Merge adds the claims of another voter.
func (c *Claims) Merge(o Claims) {
	if c.By == nil {
		c.By = map[string]string{}
	}
	for name, by := range o.By {
		if _, ok := c.By[name]; !ok {
			c.By[name] = by
		}
	}
	c.Forgotten = max(c.Forgotten, o.Forgotten)
	c.forget()
}

// Before is a voter's knowledge from before its group began: the greatest granted token, and the claims.
type Before struct {
	Seen uint64 `json:"seen"`
	Claims
	// From are the earlier groups. A majority of each must be queried.
	From []Origin `json:"from,omitempty"`
}

// Origin is an earlier group to which a voter belonged. Only a majority of the group's voters together knows all its grants and claims.
type Origin struct {
	Generation uint64   `json:"generation"`
	Voters     []string `json:"voters"`
	// Complete means that the voter also knew the state of all groups before that one.
	Complete bool `json:"complete,omitempty"`
	// Lost means that the voter had lost its knowledge of the group, and did not get it back.
	Lost bool `json:"lost,omitempty"`
}

// Same reports whether both are the same group.
func (o Origin) Same(p Origin) bool {
	return o.Generation == p.Generation && Fingerprint(o.Voters) == Fingerprint(p.Voters)
}

// Merge adds the knowledge of another voter, except the groups.
func (b *Before) Merge(o Before) {
	b.Seen = max(b.Seen, o.Seen)
	b.Claims.Merge(o.Claims)
}
