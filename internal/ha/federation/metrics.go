package federation

import (
	"time"

	"brine/internal/base/metrics"
	"brine/internal/store/keystore"
)

var (
	connected = metrics.Family{Name: "brine_federation_connected", Help: "1 while this master is connected to the hub of a federation."}
	siteOpen  = metrics.Family{Name: "brine_federation_site_open_jobs",
		Help: "Commands of a master above that this site has taken and whose results that master has not confirmed completely."}
	siteReturns = metrics.Family{Name: "brine_federation_site_waiting_returns", Help: "Returns that the master above has not confirmed."}
	siteOldest  = metrics.Family{Name: "brine_federation_site_oldest_seconds",
		Help: "Age of the oldest job of which the master above has not confirmed a stored return or summary; 0 without."}
	siteClock = metrics.Family{Name: "brine_federation_clock_difference_seconds",
		Help: "What this site adds to its clock for commands of the master above, if their clocks differ by more than two minutes; else 0."}
	hubSites    = metrics.Family{Name: "brine_federation_sites", Help: "Sites below this master by state.", Labels: []string{"state"}}
	hubCommands = metrics.Family{Name: "brine_federation_commands",
		Help: "Commands to sites by state: waiting until the site confirms them, or incomplete until its final summary arrives.", Labels: []string{"site", "state"}}
	hubOldest = metrics.Family{Name: "brine_federation_oldest_command_seconds",
		Help: "Age of the oldest command that a site has not confirmed; 0 without."}
	hubReturns   = metrics.Family{Name: "brine_federation_returns_total", Kind: metrics.Counter, Help: "Returns of minions of sites that this master has stored."}
	hubSummaries = metrics.Family{Name: "brine_federation_summaries_total", Kind: metrics.Counter, Help: "Summaries of sites that this master has stored."}
	hubRefused   = metrics.Family{Name: "brine_federation_refused_total", Kind: metrics.Counter, Help: "Messages of sites that this master has refused."}
)

// Families returns the metrics of masters of a federation.
func Families() []*metrics.Family {
	return []*metrics.Family{&connected, &siteOpen, &siteReturns, &siteOldest, &siteClock,
		&hubSites, &hubCommands, &hubOldest, &hubReturns, &hubSummaries, &hubRefused}
}

// load is what waits for the hub.
type load struct {
	jobs, returns int
	oldest        time.Duration
}

// waiting returns what the hub has not confirmed.
func (s *Site) waiting(now time.Time) (l load) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.cmd.Passing || j.stage == stageRefused {
			continue
		}
		l.jobs++
		n := 0
		if s.sends(j) {
			n = max(len(j.tally.returned)-len(j.confirmed), 0)
		}
		l.returns += n
		if n > 0 || !j.settled {
			l.oldest = max(l.oldest, now.Sub(j.received))
		}
	}
	return l
}

// Metrics writes the metrics of a site.
func (s *Site) Metrics(p *metrics.Page) {
	p.Bool(&connected, s.Connected())
	l := s.waiting(time.Now())
	p.Count(&siteOpen, int64(l.jobs))
	p.Count(&siteReturns, int64(l.returns))
	p.Set(&siteOldest, l.oldest.Seconds())
	p.Set(&siteClock, s.clock.offset().Seconds())
}

// Metrics writes the metrics of a master that commands sites. site reports whether it is a site, too,
// which has written the common ones.
func (h *Hub) Metrics(p *metrics.Page, site bool) {
	if !site {
		p.Bool(&connected, h.Connected())
	}
	sites, err := h.accepted()
	if err != nil {
		return // the next page has them
	}
	pending, err := h.keys.Count(keystore.Pending)
	if err != nil {
		pending = 0
	}
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	up := 0
	waiting, oldest := h.undone(now)
	for name := range sites {
		if h.isPresent(name, now) {
			up++
		}
		p.Count(&hubCommands, int64(waiting[name].waiting), name, StateWaiting)
		p.Count(&hubCommands, int64(waiting[name].incomplete), name, "incomplete")
	}
	p.Count(&hubSites, int64(len(sites)), "accepted")
	p.Count(&hubSites, int64(up), "connected")
	p.Count(&hubSites, int64(pending), "pending")
	p.Set(&hubOldest, oldest.Seconds())
	p.Count(&hubReturns, h.returns.Load())
	p.Count(&hubSummaries, h.summaries.Load())
	p.Count(&hubRefused, h.refused.Load())
}

// undone are the commands to a site that are not complete.
type undone struct {
	waiting, incomplete int
	oldest              time.Duration // of those that wait
}

// undone returns, by site, the commands that are not complete, and the age of the oldest one that
// waits. Locked.
func (h *Hub) undone(now time.Time) (out map[string]undone, oldest time.Duration) {
	out = map[string]undone{}
	for _, j := range h.jobs {
		if j.cmd.Passing {
			continue
		}
		for name, p := range j.sites {
			u := out[name]
			switch {
			case p.state == StateWaiting:
				u.waiting++
				u.oldest = max(u.oldest, now.Sub(j.given))
				oldest = max(oldest, u.oldest)
			case p.state == StateStored && !p.final:
				u.incomplete++
			}
			out[name] = u
		}
	}
	return out, oldest
}
