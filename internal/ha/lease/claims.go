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

// Claims are the names of work that has begun, or is about to.
type Claims struct {
	// By has the holder of each name.
	By map[string]string `json:"by"`
	// Forgotten is the highest of the names that were forgotten.
	Forgotten string `json:"forgotten"`
}

// Record records a name for a holder. by is another holder that it was recorded for.
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

// forget drops the lowest names of too many.
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

// Merge adds what another voter knows.
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

// Before is what a voter knows of the time before its group began: the greatest token that was granted, and the claims.
type Before struct {
	Seen uint64 `json:"seen"`
	Claims
	// From are the earlier groups of which a majority must be heard.
	From []Origin `json:"from,omitempty"`
}

// Origin is an earlier group in which a voter had a part. Only a majority of its voters together knows all that it granted and recorded.
type Origin struct {
	Generation uint64   `json:"generation"`
	Voters     []string `json:"voters"`
	// Complete says that the voter also knew all of the groups before.
	Complete bool `json:"complete,omitempty"`
	// Lost says that the voter had lost what it had known of the group, and was not given it again.
	Lost bool `json:"lost,omitempty"`
}

// Same reports whether both are the same group.
func (o Origin) Same(p Origin) bool {
	return o.Generation == p.Generation && Fingerprint(o.Voters) == Fingerprint(p.Voters)
}

// Merge adds what another voter knows, apart from the groups.
func (b *Before) Merge(o Before) {
	b.Seen = max(b.Seen, o.Seen)
	b.Claims.Merge(o.Claims)
}
