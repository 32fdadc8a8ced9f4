package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"brine/internal/ha/cluster/wire"
	"brine/internal/py/value"
)

// askStatus is the query by which brine cluster status gets the state of another master.
const askStatus = "status"

// statusTime is the timeout for answers of the other members.
const statusTime = 3 * time.Second

// Status is the state of a member, as reported by itself.
type Status struct {
	Member
	Self bool
	// Says is the member's own report, nil if it did not answer.
	Says *value.Dict
	// Offset is how far its clock is ahead of this master's, accurate to half the round-trip time.
	Offset time.Duration
}

// report decodes the member's own report.
func (s *Status) report() (r wire.Report) {
	wire.View(s.Says, &r)
	return r
}

// Describe sets the function that returns this master's report for Status. It must be called before Run.
func (c *Cluster) Describe(fn func() *value.Dict) {
	c.Queries.Answer(askStatus, func() *value.Dict {
		d := fn()
		_, version := c.Roster()
		d.Set("roster", version)
		d.Set("leads", c.Leads())
		d.Set("secret", c.Voting.secretTag())
		d.Set("key", c.Keyring.ring.Load().Fingerprint)
		if ends := c.CertificateEnds(); !ends.IsZero() {
			d.Set("certificate", wire.Stamp(ends))
		}
		d.Set("now", time.Now().UnixMicro())
		return d
	})
}

// Status queries all members. The result is sorted.
func (c *Cluster) Status(ctx context.Context) []Status {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	out := []Status{{Member: Member{ID: c.cfg.ID, Kind: kindBrine.String(), Up: true}, Self: true}}
	if fn := c.Queries.answers[askStatus]; fn != nil {
		out[0].Says = fn(c.cfg.ID, nil)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, p := range c.peers.all() {
		st := Status{Member: p.member()}
		if st.Gone {
			continue
		}
		wg.Go(func() {
			asked := time.Now()
			if d, err := p.ask(ctx, askStatus, nil); err == nil {
				took := time.Since(asked)
				st.Says = d
				st.Offset = time.UnixMicro(st.report().Now).Sub(asked.Add(took / 2))
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, st)
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// CertificateEnds returns when the certificate of this master for other members ends, the zero time if it has none.
func (c *Cluster) CertificateEnds() time.Time {
	if c.identity == nil {
		return time.Time{}
	}
	return c.identity.Expires()
}
