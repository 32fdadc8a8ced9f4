package master

import (
	"testing"
	"time"

	"brine/internal/base/salt"
)

// TestTimeLeft: a job of another master is queued until it expires, and not for days because a clock was wrong for a moment.
func TestTimeLeft(t *testing.T) {
	now := time.Date(2026, 11, 21, 4, 30, 0, 0, time.UTC)
	const hour, days = time.Hour, 72 * time.Hour
	for name, c := range map[string]struct{ made, until, want time.Duration }{
		"new":                          {0, hour, hour},
		"an older one":                 {-30 * time.Minute, 30 * time.Minute, 30 * time.Minute},
		"expired":                      {-2 * hour, -hour, -hour},
		"of a master days ahead":       {days, days + hour, hour},
		"of another time zone":         {-5 * hour, hour, hour},
		"of another time zone, ahead":  {5 * hour, 24 * hour, 24 * hour},
		"with an id of the future":     {days, hour, hour},
		"kept for days":                {0, days, days},
		"of a clock a minute ahead":    {time.Minute, hour + time.Minute, hour + time.Minute},
		"kept for days, of days ahead": {days, 2 * days, days},
	} {
		jid := salt.FormatJID(now.Add(c.made))
		if got := timeLeft(jid, now.Add(c.until), now); got.Round(time.Second) != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if got := timeLeft("chosen-by-a-client", now.Add(hour), now); got != hour {
		t.Errorf("with another id: %v", got)
	}
}
